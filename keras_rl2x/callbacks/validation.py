"""Evaluation between epochs."""

import contextlib
from collections.abc import Callable
from typing import Any

import keras

from keras_rl2x import plain
from keras_rl2x.envs import env_state


class Validation(keras.callbacks.Callback):
    """Plays greedy episodes after an epoch and adds `val_…` to its logs.

    `fit` puts it first in the list, so that all later callbacks see the numbers.
    Where an epoch is not followed by an evaluation the last numbers are repeated, so
    that the keys are in every epoch from the first one on.

    Args:
        env: environment of its own.
        episodes: number of episodes.
        every: epochs between two evaluations.
        seed: of the first reset; later ones go on from there.
        callbacks: returns the list whose `on_test_…` hooks fire.
    """

    def __init__(
        self,
        env: Any,
        episodes: int,
        every: int,
        seed: int | None,
        callbacks: Callable[[], keras.callbacks.CallbackList],
    ):
        super().__init__()
        self.env, self.episodes, self.every, self.seed = env, episodes, every, seed
        self._callbacks, self._last = callbacks, {}

    def get_state(self) -> dict[str, Any]:
        """The last numbers, and the env, which goes on between evaluations."""
        state = {"last": self._last, "begun": self.seed is None}
        try:
            return {**state, "env": tuple(env_state.get_state(self.env))}
        except plain.NotPlain:
            return state

    def set_state(self, state: dict[str, Any]) -> None:
        """Takes back what `get_state` gave; an env without a copy begins anew."""
        self._last = state["last"]
        if state["begun"] and "env" in state:
            self.env.reset()
            with contextlib.suppress(plain.NotPlain):
                env_state.set_state(self.env, plain.Frozen(*state["env"]))
                self.seed = None

    def on_epoch_end(self, epoch, logs=None):
        if (epoch + 1) % self.every == 0 or not self._last:
            numbers = self.model.evaluate(
                self.env, self.episodes, seed=self.seed, callbacks=self._callbacks()
            )
            self.seed = None
            self._last = {
                "val_episode_return": numbers["episode_return"],
                "val_episode_length": numbers["episode_length"],
            }
        if logs is not None:
            logs.update(self._last)
