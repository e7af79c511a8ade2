"""The benchmark scripts measure what they say; their figures are not tested."""

import functools
import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[1] / "examples" / "benchmarks"


@pytest.fixture
def throughput():
    return runpy.run_path(str(BENCHMARKS / "throughput.py"))


def test_throughput_prints_objects_with_rates_and_shares(monkeypatch, capsys):
    path = str(BENCHMARKS / "throughput.py")
    arguments = ["dqn-cartpole", "--steps", "64", "--repeats", "1", "--json"]
    monkeypatch.setattr(sys, "argv", [path, *arguments])
    monkeypatch.setenv("PYTHONPATH", str(BENCHMARKS.parents[1]))
    runpy.run_path(path, run_name="__main__")
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["workload"], row["library"]) == ("dqn-cartpole", "keras_rl2x")
    assert row["env_steps_per_s"] > 0
    assert set(row["shares"]) == {
        "environment", "acting", "memory", "updating", "keras"
    }  # fmt: skip
    assert sum(row["shares"].values()) == pytest.approx(1.0)
    assert all(0.0 < share < 1.0 for share in row["shares"].values())
    assert row["first_update_s"] > 0


def test_the_table_compares_with_the_faster_number_of_threads(throughput):
    shares = dict.fromkeys(throughput["SHARES"], 0.2)
    rates = {"keras_rl2x": 900.0, "sb3, 1 thread": 300.0, "sb3, 2 threads": 200.0}
    rows = [
        {
            "workload": "w",
            "library": name,
            "env_steps_per_s": rate,
            "shares": shares,
            "first_update_s": 1.23,
        }
        for name, rate in rates.items()
    ]
    last = throughput["table"](rows).splitlines()[-1]
    cells = [cell.strip() for cell in last.strip("|").split("|")]
    assert cells[:6] == ["w", "900", "300", "3.00", "–", "–"]
    assert cells[6:] == ["20 %"] * 5 + ["1.2 s"]


def test_the_libraries_take_turns_and_medians_are_compared(throughput, monkeypatch):
    order, rates = [], iter([1.0, 10.0, 20.0, 2.0, 9.0, 30.0])

    def run(command):
        order.append("peer" if "peers.py" in command[1] else "own")
        shares = dict.fromkeys(SHARES, 0.2)
        return {"env_steps_per_s": next(rates), "shares": shares, "first_update_s": 1.0}

    SHARES = throughput["SHARES"]
    compare = throughput["compare"]
    monkeypatch.setitem(compare.__globals__, "run", run)
    peers = {"sbx": (("sbx",), ("dqn-cartpole",))}
    monkeypatch.setitem(compare.__globals__, "PEERS", peers)
    rows = compare("dqn-cartpole", 100, 3, "python-of-the-peers")
    assert order == ["own", "peer", "peer", "own", "own", "peer"]
    medians = {row["library"]: row["env_steps_per_s"] for row in rows}
    assert medians == {"keras_rl2x": 2.0, "sbx": 20.0}


def test_the_floor_counts_the_products_of_an_update():
    floor = runpy.run_path(str(BENCHMARKS / "floor.py"))
    make = functools.partial(floor["mlp"], 4, 2)
    data, products = floor["q_learning"](make, (4,), 8, double=True)
    values = products(*data[:, 0])
    # Three forward passes and a gradient for each of the three kernels.
    shapes = [tuple(value.shape) for value in values]
    assert shapes == [(8, 2)] * 3 + [(4, 256), (256, 256), (256, 2)]
    _, products = floor["ddpg"](8)
    values = products(*np.zeros((2, 8, 3), np.float32))
    assert all(value is not None for value in values)
    assert len(values) == 1 + 3 + 3  # the target, and both networks' kernels


def test_five_runs_that_are_killed_end_as_the_one_that_is_not(tmp_path):
    """SIGKILL at random moments, some of them inside a write. The soak does fifty."""
    command = [sys.executable, str(BENCHMARKS / "soak.py"), "--kills", "5"]
    result = subprocess.run(
        [*command, "--only", "DQN, n_step=3, vector"],
        env={**os.environ, "PYTHONPATH": str(BENCHMARKS.parents[1])},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert "| 5 of 5 resumed bit for bit | yes |" in result.stdout, result.stderr
    assert result.returncode == 0


def test_the_overhead_of_health_compares_runs_of_the_same_length(monkeypatch):
    overhead = runpy.run_path(str(BENCHMARKS / "health_overhead.py"))
    taken, order = {"Begin": [2.0, 1.0, 0.0], "Stopwatch": [3.0, 1.1, 0.3]}, []

    def seconds(agent, env, kind, steps):
        order.append(kind.__name__)
        return np.array(taken[kind.__name__]), 0.5

    compare = overhead["compare"]
    monkeypatch.setitem(compare.__globals__, "seconds", seconds)
    monkeypatch.setattr("keras_rl2x.DQN.fit", lambda *args, **kwargs: None)
    overheads, firsts = compare("dqn-cartpole", 2, 100)
    assert order == ["Begin", "Stopwatch", "Stopwatch", "Begin"]
    np.testing.assert_allclose(overheads, [[50.0, 10.0, 10.0]] * 2)
    assert firsts == [0.5, 0.5]
