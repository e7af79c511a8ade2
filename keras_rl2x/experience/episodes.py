"""Returns and lengths of episodes, for the logs."""

from typing import Any

import numpy as np

STATE = ("_return", "_length", "_sums", "_ended")


class EpisodeLog:
    """Adds up raw rewards per environment and keeps what has ended.

    Args:
        num_envs: number of environments.
        means: the last known means, kept up to date in place.
    """

    def __init__(self, num_envs: int, means: dict[str, float]):
        self._means = means
        self._return = np.zeros(num_envs)
        self._length = np.zeros(num_envs, np.int64)
        self.new_epoch()

    def new_epoch(self) -> None:
        """Forgets the episodes of the last epoch; its means stay until one ends."""
        self._sums, self._ended = np.zeros(2), 0

    def add(self, columns: np.ndarray, reward: np.ndarray, ended: np.ndarray) -> None:
        """Counts one step of each of some environments."""
        if len(columns) == len(self._return):  # the common case, without an index
            self._return += reward
            self._length += 1
        else:
            self._return[columns] += reward
            self._length[columns] += 1
        if not ended.any():
            return
        over = columns[ended]
        self._sums += (self._return[over].sum(), self._length[over].sum())
        self._ended += len(over)
        self._return[over] = 0.0
        self._length[over] = 0
        means = self._sums / self._ended
        self._means["episode_return"] = float(means[0])
        self._means["episode_length"] = float(means[1])

    def get_state(self) -> dict[str, Any]:
        """Episodes in progress and ended, as plain data."""
        return {name: getattr(self, name) for name in STATE}

    def set_state(self, state: dict[str, Any]) -> None:
        """Takes back what `get_state` gave."""
        for name in STATE:
            setattr(self, name, state[name])

    def logs(self) -> dict[str, float]:
        """Means over this epoch's ended episodes, or else the last ones known.

        Empty before the first episode has ended: a NaN would stay "best" for ever
        in `EarlyStopping` and `ModelCheckpoint`.
        """
        return self._means
