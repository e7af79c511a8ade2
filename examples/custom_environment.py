"""Bring your own environment: a robot vacuum in a corridor, in about 30 lines.

Any `gymnasium.Env` will do. Gymnasium's own checker finds most mistakes; keras_rl2x
names the others at the first `reset` or `step`. Half a minute on two CPU cores.
"""

import argparse

import gymnasium as gym
import keras
import numpy as np
from gymnasium.utils.env_checker import check_env

from keras_rl2x import DQN

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=8)
parser.add_argument("--steps-per-epoch", type=int, default=1_000)
parser.add_argument("--seed", type=int, default=1)
args = parser.parse_args()


class Corridor(gym.Env):
    """Six cells, some dirty. Actions: left, right, clean. Ends when all is clean."""

    observation_space = gym.spaces.Box(0.0, 1.0, (12,), np.float32)
    action_space = gym.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)  # seeds `self.np_random`
        self.dirty = self.np_random.random(6) < 0.5
        self.cell = int(self.np_random.integers(6))
        self.dirty[self.cell] = True  # something to do
        return self.observe(), {}

    def step(self, action):
        reward = -0.1  # time passes
        if action == 2:
            reward += float(self.dirty[self.cell])
            self.dirty[self.cell] = False
        else:
            self.cell = int(np.clip(self.cell + (1 if action == 1 else -1), 0, 5))
        # The task is over; a time limit is no business of the environment itself.
        terminated = not self.dirty.any()
        return self.observe(), reward, terminated, False, {}

    def observe(self):
        return np.concatenate([np.eye(6)[self.cell], self.dirty]).astype(np.float32)


check_env(Corridor(), skip_render_check=True)

# A time limit *truncates*: the agent learns that the episode would have gone on.
env = gym.wrappers.TimeLimit(Corridor(), max_episode_steps=50)
eval_env = gym.wrappers.TimeLimit(Corridor(), max_episode_steps=50)

agent = DQN.from_env(env, hidden=(64, 64), seed=args.seed)
# A small task is learned faster with a higher rate than the default of 1e-4.
agent.compile(keras.optimizers.Adam(1e-3))
before = agent.evaluate(eval_env, episodes=50, seed=args.seed)
agent.fit(
    env,
    epochs=args.epochs,
    steps_per_epoch=args.steps_per_epoch,
    seed=args.seed,
    verbose=2,
)
after = agent.evaluate(eval_env, episodes=50, seed=args.seed)
for when, score in (("before", before), ("after", after)):
    print(
        f"{when:>6}: mean return {score['episode_return']:6.2f}, "
        f"{score['episode_length']:4.1f} steps per episode"
    )
