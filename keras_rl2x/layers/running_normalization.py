"""Observations brought to mean 0 and variance 1."""

from typing import Any

import keras
from keras import ops

from keras_rl2x.ops.checks import check_number
from keras_rl2x.ops.checks import check_whole


@keras.saving.register_keras_serializable(package="keras_rl2x")
class RunningNormalization(keras.layers.Layer):
    """Normalises each entry by its mean and variance in all that was trained on.

    `y = clip((x - mean) / sqrt(variance + epsilon), -clip, clip)`

    The statistics are weights: they are saved, resumed and exported with the network,
    and blended into target networks. They follow the data with `training=True` only, so
    acting and evaluating leave them alone. Unlike `BatchNormalization` the same
    observation gives the same output whatever else is in its minibatch, and unlike
    `Normalization` nothing has to be seen before training.

    Source: Chan, Golub and LeVeque, 1979 (joining two sets of moments); Andrychowicz
    et al., 2021 (what it does for on-policy agents).

    Args:
        clip: float, largest absolute output; lower tames outliers.
        window: int, rows after which old ones begin to fade; lower follows data that
            change, higher is steadier.
        epsilon: float, added to the variance; keeps entries that never change at 0.

    Raises:
        ValueError: for numbers that are not well above 0.

    Example:
    ```python
    network = keras.Sequential(
        [RunningNormalization(), keras.layers.Dense(64, "relu"), keras.layers.Dense(2)]
    )
    agent = DQN(network)
    ```
    """

    def __init__(
        self,
        clip: float = 10.0,
        window: int = 1_000_000,
        epsilon: float = 1e-8,
        **kwargs: Any,
    ):
        # Rounded to half precision, large observations would all be the same.
        super().__init__(autocast=False, **kwargs)
        self.clip = check_number("clip", clip, 1e-3)
        self.window = check_whole("window", window)
        self.epsilon = check_number("epsilon", epsilon, 1e-12)

    def build(self, input_shape: tuple) -> None:
        """Makes the statistics, one per entry of an observation."""
        shape = tuple(input_shape[1:])
        fixed = {
            "initializer": "zeros",
            "trainable": False,
            "dtype": "float32",
            "autocast": False,
        }
        # Sums over `count` rows, for means would be blended wrongly: a target network
        # that has seen nothing would count as if it knew the mean to be 0.
        self.count = self.add_weight((), name="count", **fixed)
        self.total = self.add_weight(shape, name="total", **fixed)
        self.spread = self.add_weight(shape, name="spread", **fixed)

    @property
    def mean(self) -> Any:
        """Mean of each entry; 0 before any has been seen."""
        return self.total / ops.maximum(self.count, 1e-6)

    @property
    def variance(self) -> Any:
        """Variance of each entry; 1 before any has been seen."""
        seen = self.count > 0.0
        return ops.where(seen, self.spread / ops.maximum(self.count, 1e-6), 1.0)

    def call(self, inputs: Any, training: bool = False) -> Any:
        """`[B, ...]` to the same shape, by the statistics with these rows in them."""
        x = ops.cast(inputs, "float32")
        if training:
            self._follow(x)
        y = (x - self.mean) * ops.rsqrt(self.variance + self.epsilon)
        return ops.cast(ops.clip(y, -self.clip, self.clip), self.compute_dtype)

    def _follow(self, x: Any) -> None:
        """Joins the moments of a minibatch with those of all before."""
        rows = ops.cast(ops.shape(x)[0], "float32")
        share = rows / (self.count + rows)
        mean, variance = ops.moments(x, axes=0)
        shift = mean - self.mean
        between = share * (1.0 - share) * ops.square(shift)
        new_mean = self.mean + share * shift
        new_variance = (1.0 - share) * self.variance + share * variance + between
        count = ops.minimum(self.count + rows, float(self.window))
        self.count.assign(count)
        self.total.assign(count * new_mean)
        self.spread.assign(count * new_variance)

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        """As the input."""
        return input_shape

    def get_config(self) -> dict[str, Any]:
        """What the constructor was given."""
        return {
            **super().get_config(),
            "clip": self.clip,
            "window": self.window,
            "epsilon": self.epsilon,
        }
