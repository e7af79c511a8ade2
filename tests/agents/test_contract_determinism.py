"""The same seed gives the same run, in another process too."""

import json
import os
import subprocess
import sys

import pytest

from tests.agents.contract import AGENTS
from tests.agents.contract import ROOT


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    """The digests of two processes that differ in hash seed and directory."""
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.agents.determinism_run", *seeds],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path_factory.mktemp("elsewhere"),
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": hash_seed},
        )
        for seeds, hash_seed in ((["1", "2"], "1"), (["1"], "2"))
    ]
    results = []
    for process in started:
        out, error = process.communicate(timeout=300)
        assert process.returncode == 0, error
        results.append(json.loads(out.splitlines()[-1]))
    return results


NAMES = [case.cls.__name__ for case in AGENTS]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["single", "sync", "async"])
def test_two_processes_with_one_seed_end_alike(processes, name, kind):
    one, other = (results[f"{name} {kind} 1"] for results in processes)
    assert one == other


@pytest.mark.parametrize("name", NAMES)
def test_another_seed_ends_elsewhere(processes, name):
    assert processes[0][f"{name} sync 1"] != processes[0][f"{name} sync 2"]


@pytest.mark.parametrize("name", NAMES)
def test_worker_processes_change_nothing(processes, name):
    """Validation, which only the run without workers has, does not either."""
    for results in processes:
        assert results[f"{name} sync 1"] == results[f"{name} async 1"]
