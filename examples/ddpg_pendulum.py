"""DDPG swings a pendulum up: continuous actions, two networks, two optimizers.

Ends with the torque that the actor chooses in a few positions. About a minute on two
CPU cores.
"""

import argparse

import gymnasium as gym
import keras
import numpy as np

from keras_rl2x import DDPG
from keras_rl2x.callbacks import StopAtReturn
from keras_rl2x.callbacks import TargetUpdate
from keras_rl2x.exploration import GaussianNoise

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=20, help="at most so many")
parser.add_argument("--steps-per-epoch", type=int, default=1_000)
parser.add_argument("--batch-size", type=int, default=256)
parser.add_argument("--seed", type=int, default=1)
args = parser.parse_args()

env, eval_env = gym.make("Pendulum-v1"), gym.make("Pendulum-v1")
agent = DDPG.from_env(env, seed=args.seed)

# These are the defaults, written out. `optimizer` is the critic's.
agent.compile(
    optimizer=keras.optimizers.Adam(1e-3),
    actor_optimizer=keras.optimizers.Adam(1e-4),
    exploration=GaussianNoise(0.1),  # of the half-range: 0.2 N·m of ±2 N·m
    warmup_steps=1_000,  # uniformly random torques
)

agent.fit(
    env,
    epochs=args.epochs,
    steps_per_epoch=args.steps_per_epoch,
    batch_size=args.batch_size,
    validation_data=eval_env,
    validation_episodes=5,
    callbacks=[TargetUpdate(tau=0.005), StopAtReturn(-200)],
    seed=args.seed,
    verbose=2,
)
score = agent.evaluate(eval_env, episodes=10, seed=args.seed)
print(f"Mean return over 10 episodes: {score['episode_return']:.0f}")

# The actor works in [-1, 1]; `act` answers in the env's units, here N·m in [-2, 2].
# The observation is (cos, sin) of the angle from upright, and the angular velocity.
angles = np.deg2rad([-20.0, 0.0, 20.0, 180.0])
positions = np.stack([np.cos(angles), np.sin(angles), 0 * angles], axis=1)
for angle, torque in zip(np.rad2deg(angles), agent.act(positions), strict=True):
    print(f"at {angle:6.0f}° at rest: torque {torque[0]:+.2f} N·m")
