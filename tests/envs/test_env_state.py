"""A copied environment does what the original would have done."""

import threading
from collections import deque

import ale_py
import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from gymnasium.vector import SyncVectorEnv

from keras_rl2x import plain
from keras_rl2x.envs import env_state
from keras_rl2x.envs import make_atari

gym.register_envs(ale_py)


def wrapped(env_id, **kwargs):
    wrappers = gym.wrappers
    env = wrappers.RecordEpisodeStatistics(gym.make(env_id, **kwargs))
    env = wrappers.NormalizeReward(wrappers.NormalizeObservation(env))
    return wrappers.FrameStackObservation(env, 3)


class Own(gym.Env):
    """Says itself what its state is; its fields do not."""

    observation_space = gym.spaces.Box(-9, 9, (1,))

    def __init__(self):
        self.action_space = gym.spaces.Discrete(2)
        self.hidden, self.lock = [0], threading.Lock()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.hidden = [seed or 0]
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.hidden[0] += int(action) + 1
        return np.array(self.hidden, np.float32), 0.0, False, False, {}

    def get_state(self):
        actions = self.action_space.np_random
        return {"hidden": tuple(self.hidden), "actions": actions}

    def set_state(self, state):
        self.hidden = list(state["hidden"])
        self.action_space._np_random = state["actions"]


class Player:
    """Part of an env, in a class of its own."""

    def __init__(self, env):
        self.env, self.at, self.path = env, np.zeros(2), deque(maxlen=5)


class Nested(gym.Env):
    """Fields within fields, a loop among them."""

    observation_space = gym.spaces.Box(-9, 9, (1,))

    def __init__(self):
        self.action_space = gym.spaces.Discrete(2)
        self.player, self.sampled = Player(self), gym.spaces.Discrete(50)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.player.at[:] = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        player = self.player
        assert player.env is self
        player.at += self.np_random.normal() + self.sampled.sample()
        player.path.append(player.at.sum())
        return np.array([sum(player.path)], np.float32), 0.0, False, False, {}


ENVS = {
    "CartPole": lambda: gym.make("CartPole-v1"),
    "Pendulum": lambda: gym.make("Pendulum-v1"),
    "FrozenLake": lambda: gym.make("FrozenLake-v1"),
    "wrappers": lambda: wrapped("Pendulum-v1"),
    "own": Own,
    "objects": Nested,
    "Sync next": lambda: gym.make_vec("CartPole-v1", 3, vectorization_mode="sync"),
    "Sync same": lambda: SyncVectorEnv(
        [lambda: wrapped("CartPole-v1")] * 2, autoreset_mode=AutoresetMode.SAME_STEP
    ),
    "NumPy vector": lambda: gym.make_vec(
        "CartPole-v1", 3, vectorization_mode="vector_entry_point"
    ),
    "Atari": lambda: gym.make("ALE/Breakout-v5"),
}


def play(env, actions):
    """Everything that an env returns, as bytes."""
    seen = []
    for action in actions:
        *values, info = env.step(action)
        if not isinstance(env, gym.vector.VectorEnv) and (values[2] or values[3]):
            values.append(env.reset()[0])
        seen += [np.asarray(value).tobytes() for value in values]
    return seen, env.action_space.sample()


def assert_goes_on(make, burn):
    env, other = make(), make()
    actions = [env.action_space.sample() for _ in range(burn + 60)]
    env.reset(seed=3)
    other.reset(seed=8)
    play(env, actions[:burn])
    play(other, actions[:5])
    state = env_state.get_state(env)
    expected = play(env, actions[burn:])
    env_state.set_state(other, state)
    seen, action = play(other, actions[burn:])
    assert seen == expected[0]
    assert np.array_equal(action, expected[1])
    env.close()
    other.close()


@pytest.mark.parametrize("name", ENVS)
def test_a_copy_goes_on_as_the_original(name):
    assert_goes_on(ENVS[name], 37)


def test_a_copy_of_an_emulator_knows_its_sticky_action():
    """Which ale-py's clone does not hold; after 37 steps of Pong it matters."""
    for burn in (36, 37):
        assert_goes_on(lambda: gym.make("ALE/Pong-v5"), burn)


def test_mujoco_goes_on_exactly():
    pytest.importorskip("mujoco")
    assert_goes_on(lambda: gym.make("HalfCheetah-v5"), 20)


def test_copying_changes_nothing():
    one, other = gym.make("CartPole-v1"), gym.make("CartPole-v1")
    for env in (one, other):
        env.reset(seed=1)
        env.action_space.seed(1)
    env_state.get_state(one)
    actions = [0, 1, 1, 0] * 9
    assert play(one, actions) == play(other, actions)


def locked():
    env = gym.make("CartPole-v1")
    env.unwrapped.lock = threading.Lock()
    return env


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (locked, r"`env.CartPoleEnv-3.fields.lock` is a _thread.lock"),
        (
            lambda: gym.make_vec("CartPole-v1", 2, vectorization_mode="async"),
            "the envs of AsyncVectorEnv live in other processes",
        ),
        (lambda: make_atari("ALE/Pong-v5"), "ale.* is a .*ALEVectorInterface"),
    ],
)
def test_what_keeps_an_env_from_being_copied_is_named(make, text):
    env = make()
    env.reset(seed=1)
    with pytest.raises(plain.NotPlain, match=text):
        env_state.get_state(env)
    env.close()


def test_the_state_of_another_env_is_refused_and_changes_nothing():
    env, other = gym.make("CartPole-v1"), gym.make("Pendulum-v1")
    env.reset(seed=1)
    other.reset(seed=1)
    before = other.unwrapped.state.copy()
    with pytest.raises(plain.NotPlain, match="consists of .*Pendulum.* was .*CartPole"):
        env_state.set_state(other, env_state.get_state(env))
    assert np.array_equal(other.unwrapped.state, before)
