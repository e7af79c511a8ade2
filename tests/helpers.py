"""Tiny environments and small tools that several tests share.

Nothing here imports TensorFlow, so that worker processes start quickly.
"""

import gymnasium as gym
import numpy as np
from gymnasium import spaces

LENGTHS = (1, 2, 3, 7)
ENDINGS = ("terminated", "truncated", "both")


class CounterEnv(gym.Env):
    """Observation `[t]`, the number of steps since the env was made.

    The reward of the step that leads to `[t]` is `t`, so that a row whose parts do
    not belong together shows. `reset` counts on: no observation comes twice.
    """

    def __init__(self, length=10, num_actions=3):
        self.observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
        self.action_space = spaces.Discrete(num_actions)
        self.length, self.total, self.steps = length, 0, 0

    def _observation(self):
        return np.array([self.total], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        self.total += 1
        return self._observation(), {}

    def step(self, action):
        self.steps += 1
        self.total += 1
        ended = self.steps == self.length
        return self._observation(), float(self.total), ended, False, {}


class ScriptedEnv(gym.Env):
    """Episodes of the given lengths, in turn, that end in the given ways, in turn.

    The observation is `(number, episode, t)`, unique for every moment of a run, and
    the reward tells the action too. Raises when it is stepped after an end.

    Args:
        number: which of several environments this is.
        lengths: lengths of the episodes, used in a circle.
        endings: `"terminated"`, `"truncated"` or `"both"`, used in a circle.
        as_dict: observations are `{"place": ..., "time": ...}`.
        reuse: always the same array, changed in place.
        masks: `info["action_mask"]` forbids action `t % 3`.
    """

    def __init__(
        self,
        number=0,
        lengths=LENGTHS,
        endings=ENDINGS,
        as_dict=False,
        reuse=False,
        masks=False,
    ):
        self.number, self.lengths, self.endings = number, lengths, endings
        self.as_dict, self.reuse, self.masks = as_dict, reuse, masks
        box = spaces.Box(-np.inf, np.inf, (3,), np.float32)
        self.observation_space = box
        if as_dict:
            self.observation_space = spaces.Dict(
                place=spaces.Box(-np.inf, np.inf, (2,), np.float32),
                time=spaces.Discrete(100),
            )
        self.action_space = spaces.Discrete(3)
        self.episode, self.t, self.over = -1, 0, True
        self._buffer = np.zeros(3, np.float32)

    def _observation(self):
        array = self._buffer if self.reuse else np.zeros(3, np.float32)
        array[:] = self.number, self.episode, self.t
        if self.as_dict:
            return {"place": array[:2], "time": np.int64(self.t)}
        return array

    def _info(self):
        return {"action_mask": np.arange(3) != self.t % 3} if self.masks else {}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode, self.t, self.over = self.episode + 1, 0, False
        return self._observation(), self._info()

    def step(self, action):
        if self.over:
            raise RuntimeError("`step` after the end of an episode")
        if not isinstance(action, int | np.int64):
            raise TypeError(f"a Discrete action of type {type(action)}")
        self.t += 1
        self.over = self.t == self.lengths[self.episode % len(self.lengths)]
        ending = self.endings[self.episode % len(self.endings)]
        terminated = self.over and ending != "truncated"
        truncated = self.over and ending != "terminated"
        reward = 100.0 * self.number + 10.0 * self.episode + self.t + action / 8
        return self._observation(), reward, terminated, truncated, self._info()


class FixedEnv(gym.Env):
    """Returns what it is told to: for wrong types, shapes and numbers.

    Args:
        observation_space: its space; by default three floats.
        action_space: its space; by default two actions.
        **returns: `observation`, `reward`, `terminated`, `truncated`, `info` of every
            step, `reset` for the whole return value of `reset` and `step` for that of
            `step`.
    """

    def __init__(self, observation_space=None, action_space=None, **returns):
        self.observation_space = observation_space or spaces.Box(-9, 9, (3,))
        self.action_space = action_space or spaces.Discrete(2)
        self.returns = returns
        self.actions = []

    def reset(self, *, seed=None, options=None):
        if "reset" in self.returns:
            return self.returns["reset"]
        observation = np.zeros(
            self.observation_space.shape, self.observation_space.dtype
        )
        return observation, self.returns.get("reset_info", {})

    def step(self, action):
        self.actions.append(action)
        if "step" in self.returns:
            return self.returns["step"]
        observation = np.zeros(
            self.observation_space.shape, self.observation_space.dtype
        )
        return (
            self.returns.get("observation", observation),
            self.returns.get("reward", 1.0),
            self.returns.get("terminated", False),
            self.returns.get("truncated", False),
            self.returns.get("info", {}),
        )
