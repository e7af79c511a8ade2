"""The agents that the contract suite runs for, and what it needs to know of them."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import keras
import numpy as np

import keras_rl2x
from keras_rl2x import DDPG
from keras_rl2x import DQN
from keras_rl2x import ReplayMemory
from keras_rl2x.types import Transition
from tests.agents.walk import ACTIONS
from tests.agents.walk import Walk
from tests.agents.walk import vector

ROOT = Path(keras_rl2x.__file__).parents[1]


def dqn_from(network, cls=DQN, **kwargs):
    """A DQN whose network comes from `network(name, outputs, activation, is_pair)`."""
    return cls(network("network", 3, None, False), **kwargs)


def ddpg_from(network, cls=DDPG, **kwargs):
    """A DDPG of networks likewise; the critic gets an `(observation, action)` pair."""
    return cls(
        network("actor", 2, "tanh", False), network("critic", 1, None, True), **kwargs
    )


def dqn_td_error(agent, batch):
    """Double DQN's TD error of a flat batch in network units, written anew."""
    rows = np.arange(len(batch.reward))
    best = np.argmax(agent.network(batch.next_observation).numpy(), axis=1)
    value = agent.target_network(batch.next_observation).numpy()[rows, best]
    q = agent.network(batch.observation).numpy()[rows, batch.action]
    return batch.reward + batch.discount * value - q


def ddpg_td_error(agent, batch):
    """DDPG's TD error of a flat batch in network units, written anew."""
    action = agent.target_actor(batch.next_observation).numpy()
    value = agent.target_critic([batch.next_observation, action]).numpy()[:, 0]
    q = agent.critic([batch.observation, batch.action]).numpy()[:, 0]
    return batch.reward + batch.discount * value - q


def light(cls, targets=False):
    """An agent that takes part in everything but learns nothing, which is fast."""

    class Light(cls):
        def train_step(self, batch):
            if targets:
                self.update_targets()
            return self.track(loss=batch.reward)

    return Light


class Case(NamedTuple):
    """One agent."""

    cls: type
    actions: str
    from_networks: Callable
    td_error: Callable

    @property
    def optimizers(self):
        return list(self.cls.trained.values())

    def env(self, **kwargs):
        return Walk(self.actions, **kwargs)

    def vector_env(self, count, *args, **kwargs):
        return vector(count, *args, actions=self.actions, **kwargs)

    def make(self, seed=1, cls=None, **kwargs):
        """A small agent, not compiled."""
        cls = cls or self.cls
        kwargs.setdefault("hidden", (16,))
        return cls.from_env(self.env(), seed=seed, **kwargs)

    def compile(self, agent, rate=0.01, **kwargs):
        """Compiles for short tests: plain SGD, no XLA, a warm-up of 16 steps."""
        sgd = {name: keras.optimizers.SGD(rate) for name in self.optimizers}
        agent.compile(
            **{
                **sgd,
                "memory": ReplayMemory(2_000) if agent.memory is None else None,
                "warmup_steps": 16,
                "steps_per_execution": 8,
                "jit_compile": False,
                **kwargs,
            }
        )
        return agent

    def compiled(self, seed=1, cls=None, **kwargs):
        return self.compile(self.make(seed, cls), **kwargs)

    def light(self, seed=1, targets=False, **kwargs):
        """Without its algorithm: where it does not matter what is learned, or how.

        Run eagerly, which takes less time for a few steps than tracing them.
        """
        kwargs.setdefault("run_eagerly", True)
        return self.compile(
            self.make(seed, light(self.cls, targets), hidden=()), **kwargs
        )

    def transitions(self, size=16, seed=0, actions=None):
        """A made-up batch, actions in the env's units."""
        rng = np.random.default_rng(seed)
        space = ACTIONS[actions or self.actions]
        space.seed(seed)
        return Transition(
            observation=rng.normal(size=(size, 3)).astype(np.float32),
            action=np.array([space.sample() for _ in range(size)]),
            reward=rng.normal(size=size).astype(np.float32),
            discount=np.where(rng.random(size) < 0.3, 0, 0.99).astype(np.float32),
            next_observation=rng.normal(size=(size, 3)).astype(np.float32),
        )


# One line per agent.
AGENTS = [
    Case(DQN, "discrete", dqn_from, dqn_td_error),
    Case(DDPG, "continuous", ddpg_from, ddpg_td_error),
]


def pairs(agent):
    """`(target, online)` networks of an agent."""
    return [
        (getattr(agent, target), getattr(agent, online))
        for online, target in agent.targets.items()
    ]


def online(agent):
    """The networks that learn, by name."""
    return {name: getattr(agent, name) for name in agent.trained}


def values(network):
    """Copies of all variables of a network."""
    return [variable.numpy() for variable in network.variables]


def same(one, other):
    """Whether two lists of arrays agree in every bit."""
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def optimizer_values(agent):
    return [
        variable.numpy()
        for name in agent.trained.values()
        for variable in getattr(agent, name).variables
    ]


def digest(agent, memory=True):
    """A sum over everything an agent knows: networks, optimizers, counters, memory."""
    total = hashlib.sha256()
    for array in [*values(agent), *optimizer_values(agent)]:
        total.update(array.tobytes())
    store = {}
    agent.save_own_variables(store)
    total.update(store["state"].tobytes())
    if memory and len(agent.memory):
        rows = agent.memory.sample(5_000, rng=np.random.default_rng(0))
        for leaf in rows[:5]:
            total.update(np.ascontiguousarray(leaf).tobytes())
    total.update(str(len(agent.memory)).encode())
    return total.hexdigest()


def own_state(agent):
    """Counters, random streams and exploration, as saved."""
    store = {}
    agent.save_own_variables(store)
    return json.loads(store["state"].tobytes())


OBSERVATIONS = np.random.default_rng(7).normal(size=(50, 3)).astype(np.float32)


def account(agent):
    """What an agent is, JSON-ready: to compare before and after saving."""

    def total(arrays):
        sums = hashlib.sha256()
        for array in arrays:
            sums.update(np.ascontiguousarray(array).tobytes())
        return sums.hexdigest()

    return {
        "type": type(agent).__name__,
        "name": agent.name,
        "gamma": agent.gamma,
        "n_step": agent.n_step,
        "actions": agent.act(OBSERVATIONS).tolist(),
        "networks": {
            name: total(values(getattr(agent, name)))
            for name in (*agent.trained, *agent.targets.values())
        },
        "optimizers": {
            name: [
                type(getattr(agent, name)).__name__,
                int(getattr(agent, name).iterations.numpy()),
                total(v.numpy() for v in getattr(agent, name).variables),
            ]
            for name in agent.trained.values()
        },
        "state": own_state(agent),
        "spaces": [repr(agent.observation_space), repr(agent.action_space)],
        "exploration": [
            type(agent.exploration).__name__,
            agent.exploration.get_config(),
            agent.exploration.values(agent.env_steps),
        ],
        "target_update": agent.target_update.get_config(),
        "memory": [type(agent.memory).__name__, agent.memory.get_config()],
        "rows": len(agent.memory),
    }
