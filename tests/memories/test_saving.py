import json
import pickle
import tracemalloc

import numpy as np
import pytest

from keras_rl2x import ReplayMemory
from keras_rl2x.memories import storage
from tests.memories.reference import Experience
from tests.memories.reference import to_step


def make(kind, capacity=23, count=30, columns=2, seed=0):
    """A memory of some kind, and a function that gives it more experience."""
    rng = np.random.default_rng(seed)
    experience = Experience(rng, columns)

    def encode(ids):
        ids = np.array(ids)
        if kind == "dict":
            return {"a": ids[:, None].astype(np.float32), "b": ids}
        if kind == "frames":
            return (ids[:, None, None] + np.arange(4)[:, None]).astype(np.uint16)
        return ids[:, None].astype(np.float32)

    def mask(ids):
        return np.array(ids)[:, None] % 5 != np.arange(5)

    memory = ReplayMemory(capacity, frame_stack=4 if kind == "frames" else None)

    def steps(number):
        for _ in range(number):
            rows = [experience.step(column) for column in range(columns)]
            yield to_step(rows, encode, mask if kind == "masks" else None)

    for step in steps(count):
        memory.add(step)
    return memory, steps


def assert_equal(one, other):
    assert len(one) == len(other)
    for n_step in (1, 3):
        left, right = (
            memory.sample(200, rng=np.random.default_rng(5), n_step=n_step)
            for memory in (one, other)
        )
        for field, a, b in zip(left._fields, left, right, strict=True):
            a, b = (x if isinstance(x, dict) else {"": x} for x in (a, b))
            for name, part in a.items():
                np.testing.assert_array_equal(part, b[name], err_msg=field)
                assert getattr(part, "dtype", None) == getattr(b[name], "dtype", None)


@pytest.mark.parametrize("count", [3, 30])  # partly full, and round the ring
@pytest.mark.parametrize("kind", ["vector", "dict", "frames", "masks"])
def test_a_loaded_memory_is_the_same_and_goes_on_the_same(kind, count, tmp_path):
    memory, steps = make(kind, count=count)
    memory.save(tmp_path / "memory")
    loaded = ReplayMemory.load(str(tmp_path / "memory"))
    assert loaded.get_config() == memory.get_config()
    assert loaded.nbytes == memory.nbytes
    assert_equal(memory, loaded)
    for step in steps(30):
        memory.add(step)
        loaded.add(step)
    assert_equal(memory, loaded)


def test_saving_changes_nothing_and_needs_no_pickle(tmp_path):
    memory, _ = make("dict")
    twin, _ = make("dict")
    memory.save(tmp_path)
    assert_equal(memory, twin)
    files = list(tmp_path.iterdir())
    assert {f.suffix for f in files} == {".npy", ".json"}
    for file in files:
        if file.suffix == ".npy":
            np.load(file, allow_pickle=False)


def test_only_what_is_in_use_is_written(tmp_path):
    memory, _ = make("vector", capacity=100_000, count=10, columns=1)
    memory.save(tmp_path)
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 5_000
    assert len(ReplayMemory.load(tmp_path)) == 10


def test_the_config_makes_an_empty_memory():
    memory, _ = make("frames")
    copy = ReplayMemory.from_config(json.loads(json.dumps(memory.get_config())))
    assert (copy.capacity, copy.frame_stack, len(copy)) == (23, 4, 0)


def test_saving_over_another_memory_replaces_it(tmp_path):
    make("dict")[0].save(tmp_path)
    memory, _ = make("vector", count=4)
    memory.save(tmp_path)
    assert_equal(memory, ReplayMemory.load(tmp_path))


# -------------------------------------------------------------------- in pieces


@pytest.mark.parametrize("kind", ["vector", "dict", "frames", "masks"])
def test_unchanged_frames_are_linked_and_every_save_is_whole(
    kind, tmp_path, monkeypatch
):
    """Twenty saves of a ring that goes round several times, in files of few rows."""
    monkeypatch.setattr(storage, "PART", 64)
    memory, steps = make(kind, capacity=150, count=2)
    linked, earlier = 0, None
    for number, count in enumerate(np.random.default_rng(0).integers(1, 40, size=20)):
        for step in steps(count):
            memory.add(step)
        directory = tmp_path / str(number)
        memory.save(directory, earlier)
        files = [file.stat() for file in directory.glob("frames_*")]
        linked += sum(file.st_nlink > 1 for file in files)
        assert_equal(memory, ReplayMemory.load(directory))
        if number == 10:
            # Another object with the same history is another memory.
            memory = ReplayMemory.load(directory)
            memory.save(tmp_path / "other", directory)
            others = (tmp_path / "other").glob("*.npy")
            assert {file.stat().st_nlink for file in others} == {1}
        earlier = directory
    assert linked > 50


