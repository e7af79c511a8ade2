"""The environment of the contract suite. Imports no TensorFlow, for workers."""

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector import SyncVectorEnv

LOW, HIGH = np.array([-2.0, 0.0], np.float32), np.array([1.0, 4.0], np.float32)
ACTIONS = {
    "discrete": spaces.Discrete(3),
    "continuous": spaces.Box(LOW, HIGH, dtype=np.float32),
}


class Walk(gym.Env):
    """A noisy walk whose every random number comes from its own seed.

    The observation is `(position, velocity, time)`. Keeps a log of what happened.
    Raises when it is stepped after an end, and for actions outside its space.

    Args:
        actions: `"discrete"` or `"continuous"`.
        length: of every episode; `None` for random ones of 3 to 8 steps.
        truncate: episodes end by a time limit.
        fail_at: `(steps, error)`: raises the error in that step of the env's life.
        fail_reset: `(resets, error)`: likewise in `reset`.

    Attributes:
        steps: of the env's life.
        episodes: `(return, length)` of those that ended.
        seeds: given to `reset`, in turn.
        starts: first observations, in turn.
        seen: observations acted on, in turn.
        taken: actions, in turn.
    """

    def __init__(
        self,
        actions="discrete",
        length=None,
        truncate=False,
        fail_at=None,
        fail_reset=None,
    ):
        self.action_space = spaces.Box(LOW, HIGH, dtype=np.float32)
        if actions == "discrete":
            self.action_space = spaces.Discrete(3)
        self.observation_space = spaces.Box(-10.0, 10.0, (3,), np.float32)
        self.length, self.truncate = length, truncate
        self.fail_at, self.fail_reset = fail_at, fail_reset
        self.state, self.left, self.total, self.time = None, 0, 0.0, 0
        self.steps = 0
        self.episodes, self.seeds, self.starts = [], [], []
        self.seen, self.taken = [], []

    def observe(self):
        return np.append(self.state, self.time / 10).astype(np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if self.fail_reset is not None and len(self.seeds) == self.fail_reset[0]:
            raise self.fail_reset[1]
        self.seeds.append(seed)
        self.state = self.np_random.normal(size=2)
        self.left = self.length or int(self.np_random.integers(3, 9))
        self.total, self.time = 0.0, 0
        self.starts.append(self.observe())
        return self.observe(), {}

    def step(self, action):
        if not self.left:
            raise RuntimeError("`step` after the end of an episode")
        if not self.action_space.contains(action):
            raise ValueError(f"action {action!r} is not in {self.action_space}")
        if self.fail_at is not None and self.steps == self.fail_at[0]:
            self.steps += 1
            raise self.fail_at[1]
        self.seen.append(self.observe())
        self.taken.append(action)
        push = action - 1 if np.ndim(action) == 0 else float(action[0])
        noise = self.np_random.normal(scale=0.1, size=2)
        self.state = np.clip([[0.9, 0.1], [0, 0.8]] @ self.state + noise, -5, 5)
        self.state[1] += 0.1 * push
        reward = 1.0 - float(self.state[0] ** 2) - 0.1 * push
        self.steps += 1
        self.time += 1
        self.left -= 1
        self.total += reward
        over = self.left == 0
        if over:
            self.episodes.append((self.total, self.time))
        return (
            self.observe(),
            reward,
            over and not self.truncate,
            self.truncate and over,
            {},
        )


def vector(count, mode=AutoresetMode.NEXT_STEP, **kwargs):
    """`count` walks; further arguments may be lists, one value for each."""

    def make(i):
        own = {k: v[i] if isinstance(v, list) else v for k, v in kwargs.items()}
        return lambda: Walk(**own)

    return SyncVectorEnv([make(i) for i in range(count)], autoreset_mode=mode)
