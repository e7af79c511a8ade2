"""One-hot encoding of integer observations."""

from typing import Any

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="keras_rl2x")
class OneHot(keras.layers.Layer):
    """Integers `start ... start + n - 1` as rows with a single one.

    Args:
        sizes: list of int, how many values each component takes.
        starts: list of int, the lowest value of each; defaults to zeros.

    Input shape: `[B]` (one component) or `[B, len(sizes)]`.
    Output shape: `[B, sum(sizes)]`.
    """

    def __init__(self, sizes: Any, starts: Any = None, **kwargs: Any):
        super().__init__(**kwargs)
        self.sizes = [int(size) for size in sizes]
        starts = [0] * len(self.sizes) if starts is None else starts
        self.starts = [int(start) for start in starts]

    def call(self, values):
        values = ops.reshape(values, (-1, len(self.sizes)))
        columns = [
            ops.one_hot(
                ops.cast(values[:, i], "int32") - start, size, dtype=self.compute_dtype
            )
            for i, (size, start) in enumerate(zip(self.sizes, self.starts, strict=True))
        ]
        return ops.concatenate(columns, axis=-1)

    def compute_output_shape(self, input_shape):
        return (input_shape[0], sum(self.sizes))

    def get_config(self):
        return {**super().get_config(), "sizes": self.sizes, "starts": self.starts}
