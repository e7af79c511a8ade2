"""The dueling head."""

from typing import Any

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="keras_rl2x")
class DuelingHead(keras.layers.Layer):
    """Q-values from a state value and advantages.

    `q(s, a) = v(s) + A(s, a) - mean_a' A(s, a')`

    Source: Wang et al., "Dueling network architectures for deep reinforcement
    learning", 2015.

    Args:
        num_actions: int, number of Q-values.
        units: int or `None`, width of a hidden ReLU layer in each of the two
            streams; `None` for none.
        kernel_initializer: as in `keras.layers.Dense`.

    Input shape: `[B, features]`. Output shape: `[B, num_actions]`.

    Example:
    ```python
    network = keras.Sequential([
        keras.Input((4,)), keras.layers.Dense(64, "relu"), DuelingHead(2)])
    ```
    """

    def __init__(
        self,
        num_actions: int,
        units: int | None = None,
        kernel_initializer: Any = "glorot_uniform",
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if num_actions < 1:
            raise ValueError(
                f"`num_actions` must be at least 1. Received: {num_actions}."
            )
        self.num_actions, self.units = int(num_actions), units
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.value = self._stream(1, "value")
        self.advantage = self._stream(self.num_actions, "advantage")

    def _stream(self, outputs: int, name: str) -> keras.Sequential:
        def dense(units: int, activation: str | None) -> keras.layers.Dense:
            initializer = self.kernel_initializer
            # One initializer object would give equal streams where shapes agree.
            config = initializer.get_config()
            if config.get("seed") is not None:
                config["seed"] = config["seed"] + (1 if name == "advantage" else 0)
                initializer = type(initializer).from_config(config)
            else:
                initializer = initializer.clone()
            return keras.layers.Dense(units, activation, kernel_initializer=initializer)

        hidden = [] if self.units is None else [dense(self.units, "relu")]
        return keras.Sequential([*hidden, dense(outputs, None)], name=name)

    def build(self, input_shape):
        self.value.build(input_shape)
        self.advantage.build(input_shape)
        self.built = True

    def call(self, features):
        advantage = self.advantage(features)
        return (
            self.value(features)
            + advantage
            - ops.mean(advantage, axis=-1, keepdims=True)
        )

    def compute_output_shape(self, input_shape):
        return (*input_shape[:-1], self.num_actions)

    def get_config(self):
        return {
            **super().get_config(),
            "num_actions": self.num_actions,
            "units": self.units,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }
