"""What the memories share: sizes, and reading and writing of plain arrays."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

GIB = 2**30


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


def write_arrays(directory: Path, arrays: dict[str, np.ndarray], facts: dict) -> None:
    """Writes named arrays as `.npy` files and the facts as `memory.json`."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, array in arrays.items():
        np.save(directory / f"{name}.npy", array, allow_pickle=False)
    (directory / "memory.json").write_text(json.dumps(facts, indent=1))


def read_facts(directory: Path) -> dict[str, Any]:
    """Reads `memory.json`, with an error that says what is missing."""
    path = directory / "memory.json"
    if not path.is_file():
        raise ValueError(
            f"No saved memory at {str(directory)!r}: expected a directory with a "
            "file `memory.json`, as `memory.save(directory)` writes it."
        )
    try:
        return json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{str(path)!r} is damaged: {error}") from None


def read_array(directory: Path, name: str, shape: tuple, dtype: np.dtype) -> np.ndarray:
    """Reads one `.npy` file and checks it against what `memory.json` says."""
    path = directory / f"{name}.npy"
    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise ValueError(f"{str(path)!r} is missing or damaged: {error}") from None
    if array.shape != tuple(shape) or array.dtype != np.dtype(dtype):
        raise ValueError(
            f"{str(path)!r} does not belong to this memory: expected "
            f"{tuple(shape)} {dtype}, received {array.shape} {array.dtype}."
        )
    return array