def test_a_part_of_many_is_found_damaged(tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "PART", 64)
    memory, _ = make("vector", capacity=100, count=50)
    memory.save(tmp_path)
    path = tmp_path / "frames_observation-000003.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"observation-000003.npy' is .*has changed"):
        ReplayMemory.load(tmp_path)


def test_neither_saving_nor_loading_makes_a_second_copy(tmp_path):
    memory = ReplayMemory(1_000)
    frames = np.zeros((1_001, 10_000), np.uint8)
    memory.add_episode(frames, np.zeros(1_000, int), np.zeros(1_000), terminated=True)
    assert memory.nbytes > 10_000_000
    tracemalloc.start()
    try:
        memory.save(tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 0.2 * memory.nbytes
        loaded = ReplayMemory.load(tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 1.2 * loaded.nbytes
    finally:
        tracemalloc.stop()


# ------------------------------------------------------------------- damaged files


def test_a_flip_of_any_byte_is_found(tmp_path):
    """Also in the numbers of an array and in those of `memory.json`."""
    make("vector", capacity=5, count=3)[0].save(tmp_path)
    rng = np.random.default_rng(0)
    for path in sorted(tmp_path.iterdir()):
        content = path.read_bytes()
        for position in rng.integers(len(content), size=12):
            flipped = bytearray(content)
            flipped[position] ^= 1 << rng.integers(8)
            path.write_bytes(flipped)
            with pytest.raises(ValueError, match=path.name):
                ReplayMemory.load(tmp_path)
        path.write_bytes(content)
    ReplayMemory.load(tmp_path)


def cut(path):
    path.write_bytes(path.read_bytes()[:-5])


def empty(path):
    path.write_bytes(b"")


def remove(path):
    path.unlink()


def noise(path):
    path.write_bytes(b"\x00\xff" * 100)


def foreign(path):
    np.save(path, np.zeros((3, 3)))


def pickled(path):
    path.write_bytes(pickle.dumps(np.zeros(3)))


def objects(path):
    np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True)


@pytest.mark.parametrize(
    "damage", [cut, empty, remove, noise, foreign, pickled, objects]
)
@pytest.mark.parametrize("name", ["frames_observation", "reward", "obs_row"])
def test_a_damaged_array_is_named(name, damage, tmp_path):
    make("vector")[0].save(tmp_path)
    damage(tmp_path / f"{name}.npy")
    with pytest.raises(ValueError, match=rf"{name}\.npy' (is missing or damaged|does)"):
        ReplayMemory.load(tmp_path)


def test_a_pickle_is_never_run(tmp_path):
    """Loading a file from elsewhere must not run what it says."""

    class Bomb:
        def __reduce__(self):
            return open, (str(tmp_path / "exploded"), "w")

    make("vector")[0].save(tmp_path)
    array = np.array([Bomb()], dtype=object)
    np.save(tmp_path / "reward.npy", array, allow_pickle=True)
    with pytest.raises(ValueError, match="reward.npy"):
        ReplayMemory.load(tmp_path)
    (tmp_path / "reward.npy").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(ValueError, match="reward.npy"):
        ReplayMemory.load(tmp_path)
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "3", "null", "{}", '{"config": {"capacity": 5}}', "\xff"]
)
def test_damaged_facts_are_named(text, tmp_path):
    make("vector")[0].save(tmp_path)
    (tmp_path / "memory.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match=r"memory\.json' is damaged"):
        ReplayMemory.load(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"columns": 0},
        {"columns": 3},
        {"count": [15]},
        {"count": [10**9, 10**9]},
        {"oldest": [-3, 0]},
        {"oldest": [10**9, 0]},
        {"row": ["a", "b"]},
        {"stack": 0},
        {"spec": {"observation": [[1], "no dtype"]}},
        {"action_spec": [[], "O"]},
        {"config": {"capacity": 0, "frame_stack": None}},
        {"config": {"capacity": 23, "unknown": 1}},
        {"config": {"capacity": 10**15, "frame_stack": None}},
        {"columns": 10**30},
        {"row": [10**30, 0]},
        {"axis": "1"},
        {"sha256": {}},
    ],
)
def test_facts_that_contradict_the_arrays_are_refused(change, tmp_path):
    make("vector")[0].save(tmp_path)
    path = tmp_path / "memory.json"
    facts = {**json.loads(path.read_text()), **change}
    # By somebody who knows how the sum is made.
    path.write_text(json.dumps({**facts, "sum": storage._sum_of(facts)}))
    refused = (ValueError, MemoryError)
    with pytest.raises(refused, match=r"memory|capacity") as caught:
        ReplayMemory.load(tmp_path)
    assert "since it was written" not in str(caught.value)


@pytest.mark.parametrize("where", ["nothing-here", "file"])
def test_a_place_without_a_memory_is_named(where, tmp_path):
    (tmp_path / "file").write_text("hello")
    with pytest.raises(ValueError, match=rf"No saved memory at .*{where}.*save"):
        ReplayMemory.load(tmp_path / where)
