"""Static shape checks shared by the ops: wrong ranks broadcast silently."""

from keras import ops


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
