"""From the networks' action range to the env's."""

from typing import Any

import keras
import numpy as np
from keras import ops


@keras.saving.register_keras_serializable(package="keras_rl2x")
class ActionRescaling(keras.layers.Layer):
    """Affine map of `[-1, 1]` to `[low, high]`, per dimension, clipped.

    `a = low + (x + 1) / 2 * (high - low)`

    Args:
        low: list of float, any shape.
        high: list of float, same shape.

    Input and output shape: `[B, *shape of low]`.
    """

    def __init__(self, low: Any, high: Any, **kwargs: Any):
        super().__init__(**kwargs)
        self.low = np.asarray(low, np.float32).tolist()
        self.high = np.asarray(high, np.float32).tolist()

    def call(self, action):
        low = ops.cast(self.low, "float32")
        high = ops.cast(self.high, "float32")
        unit = ops.clip(ops.cast(action, "float32"), -1.0, 1.0)
        # Clipped once more: rounding may leave the range by one bit.
        return ops.clip(low + (unit + 1.0) / 2.0 * (high - low), low, high)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {**super().get_config(), "low": self.low, "high": self.high}
