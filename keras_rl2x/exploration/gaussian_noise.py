"""Gaussian action noise."""

from typing import Any

import keras
import numpy as np

from keras_rl2x.exploration.exploration import Exploration
from keras_rl2x.exploration.schedule import ScheduledValue


@keras.saving.register_keras_serializable(package="keras_rl2x")
class GaussianNoise(Exploration):
    """The policy's action plus `N(0, stddev)`, clipped to the action range.

    Source: Fujimoto, van Hoof and Meger, "Addressing function approximation error
    in actor-critic methods", 2018.

    Args:
        stddev: float, or a Keras schedule over env steps, in units of the *half
            range* of each action: 0.1 is 0.2 N·m for a torque in `[-2, 2]`.
            Higher explores more.
    """

    actions = "continuous"

    def __init__(self, stddev: Any = 0.1):
        self.stddev = ScheduledValue(stddev, "stddev")

    def __call__(self, policy, step, rng, action_mask=None):
        action = policy()
        noise = rng.normal(0.0, self.stddev(step), action.shape)
        return np.clip(action + noise, -1.0, 1.0)

    def values(self, step):
        return {"noise_stddev": self.stddev(step)}

    def get_config(self):
        return {"stddev": self.stddev.serialize()}
