"""The defaults solve CartPole and Pendulum: one seed, thresholds below the goals."""

import gymnasium as gym
import pytest

from keras_rl2x import DDPG
from keras_rl2x import DQN
from keras_rl2x.callbacks import StopAtReturn

pytestmark = pytest.mark.slow

EPISODES = 20


def train(cls, name, steps, stop_at, seed=1):
    """Trains with the defaults until 20 greedy episodes reach `stop_at`."""
    env = gym.make(name)
    validation_env = gym.make_vec(name, EPISODES, vectorization_mode="sync")
    agent = cls.from_env(env, seed=seed)
    agent.compile()
    agent.fit(
        env,
        epochs=steps // 2_000 - 1,  # the warm-up takes up to one more
        steps_per_epoch=2_000,
        validation_data=validation_env,
        validation_episodes=EPISODES,
        callbacks=[StopAtReturn(stop_at)],
        seed=seed,
        verbose=0,
    )
    assert agent.env_steps <= steps
    return agent.evaluate(validation_env, episodes=EPISODES, seed=1_000)


def test_dqn_solves_cartpole_within_50_000_steps():
    numbers = train(DQN, "CartPole-v1", 50_000, stop_at=475)
    assert numbers["episode_return"] >= 400


def test_ddpg_swings_the_pendulum_up_within_20_000_steps():
    numbers = train(DDPG, "Pendulum-v1", 20_000, stop_at=-180)
    assert numbers["episode_return"] >= -250
