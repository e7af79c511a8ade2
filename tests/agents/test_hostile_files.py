"""Files that were damaged, or made to do harm: refused, and nothing has changed."""

import json
import os
import pickle
import shutil
import time
import zipfile

import h5py
import keras
import numpy as np
import pytest

from keras_rl2x import ReplayMemory
from keras_rl2x.callbacks import Checkpoint
from keras_rl2x.callbacks.checkpoint import newest
from tests.agents.contract import AGENTS
from tests.agents.contract import digest

CASE = AGENTS[0]
SECRET = b"nobody is to read this; " * 40


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """An agent's files, and a secret beside them."""
    directory = tmp_path_factory.mktemp("saved")
    agent = CASE.light()
    agent.fit(
        CASE.env(), steps_per_epoch=20, batch_size=8, seed=1, verbose=0,
        callbacks=[Checkpoint(directory / "run", every=100)],
    )  # fmt: skip
    agent.save(directory / "agent.keras")
    agent.save_weights(directory / "agent.weights.h5")
    (directory / "secret").write_bytes(SECRET)
    with h5py.File(directory / "other.h5", "w") as file:
        file["x"] = np.frombuffer(SECRET, np.uint8)
    return directory


# ------------------------------------------------------------------- checkpoints


def test_every_cut_and_flip_of_every_file_of_a_checkpoint_is_found(saved, tmp_path):
    """Cuts at five places each, and 200 flips of a bit."""
    (original,) = (saved / "run").iterdir()
    path = tmp_path / original.name
    shutil.copytree(original, path)
    files = sorted(file for file in path.rglob("*") if file.is_file())
    assert len(files) >= 10

    def assert_found(file, content):
        whole = file.read_bytes()
        file.write_bytes(content)
        # A flip in the manifest may look like another name of any file.
        name = "" if file.name == "manifest.json" else file.name
        with pytest.warns(UserWarning, match=f"damaged.*{name}"):
            assert newest(tmp_path) is None
        file.write_bytes(whole)

    rng = np.random.default_rng(0)
    for file in files:
        content = file.read_bytes()
        for share in (0, 0.01, 0.25, 0.5, 0.999):
            assert_found(file, content[: int(share * len(content))])
    sizes = np.array([file.stat().st_size for file in files])
    for number in rng.choice(len(files), size=200, p=sizes / sizes.sum()):
        content = bytearray(files[number].read_bytes())
        content[rng.integers(len(content))] ^= 1 << rng.integers(8)
        assert_found(files[number], content)
    assert newest(tmp_path) == path


