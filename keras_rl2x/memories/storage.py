"""What the memories share: sizes, and reading and writing of plain arrays."""

import hashlib
import json
import math
import os
import tokenize
from collections.abc import Callable
from pathlib import Path
from typing import Any
from typing import NamedTuple

import numpy as np

from keras_rl2x import plain

GIB = 2**30
FACTS = "memory.json"
PART = 2**24  # bytes of a file of a large array


def available_bytes() -> int | None:
    """Main memory that is free to use, or `None` where that is unknown."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            lines = dict(line.split(":", 1) for line in file)
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def check_fits(needed: int, what: str, remedy: str) -> None:
    """Raises `MemoryError` before an allocation that cannot fit."""
    free = available_bytes()
    if free is not None and needed > free:
        raise MemoryError(
            f"{what} needs {needed / GIB:.2f} GiB, but only {free / GIB:.2f} GiB of "
            f"main memory are free. {remedy}"
        )


class Part(NamedTuple):
    """A part of an array that has a file of its own.

    Attributes:
        file: its name.
        rows: along the second axis.
    """

    file: str
    rows: slice


def parts(name: str, shape: tuple, dtype: Any) -> list[Part]:
    """The files of an array: one, or several where it is large.

    Then those whose rows have not changed can be taken from an earlier save.
    """
    row = max(1, math.prod((shape[0], *shape[2:])) * np.dtype(dtype).itemsize)
    if row * shape[1] <= 2 * PART:
        return [Part(f"{name}.npy", slice(0, shape[1]))]
    step = max(1, PART // row)
    starts = range(0, shape[1], step)
    return [
        Part(f"{name}-{i:06d}.npy", slice(start, min(start + step, shape[1])))
        for i, start in enumerate(starts)
    ]


def write_arrays(
    directory: Path,
    arrays: dict[str, np.ndarray],
    facts: dict[str, Any],
    stamp: Callable[[str, slice], Any] = lambda name, rows: None,
    earlier: Path | None = None,
) -> None:
    """Writes named arrays as `.npy` files, and the facts with their sums last.

    Args:
        directory: path; created if missing.
        arrays: by name; the first two axes are columns and rows.
        facts: JSON-ready.
        stamp: says of a part of an array something that is another if its content is
            another; `None` if it cannot tell.
        earlier: directory of an earlier save with comparable stamps. Files with the
            same stamp are linked to those there in place of being written again.
    """
    directory.mkdir(parents=True, exist_ok=True)
    before = {} if earlier is None else read_facts(earlier)
    old, sums, stamps = before.get("stamps", {}), {}, {}
    for name, array in arrays.items():
        for file, rows in parts(name, array.shape, array.dtype):
            stamps[file] = stamp(name, rows)
            same = stamps[file] is not None and stamps[file] == old.get(file)
            if same and _link(earlier / file, directory / file):
                sums[file] = before["sha256"][file]
                continue
            np.save(directory / file, array[:, rows], allow_pickle=False)
            sums[file] = sha256(directory / file)
    facts = {**facts, "sha256": sums, "stamps": stamps}
    facts["sum"] = _sum_of(facts)
    (directory / FACTS).write_text(json.dumps(facts, indent=1))


def _link(source: Path, target: Path) -> bool:
    """Gives a file a second name; not every file system can."""
    try:
        os.link(source, target)
    except OSError:
        return False
    return True


def read_facts(directory: Path) -> dict[str, Any]:
    """Reads `memory.json`, with an error that says what is missing."""
    path = directory / FACTS
    if not path.is_file():
        raise ValueError(
            f"No saved memory at {str(directory)!r}: expected a directory with a "
            f"file `{FACTS}`, as `memory.save(directory)` writes it."
        )
    try:
        facts = plain.read_json(plain.read_text(path))
        if facts["sum"] != _sum_of(facts):
            raise ValueError("it has changed since it was written")
        return facts
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{str(path)!r} is damaged: {error}") from None


def read_array(
    directory: Path, name: str, target: np.ndarray, sums: dict[str, str]
) -> None:
    """Reads an array straight into its place, and checks every file of it.

    Raises:
        ValueError: naming the file that is missing, damaged or foreign.
    """
    for file, rows in parts(name, target.shape, target.dtype):
        path, place = directory / file, target[:, rows]
        try:
            if sha256(path) != sums[file]:
                raise ValueError("it has changed since it was written")
            mode = "r" if place.size else None
            array = np.load(path, mmap_mode=mode, allow_pickle=False)
        except (OSError, ValueError, EOFError, tokenize.TokenError) as error:
            raise ValueError(f"{str(path)!r} is missing or damaged: {error}") from None
        if array.shape != place.shape or array.dtype != place.dtype:
            raise ValueError(
                f"{str(path)!r} does not belong to this memory: expected "
                f"{place.shape} {place.dtype}, received {array.shape} {array.dtype}."
            )
        place[...] = array


def sha256(path: Path) -> str:
    """Sum of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sum_of(facts: dict[str, Any]) -> str:
    """Sum of everything in `memory.json` but itself."""
    content = {name: value for name, value in facts.items() if name != "sum"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
