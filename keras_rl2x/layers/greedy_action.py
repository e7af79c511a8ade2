"""The greedy choice, as part of an exported policy."""

from typing import Any

import keras
import tensorflow as tf


@keras.saving.register_keras_serializable(package="keras_rl2x")
class GreedyAction(keras.layers.Layer):
    """Index of the highest allowed Q-value, counted from `start`.

    `tf.argmax` on purpose: with `keras.ops.argmax` the ONNX export reports success
    and writes an invalid model.

    Args:
        start: int, the lowest action of the env's space.

    Call arguments:
        q_values: `[B, A]` float.
        action_mask: `[B, A]` bool or `None`.

    Output shape: `[B]` int64.
    """

    def __init__(self, start: int = 0, **kwargs: Any):
        super().__init__(**kwargs)
        self.start = int(start)

    def call(self, q_values, action_mask=None):
        if action_mask is not None:
            q_values = tf.where(
                tf.cast(action_mask, tf.bool), q_values, q_values.dtype.min
            )
        return tf.argmax(q_values, axis=-1) + self.start

    def compute_output_spec(self, q_values, action_mask=None):
        return keras.KerasTensor(q_values.shape[:-1], "int64")

    def get_config(self):
        return {**super().get_config(), "start": self.start}
