"""Plain data as text and bytes: what a run remembers, without pickle.

Numbers, strings, arrays, random generators, and lists, tuples, dicts and deques of
such. Reading them back can make nothing else, whatever a file says.
"""

import json
import math
import random
import tokenize
from collections import deque
from itertools import pairwise
from pathlib import Path
from typing import Any
from typing import NamedTuple

import numpy as np

KINDS = "biufcSUmM"  # of arrays: everything but objects
BIT_GENERATORS = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")
LARGEST_TEXT = 2**28  # bytes of JSON that are read


class NotPlain(TypeError):
    """Something cannot be written as plain data; the message says what and where."""


class Frozen(NamedTuple):
    """A copy of plain data.

    Attributes:
        text: JSON.
        data: `[bytes]` uint8, the contents of the arrays.
    """

    text: str
    data: np.ndarray


def freeze(tree: Any, name: str = "") -> Frozen:
    """Copies plain data, with what is shared in it.

    Args:
        tree: plain data.
        name: what to call it in the error message.

    Returns:
        Its copy, for `thaw`.

    Raises:
        NotPlain: naming the part that is something else.
    """
    writer = _Writer()
    text = json.dumps(writer.encode(tree, name), allow_nan=False)
    writer.check_memory(name)
    data = np.frombuffer(b"".join(writer.parts), np.uint8)
    return Frozen(text, data)


def thaw(frozen: Frozen) -> Any:
    """The data that `freeze` was given.

    Raises:
        ValueError: if it is damaged.
    """
    try:
        return _Reader(frozen.data).decode(read_json(frozen.text))
    except (TypeError, KeyError, IndexError, AttributeError, OverflowError) as error:
        raise ValueError(f"This is not plain data as it was written: {error}") from None


def write(path: Path, tree: Any) -> None:
    """Writes plain data as `path.json` and `path.npy`."""
    frozen = freeze(tree, path.name)
    path.with_suffix(".json").write_text(frozen.text, "utf-8")
    np.save(path.with_suffix(".npy"), frozen.data, allow_pickle=False)


def read(path: Path) -> Any:
    """Reads what `write` wrote.

    Raises:
        ValueError: naming the file that is missing or damaged.
    """
    text, data = path.with_suffix(".json"), path.with_suffix(".npy")
    try:
        array = np.load(data, mmap_mode="r", allow_pickle=False)
        return thaw(Frozen(read_text(text), array))
    except (OSError, ValueError, EOFError, tokenize.TokenError) as error:
        raise ValueError(
            f"{str(text)!r} or its `.npy` file is missing or damaged: {error}"
        ) from None


def read_text(path: Path) -> str:
    """The text of a file of reasonable size."""
    if path.stat().st_size > LARGEST_TEXT:
        raise ValueError(f"it is larger than {LARGEST_TEXT >> 20} MiB")
    return path.read_text("utf-8")


def read_json(text: str | bytes) -> Any:
    """Strict JSON: no NaN, no infinity, no name twice, no depth without end.

    Raises:
        ValueError: for anything else.
    """
    try:
        return json.loads(
            text,
            parse_constant=_refuse,
            parse_float=_finite,
            object_pairs_hook=_unique,
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:20]} is no finite number")
    return value


def _unique(pairs: list) -> dict:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a name comes twice")
    return dict(pairs)


