"""What Keras' loop, the generator and the memory cost, against the compiled updates.

DQN on CartPole with two layers of 256, batch 64, one update per step and the default
`steps_per_execution`: all time of `fit` that is neither the environment, nor acting,
nor the compiled updates, in percent of the updates. The median of several epochs.
"""

import argparse
import time

import gymnasium as gym
import numpy as np

from keras_rl2x import DQN

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=7)
parser.add_argument("--steps", type=int, default=2_000, help="steps per epoch")
args = parser.parse_args()

env = gym.make("CartPole-v1")
agent = DQN.from_env(env, seed=1)
agent.compile()
agent.fit(env, steps_per_epoch=256, seed=1, verbose=0)  # compiles

shares = []
for _ in range(args.epochs):
    start = time.perf_counter()
    agent.fit(env, steps_per_epoch=args.steps, verbose=0)
    total = time.perf_counter() - start
    spent = agent.seconds
    rest = total - spent["environment"] - spent["acting"] - spent["updating"]
    shares.append(100.0 * rest / spent["updating"])
    per_step = {name: 1e6 * value / args.steps for name, value in spent.items()}
    per_step["rest"] = 1e6 * (rest - spent["memory"]) / args.steps
    line = "  ".join(f"{name} {value:5.0f}" for name, value in per_step.items())
    print(f"microseconds per step: {line}   overhead {shares[-1]:4.1f} %")
print(f"overhead, median of {args.epochs}: {np.median(shares):.1f} % of the updates")
