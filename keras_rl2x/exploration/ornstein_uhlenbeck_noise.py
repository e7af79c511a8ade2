"""Ornstein–Uhlenbeck action noise."""

from typing import Any

import keras
import numpy as np

from keras_rl2x.exploration.exploration import Exploration
from keras_rl2x.exploration.schedule import ScheduledValue
from keras_rl2x.ops.checks import check_number


@keras.saving.register_keras_serializable(package="keras_rl2x")
class OrnsteinUhlenbeckNoise(Exploration):
    """The policy's action plus noise that drifts back to zero.

    `x <- x - theta * x * dt + stddev * sqrt(dt) * N(0, 1)`

    Consecutive values are alike, which moves heavy things further than white
    noise does. It starts at zero in every episode.

    Source: Uhlenbeck and Ornstein, 1930; Lillicrap et al., 2015.

    Args:
        stddev: float, or a Keras schedule over env steps; diffusion, in units of
            the half range of each action. Higher explores more.
        theta: float above 0, pull towards zero. Higher forgets faster.
        dt: float above 0, time per step. Smaller is smoother; the spread in the
            long run, `stddev / sqrt(2 * theta)`, hardly changes.
    """

    actions = "continuous"

    def __init__(self, stddev: Any = 0.2, theta: float = 0.15, dt: float = 0.01):
        self.stddev = ScheduledValue(stddev, "stddev")
        self.theta = check_number("theta", theta, minimum=1e-9)
        self.dt = check_number("dt", dt, minimum=1e-9)
        self._noise: np.ndarray | None = None

    def __call__(self, policy, step, rng, action_mask=None):
        action = policy()
        if self._noise is None or self._noise.shape != action.shape:
            self._noise = np.zeros(action.shape)
        self._noise = self._noise * (1 - self.theta * self.dt) + self.stddev(
            step
        ) * np.sqrt(self.dt) * rng.normal(size=action.shape)
        return np.clip(action + self._noise, -1.0, 1.0)

    def reset(self, ended):
        if self._noise is not None and len(ended) == len(self._noise):
            self._noise[ended] = 0.0

    def values(self, step):
        return {"noise_stddev": self.stddev(step)}

    def get_state(self):
        return {} if self._noise is None else {"noise": self._noise.tolist()}

    def set_state(self, state):
        self._noise = np.array(state["noise"]) if "noise" in state else None

    def get_config(self):
        return {
            "stddev": self.stddev.serialize(),
            "theta": self.theta,
            "dt": self.dt,
        }