class _Writer:
    """Encodes a tree; an object that comes again becomes a number."""

    def __init__(self):
        self.parts = [b"\0"]  # a file without content cannot be mapped
        self._size = 1
        self._seen: dict[int, int] = {}
        self._kept: list[Any] = []  # or another object could get the same id

    def encode(self, value: Any, name: str) -> Any:
        kind = type(value)
        if value is None or kind in (bool, int, str):
            return value
        if kind is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if isinstance(value, np.generic):
            return {"scalar": self._array(np.asarray(value), name)}
        if id(value) in self._seen:
            return {"same": self._seen[id(value)]}
        if kind is not tuple:
            self._seen[id(value)] = len(self._seen)
            self._kept.append(value)
        return self._encode_object(kind, value, name)

    def _encode_object(self, kind: type, value: Any, name: str) -> Any:
        if kind is list:
            return {"list": self._items(value, name)}
        if kind is tuple:
            return {"tuple": self._items(value, name)}
        if kind is deque:
            return {"deque": [self._items(value, name), value.maxlen]}
        if kind is dict:
            pairs = [
                [self.encode(key, name), self.encode(part, f"{name}.{key}")]
                for key, part in value.items()
            ]
            return {"dict": pairs}
        if kind is np.ndarray:
            return {"array": self._array(value, name)}
        if kind is np.random.Generator:
            state = value.bit_generator.state
            if state["bit_generator"] in BIT_GENERATORS:
                return {"generator": self.encode(state, name)}
        if kind is random.Random:
            return {"random": self.encode(value.getstate(), name)}
        raise NotPlain(f"`{name}` is a {kind.__module__}.{kind.__qualname__}")

    def _items(self, values: Any, name: str) -> list:
        return [self.encode(value, f"{name}[{i}]") for i, value in enumerate(values)]

    def _array(self, array: np.ndarray, name: str) -> list:
        if array.dtype.kind not in KINDS:
            raise NotPlain(f"`{name}` is an array of {array.dtype}")
        begin = self._size
        self.parts.append(array.tobytes())
        self._size += len(self.parts[-1])
        return [array.dtype.str, list(array.shape), begin]

    def check_memory(self, name: str) -> None:
        """Raises for arrays that lie in each other: copies would part them."""
        arrays = [value for value in self._kept if type(value) is np.ndarray]
        bounds = sorted(
            _bounds(array)
            for array in arrays
            if array.flags.writeable and array.size > 0
        )
        if any(begin < end for (_, end), (begin, _) in pairwise(bounds)):
            raise NotPlain(f"`{name}` holds arrays that share their memory")


def _bounds(array: np.ndarray) -> tuple[int, int]:
    """Addresses between which an array lies."""
    low = high = array.__array_interface__["data"][0]
    for size, stride in zip(array.shape, array.strides, strict=True):
        low += min(0, (size - 1) * stride)
        high += max(0, (size - 1) * stride)
    return low, high + array.itemsize


class _Reader:
    """Decodes what `_Writer` encoded."""

    def __init__(self, data: np.ndarray):
        if data.dtype != np.uint8 or data.ndim != 1:
            raise ValueError("its data is no row of bytes")
        self._data = data
        self._made: list[Any] = []

    def decode(self, value: Any) -> Any:
        if value is None or type(value) in (bool, int, float, str):
            return value
        ((kind, content),) = value.items()
        if kind == "float":
            return {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[content]
        if kind == "scalar":
            return self._array(content)[()]
        if kind == "same":
            return self._made[content]
        if kind == "tuple":
            return tuple(self.decode(item) for item in content)
        place = len(self._made)
        self._made.append(None)
        return self._object(place, kind, content)

    def _object(self, place: int, kind: str, content: Any) -> Any:
        if kind == "list":
            made = self._made[place] = []
            made.extend(map(self.decode, content))
        elif kind == "deque":
            made = self._made[place] = deque(maxlen=content[1])
            made.extend(map(self.decode, content[0]))
        elif kind == "dict":
            made = self._made[place] = {}
            for key, part in content:
                made[self.decode(key)] = self.decode(part)
        elif kind == "array":
            made = self._made[place] = self._array(content)
        elif kind == "generator":
            made = self._made[place] = self._generator(self.decode(content))
        elif kind == "random":
            made = self._made[place] = random.Random()
            made.setstate(self.decode(content))
        else:
            raise ValueError(f"unknown kind {kind!r}")
        return made

    def _array(self, content: list) -> np.ndarray:
        dtype, shape, begin = np.dtype(content[0]), content[1], content[2]
        size = math.prod(shape) * dtype.itemsize
        within = 0 <= begin <= begin + size <= len(self._data)
        if dtype.kind not in KINDS or not within or min(shape, default=0) < 0:
            raise ValueError("an array lies outside of its data")
        part = self._data[begin : begin + size].tobytes()
        return np.frombuffer(part, dtype).reshape(shape).copy()

    @staticmethod
    def _generator(state: dict) -> np.random.Generator:
        if state["bit_generator"] not in BIT_GENERATORS:
            raise ValueError(f"unknown generator {state['bit_generator']!r}")
        bits = getattr(np.random, state["bit_generator"])()
        bits.state = state
        return np.random.Generator(bits)
