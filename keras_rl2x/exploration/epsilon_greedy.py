"""ε-greedy exploration."""

from typing import Any

import keras
import numpy as np

from keras_rl2x.exploration.exploration import Exploration
from keras_rl2x.exploration.schedule import ScheduledValue


@keras.saving.register_keras_serializable(package="keras_rl2x")
class EpsilonGreedy(Exploration):
    """A uniformly random action with probability ε, else the greedy one.

    The random pick may be the greedy action: with two actions the other one is
    taken with probability `ε / 2`.

    Args:
        epsilon: float in `[0, 1]`, or a Keras schedule over *env steps*. Higher
            explores more and learns from less sensible episodes.

    Example:
    ```python
    decay = keras.optimizers.schedules.PolynomialDecay(1.0, 10_000, 0.05)
    agent.compile(exploration=EpsilonGreedy(decay))
    ```
    """

    actions = "discrete"

    def __init__(self, epsilon: Any = 0.1):
        self.epsilon = ScheduledValue(epsilon, "epsilon", maximum=1.0)

    def __call__(self, policy, step, rng, action_mask=None):
        count, size = self._sizes(policy, action_mask)
        random = rng.random(count) < self.epsilon(step)
        if random.all():
            return uniform_actions(count, size, rng, action_mask)
        actions = greedy_actions(policy(), action_mask)
        if random.any():
            picked = uniform_actions(count, size, rng, action_mask)
            actions = np.where(random, picked, actions)
        return actions

    @staticmethod
    def _sizes(policy, action_mask) -> tuple[int, int]:
        if action_mask is not None:
            return action_mask.shape
        # The agent's policy knows its shape without a forward pass.
        return policy.shape if hasattr(policy, "shape") else np.shape(policy())

    def values(self, step):
        return {"epsilon": self.epsilon(step)}

    def get_config(self):
        return {"epsilon": self.epsilon.serialize()}


def greedy_actions(q_values: np.ndarray, action_mask: np.ndarray | None) -> np.ndarray:
    """`[N]` int: the allowed action of highest value; ties go to the lowest index."""
    if action_mask is not None:
        q_values = np.where(action_mask, q_values, -np.inf)
    return np.argmax(q_values, axis=-1)


def uniform_actions(
    count: int, size: int, rng: np.random.Generator, action_mask: np.ndarray | None
) -> np.ndarray:
    """`[N]` int: any allowed action, equally likely."""
    if action_mask is None:
        return rng.integers(size, size=count)
    return np.argmax(np.where(action_mask, rng.random((count, size)), -1.0), axis=-1)
