"""The one place where actions change between the env's units and the networks'."""

from typing import Any

import numpy as np
from gymnasium import spaces


class ActionUnits:
    """Converts batches of actions.

    Networks live in normalised units: discrete actions are counted from 0,
    continuous ones are `[-1, 1]` per dimension and flat. The env's units are
    those of its action space.

    Args:
        space: `Discrete` or bounded `Box`, of one environment.
    """

    def __init__(self, space: spaces.Space):
        self.space = space
        self.is_discrete = isinstance(space, spaces.Discrete)
        if self.is_discrete:
            self.size = int(space.n)
            self._start = int(space.start)
        else:
            self.size = int(np.prod(space.shape, dtype=int))
            self._low = space.low.astype(np.float64)
            self._half = (space.high.astype(np.float64) - self._low) / 2.0

    def to_env(self, action: np.ndarray) -> np.ndarray:
        """`[N]` or `[N, A]` from the networks to `[N, *space.shape]`, a new array."""
        dtype = self.space.dtype
        if self.is_discrete:
            return (action + self._start).astype(dtype)
        action = np.reshape(action, (-1, *self.space.shape))
        scaled = self._low + (np.clip(action, -1.0, 1.0) + 1.0) * self._half
        # Rounding to the env's dtype may leave the range by one bit.
        return np.clip(scaled.astype(dtype), self.space.low, self.space.high)

    def to_network(self, action: Any) -> np.ndarray:
        """`[..., *space.shape]` from the env to `[...]` int32 or `[..., A]` float32."""
        action = np.asarray(action)
        if self.is_discrete:
            return (action - self._start).astype(np.int32)
        unit = (action - self._low) / self._half - 1.0
        lead = action.shape[: action.ndim - len(self.space.shape)]
        return np.clip(unit, -1.0, 1.0).astype(np.float32).reshape(*lead, self.size)

    def uniform(
        self, count: int, rng: np.random.Generator, action_mask: np.ndarray | None
    ) -> np.ndarray:
        """Uniformly random actions in the networks' units."""
        if not self.is_discrete:
            return rng.uniform(-1.0, 1.0, (count, self.size))
        if action_mask is None:
            return rng.integers(self.size, size=count)
        return np.argmax(
            np.where(action_mask, rng.random((count, self.size)), -1.0), axis=-1
        )
