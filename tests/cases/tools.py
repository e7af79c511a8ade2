"""What the cases share: agents that train for a few steps, and rows of a memory."""

import gymnasium as gym
import keras
import numpy as np

from keras_rl2x import DDPG
from keras_rl2x import DQN
from keras_rl2x import ReplayMemory


def compiled(agent, capacity=500, rate=0.01, **kwargs):
    """Compiles for a short test: SGD, few updates, a warm-up of 8 steps.

    Eagerly, unless told otherwise: a few updates take less time than a trace.
    """
    optimizers = {name: keras.optimizers.SGD(rate) for name in agent.trained.values()}
    arguments = {
        "warmup_steps": 8,
        "steps_per_execution": 8,
        "updates_per_step": 0.25,
        "run_eagerly": True,
    }
    memory = kwargs.pop("memory", None)
    agent.compile(
        **optimizers,
        memory=ReplayMemory(capacity) if memory is None else memory,
        **{**arguments, **kwargs},
    )
    return agent


def made(env, hidden=(8,), **kwargs):
    """The agent for an env's actions, with small default networks."""
    space = getattr(env, "single_action_space", env.action_space)
    cls = DQN if isinstance(space, gym.spaces.Discrete) else DDPG
    return compiled(cls.from_env(env, hidden=hidden, seed=1), **kwargs)


def fit(agent, env, steps=16, **kwargs):
    """A short `fit`."""
    arguments = {"batch_size": 8, "seed": 1, "verbose": 0, **kwargs}
    return agent.fit(env, steps_per_epoch=steps, **arguments)


def rows(agent, count=500):
    """Many rows of the memory, each as stored, one step long."""
    batch = agent.memory.sample(count, rng=np.random.default_rng(0))
    return type(batch)(*(leaf if leaf is None else first(leaf) for leaf in batch))


def first(leaf):
    if isinstance(leaf, dict):
        return {name: part[0] for name, part in leaf.items()}
    return leaf[0]


class SpaceEnv(gym.Env):
    """Random observations of a space, three steps an episode.

    Raises for an action that is not in the action space.

    Attributes:
        taken: the actions that came.
    """

    def __init__(self, observation_space, action_space, length=3):
        self.observation_space, self.action_space = observation_space, action_space
        self.length, self.taken, self.t = length, [], 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.t = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        if not self.action_space.contains(action):
            raise ValueError(f"{action!r} is not in {self.action_space}")
        self.taken.append(action)
        self.t += 1
        ended = self.t == self.length
        return self.observation_space.sample(), 1.0, ended, False, {}
