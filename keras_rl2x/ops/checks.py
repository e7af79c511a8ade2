"""Checks of arguments: numbers, and static shapes (wrong ranks broadcast silently)."""

import math
import numbers
import sys
import warnings
from typing import Any

from keras import ops


def warn(text: str) -> None:
    """Warns at the line of the user's code that led here, whatever lies between."""
    level, frame = 1, sys._getframe()
    while frame and _is_ours(frame.f_globals.get("__name__", "")):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, stacklevel=level)


def _is_ours(module: str) -> bool:
    return module.split(".")[0] in ("keras_rl2x", "keras")


def check_whole(name: str, value: Any, minimum: int = 1) -> int:
    """Raises unless a value is a whole number of at least `minimum`.

    Raises:
        ValueError: naming the argument.
    """
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not whole or value < minimum:
        raise ValueError(
            f"`{name}` must be a whole number, at least {minimum}. Received: {value!r}."
        )
    return int(value)


def check_number(
    name: str, value: Any, minimum: float = -math.inf, maximum: float = math.inf
) -> float:
    """Raises unless a value is a finite number in `[minimum, maximum]`.

    Raises:
        ValueError: naming the argument.
    """
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not minimum <= value <= maximum:
        bounds = {
            (True, True): "a finite number",
            (True, False): f"a finite number of at most {maximum:g}",
            (False, True): f"a finite number of at least {minimum:g}",
            (False, False): f"a number in [{minimum:g}, {maximum:g}]",
        }[minimum == -math.inf, maximum == math.inf]
        raise ValueError(f"`{name}` must be {bounds}. Received: {value!r}.")
    return float(value)


def check_shapes(**expected: tuple) -> None:
    """Checks ranks and equal dimensions of named arrays.

    Each value is `(array, names)`, where `names` is a string with one letter per
    axis: the same letter stands for the same size in all arrays.

    Raises:
        ValueError: naming the array and the shape that came.
    """
    sizes: dict[str, tuple[int, str]] = {}
    for name, (array, axes) in expected.items():
        shape = tuple(ops.shape(array)) if not hasattr(array, "shape") else array.shape
        shape = tuple(shape)
        if len(shape) != len(axes):
            raise ValueError(
                f"`{name}` must have shape [{', '.join(axes)}] "
                f"({len(axes)} axes). Received shape: {shape}."
            )
        for axis, size in zip(axes, shape, strict=True):
            if size is None:
                continue
            known, owner = sizes.setdefault(axis, (size, name))
            if known != size:
                raise ValueError(
                    f"`{name}` and `{owner}` disagree on axis {axis}: "
                    f"{size} against {known}. Received `{name}` of shape {shape}."
                )