@pytest.mark.parametrize(
    "manifest",
    [
        {"sha256": {}},
        {"sha256": {"../../secret": "0", "/etc/passwd": "0"}},
        {"sha256": [["agent.keras", "0"]]},
        {"sha256": 3},
        [],
    ],
)
def test_a_manifest_that_leaves_files_out_or_points_elsewhere_is_refused(
    saved, tmp_path, manifest
):
    shutil.copytree(saved / "run", tmp_path / "run")
    (path,) = (tmp_path / "run").iterdir()
    (path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.warns(UserWarning, match="Skipping a damaged checkpoint"):
        assert newest(tmp_path / "run") is None


def test_files_of_two_checkpoints_are_not_mixed(saved, tmp_path):
    """Weights of one moment with the memory of another."""
    shutil.copytree(saved / "run", tmp_path / "run")
    (path,) = (tmp_path / "run").iterdir()
    memory = ReplayMemory.load(path / "memory")
    memory.break_chains()
    shutil.rmtree(path / "memory")
    memory.save(path / "memory")
    with pytest.warns(UserWarning, match="has changed since it was written"):
        assert newest(tmp_path / "run") is None


def test_a_checkpoint_holds_no_secrets_and_obeys_umask(saved):
    hidden = [os.getcwd(), os.path.expanduser("~"), os.uname().nodename]
    hidden = [text.encode() for text in hidden if len(text) > 4]
    for file in (saved / "run").rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            assert not any(text in content for text in hidden), file
            assert file.stat().st_mode & 0o022 == 0


def test_a_checkpoint_of_another_format_names_both(saved, tmp_path):
    shutil.copytree(saved / "run", tmp_path / "run")
    (path,) = (tmp_path / "run").iterdir()
    from keras_rl2x import plain
    from keras_rl2x.callbacks import checkpoint

    plain.write(path / "run", {**plain.read(path / "run"), "format": 2})
    (path / "manifest.json").unlink()
    checkpoint._write_manifest(path)
    agent = CASE.light(5)
    before = digest(agent)
    with pytest.raises(ValueError, match="format 2.* reads format 1"):
        agent.fit(CASE.env(), resume=tmp_path / "run", verbose=0)
    assert digest(agent) == before


# ------------------------------------------------------------------ weights, HDF5


def external(file, name, saved):
    shape, dtype, size = file[name].shape, file[name].dtype, file[name].nbytes
    del file[name]
    source = [(str(saved / "secret"), 0, size)]
    file.create_dataset(name, shape=shape, dtype=dtype, external=source)


def external_link(file, name, saved):
    del file[name]
    file[name] = h5py.ExternalLink(str(saved / "other.h5"), "x")


def soft_link(file, name, saved):
    del file[name]
    file[name] = h5py.SoftLink("/")


def virtual(file, name, saved):
    shape, dtype = file[name].shape, file[name].dtype
    del file[name]
    layout = h5py.VirtualLayout(shape, dtype)
    layout[...] = h5py.VirtualSource(str(saved / "other.h5"), "x", shape, dtype)
    file.create_virtual_dataset(name, layout)


def shape_bomb(file, name, saved):
    dtype = file[name].dtype
    del file[name]
    file.create_dataset(name, shape=(10**13,), dtype=dtype, chunks=(1024,))


def refused(saved, tmp_path, change):
    """Changes the weights' file and loads it; returns the error's text."""
    path = tmp_path / "changed.weights.h5"
    shutil.copy(saved / "agent.weights.h5", path)
    with h5py.File(path, "a") as file:
        names = []
        file.visit(names.append)
        change(file, names)
    agent = CASE.light(5)
    before, start = digest(agent), time.monotonic()
    with pytest.raises(ValueError) as caught:
        agent.load_weights(path)
    assert time.monotonic() - start < 10
    assert digest(agent) == before
    assert b"nobody is to read".decode() not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("which", ["layers/functional/", "vars/state"])
@pytest.mark.parametrize(
    "harm", [external, external_link, soft_link, virtual, shape_bomb]
)
def test_a_weights_file_cannot_read_other_files_or_fill_the_memory(
    saved, tmp_path, harm, which
):
    def change(file, names):
        fitting = [
            name
            for name in names
            if which in name and isinstance(file[name], h5py.Dataset)
        ]
        harm(file, fitting[0], saved)

    assert refused(saved, tmp_path, change)


@pytest.mark.parametrize(
    "change",
    [
        {"progress": {"env_steps": "many"}},
        {"progress": {}},
        {"streams": 3},
        {"streams": {"explore": {}, "sample": {}}},
        {"seeds": [[1]]},
        {"spaces": {"observation": {"class": "os.system"}, "action": None}},
        {"networks": 3},
        "[1]",
        "NaN",
        '{"a": 1e999}',
        '{"progress": 1, "progress": 2}',
        "[" * 100_000,
        "",
    ],
    ids=lambda change: str(change)[:30],
)
def test_a_state_that_no_agent_wrote_is_refused(saved, tmp_path, change):
    def replace(file, names):
        (name,) = [name for name in names if name.endswith("vars/state")]
        state = json.loads(bytes(file[name][()]))
        del file[name]
        text = change if isinstance(change, str) else json.dumps({**state, **change})
        file[name] = np.frombuffer(text.encode(), np.uint8)

    text = refused(saved, tmp_path, replace)
    assert "nothing was loaded. The agent's state in it is damaged" in text


# ------------------------------------------------------------------ whole agents


class Bomb:
    def __init__(self, canary):
        self.canary = canary

    def __reduce__(self):
        return os.mkdir, (str(self.canary),)


def harmful(canary):
    """Configs that would run code."""
    command = f"mkdir {canary}"
    code = keras.saving.serialize_keras_object(
        keras.layers.Lambda(eval(f"lambda x: __import__('os').system({command!r})"))
    )
    call = {"config": {"command": command}, "registered_name": None}
    return {
        "lambda layer": code,
        "module": {"module": "os", "class_name": "system", **call},
        "builtin": {"module": "builtins", "class_name": "exec", **call},
        "keras tool": {
            "module": "keras.utils",
            "class_name": "get_file",
            "config": {"origin": f"file://{canary}"},
            "registered_name": None,
        },
        "saved model": {
            "module": "keras.layers",
            "class_name": "TFSMLayer",
            "config": {"filepath": str(canary)},
            "registered_name": None,
        },
    }


PLACES = (("config", "network"), ("compile_config", "exploration"))
HARM = ("lambda layer", "module", "builtin", "keras tool", "saved model")


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place[1])
@pytest.mark.parametrize("kind", HARM)
def test_loading_an_agent_runs_no_code(saved, tmp_path, kind, place):
    canary, path = tmp_path / "canary", tmp_path / "agent.keras"
    with zipfile.ZipFile(saved / "agent.keras") as source:
        contents = {name: source.read(name) for name in source.namelist()}
    config = json.loads(contents["config.json"])
    part, name = place
    assert name in config[part]
    config[part][name] = harmful(canary)[kind]
    contents["config.json"] = json.dumps(config)
    with zipfile.ZipFile(path, "w") as target:
        for name, content in contents.items():
            target.writestr(name, content)
    with pytest.raises((ValueError, TypeError, ImportError)):
        keras.saving.load_model(path)
    assert not canary.exists()
    assert sorted(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["agent.keras", "agent.weights.h5"])
def test_a_pickle_in_place_of_an_agent_is_not_run(saved, tmp_path, name):
    canary, path = tmp_path / "canary", tmp_path / name
    path.write_bytes(pickle.dumps(Bomb(canary)))
    agent = CASE.light(5)
    with pytest.raises((ValueError, OSError)):
        agent.load_weights(path)
    with pytest.raises((ValueError, OSError)):
        keras.saving.load_model(path)
    assert not canary.exists()
