"""Plain data goes to text and bytes and back; nothing else does."""

import json
import math
import os
import pickle
import random
from collections import deque

import numpy as np
import pytest

from keras_rl2x import plain

VALUES = {
    "nothing": None,
    "numbers": [True, 7, -(2**127), 0.1, 1e-300, -0.0, math.inf, -math.inf],
    "text": "ä\n\"'",
    "containers": ((1, [2, {}]), {"a": (), 3: [None]}, deque([1, 2], maxlen=2)),
    "arrays": [
        np.arange(6.0).reshape(2, 3)[:, ::2],
        np.zeros((0, 3), np.uint8),
        np.array(5, np.int8),
        np.array(["ab", "c"]),
        np.array([np.nan, 1], np.float16),
    ],
    "scalars": [np.float32(0.1), np.float64(0.1), np.bool_(True), np.int64(3)],
}


def copy(value):
    return plain.thaw(plain.freeze(value))


def described(value):
    """Types and contents of everything in a tree."""
    if isinstance(value, dict):
        return {key: described(part) for key, part in value.items()}
    if isinstance(value, list | tuple | deque):
        parts = [described(part) for part in value]
        return type(value), getattr(value, "maxlen", None), parts
    if isinstance(value, np.ndarray | np.generic):
        return type(value), value.dtype, value.shape, value.tobytes()
    return type(value), repr(value)


@pytest.mark.parametrize("name", VALUES)
def test_plain_data_comes_back_with_types_and_bits(name):
    assert described(copy(VALUES[name])) == described(VALUES[name])


def test_files_hold_what_was_written(tmp_path):
    plain.write(tmp_path / "all", VALUES)
    assert described(plain.read(tmp_path / "all")) == described(VALUES)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["all.json", "all.npy"]


def test_generators_go_on_and_are_copies():
    generators = [
        np.random.default_rng(1),
        np.random.Generator(np.random.MT19937(2)),
        np.random.Generator(np.random.Philox(2)),
        random.Random(3),
    ]
    for generator in generators:
        generator.random()
    copies = copy(generators)
    expected = [[g.random() for _ in range(9)] for g in generators]
    assert [[g.random() for _ in range(9)] for g in copies] == expected


def test_what_is_shared_stays_shared():
    array, generator = np.zeros(3), np.random.default_rng(0)
    one, other, made = copy([[array, generator], {"a": array}, generator])
    assert one[0] is other["a"]
    assert one[1] is made
    assert copy(loop := []) == loop
    loop.append(loop)
    back = copy(loop)
    assert back[0] is back


def test_copies_do_not_change_with_the_original():
    array = np.zeros(3)
    frozen = plain.freeze([array])
    array += 1
    (back,) = plain.thaw(frozen)
    assert back.tolist() == [0, 0, 0]
    back += 1  # and can be written to


class Custom:
    pass


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": [1, Custom()]}, r"`env.a\[1\]` is a tests.test_plain.Custom"),
        (np.array([None]), "`env` is an array of object"),
        ({1, 2}, "builtins.set"),
        (len, "builtin_function"),
        (b"bytes", "bytes"),
    ],
)
def test_what_is_not_plain_is_named(value, text):
    with pytest.raises(plain.NotPlain, match=text):
        plain.freeze(value, "env")


def test_arrays_within_each_other_are_refused_and_neighbours_are_not():
    whole = np.zeros((4, 2))
    for parts in ([whole, whole[1:]], [whole[:3], whole[2:]], [whole, whole[::-1]]):
        with pytest.raises(plain.NotPlain, match="share their memory"):
            plain.freeze(parts)
    assert described(copy([whole[:2], whole[2:]])) == described([whole[:2]] * 2)


# ----------------------------------------------------------------- damaged, hostile


class Bomb:
    def __reduce__(self):
        return os.mkdir, (os.environ["CANARY"],)


NESTED = '{"list": [' * 100_000 + "]}" * 100_000


@pytest.mark.parametrize(
    "text",
    [
        "NaN",
        "[NaN]",
        "1e999",
        '{"float": "1e999"}',
        NESTED,
        '{"list": [], "list": [1]}',
        '{"os.system": "true"}',
        '{"list": 3}',
        '{"same": 7}',
        '{"dict": [[{"list": []}, 1]]}',
        '{"array": ["|O", [1], 0]}',
        '{"array": ["<f8", [1000000000000], 0]}',
        '{"array": ["<f8", [-1], 0]}',
        '{"array": ["<f8", [1], -8]}',
        '{"array": ["no", [1], 0]}',
        '{"array": []}',
        '{"scalar": ["<f8", [2], 99999]}',
        '{"generator": {"dict": [["bit_generator", "system"]]}}',
        '{"generator": {"dict": [["bit_generator", "PCG64"], ["state", 3]]}}',
        '{"random": {"tuple": [3, 1, 2]}}',
        "[]",
        "{",
        "",
    ],
    ids=lambda text: text[:30],
)
def test_text_that_was_never_written_is_refused(text):
    with pytest.raises(ValueError):
        plain.thaw(plain.Frozen(text, np.zeros(16, np.uint8)))


def test_a_pickle_in_place_of_the_data_is_not_loaded(tmp_path, monkeypatch):
    monkeypatch.setenv("CANARY", str(tmp_path / "canary"))
    plain.write(tmp_path / "run", [np.zeros(3)])
    for content in (pickle.dumps(Bomb()), b"", b"\x93NUMPY"):
        (tmp_path / "run.npy").write_bytes(content)
        with pytest.raises(ValueError, match=r"run.json.* or its"):
            plain.read(tmp_path / "run")
    np.save(tmp_path / "run.npy", np.array([Bomb()]), allow_pickle=True)
    with pytest.raises(ValueError, match=r"run.json.* or its"):
        plain.read(tmp_path / "run")
    assert not (tmp_path / "canary").exists()


def test_every_flip_of_a_byte_is_an_error_or_changes_a_value(tmp_path):
    """The text cannot be read as something that it does not say."""
    frozen = plain.freeze({"a": [1.5, np.arange(3)]})
    json.loads(frozen.text)
    for position in range(len(frozen.text)):
        text = frozen.text[:position] + "~" + frozen.text[position + 1 :]
        try:
            found = plain.thaw(frozen._replace(text=text))
        except ValueError:
            continue
        assert list(found) != ["a"]
