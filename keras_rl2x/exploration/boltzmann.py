"""Boltzmann exploration."""

from typing import Any

import keras
import numpy as np

from keras_rl2x.exploration.exploration import Exploration
from keras_rl2x.exploration.schedule import ScheduledValue

COLDEST = 1e-8


@keras.saving.register_keras_serializable(package="keras_rl2x")
class Boltzmann(Exploration):
    """Actions in proportion to `exp(q / temperature)`.

    Source: Sutton, "Integrated architectures for learning, planning, and
    reacting", 1990.

    Args:
        temperature: float above 0, or a Keras schedule over env steps, in the
            unit of the Q-values. Higher is closer to uniform, lower to greedy.
    """

    actions = "discrete"

    def __init__(self, temperature: Any = 1.0):
        self.temperature = ScheduledValue(temperature, "temperature", minimum=COLDEST)

    def __call__(self, policy, step, rng, action_mask=None):
        # A schedule may end at zero, which is greedy.
        temperature = max(self.temperature(step), COLDEST)
        scaled = np.asarray(policy(), np.float64) / temperature
        if action_mask is not None:
            scaled = np.where(action_mask, scaled, -np.inf)
        # Gumbel-max: a sample of the softmax that cannot overflow.
        noise = rng.gumbel(size=scaled.shape)
        return np.argmax(scaled + noise, axis=-1)

    def values(self, step):
        return {"temperature": self.temperature(step)}

    def get_config(self):
        return {"temperature": self.temperature.serialize()}
