"""What Keras' loop, the generator and the memory cost, against the compiled updates.

DQN on CartPole with two layers of 256, batch 64, one update per step and the default
`steps_per_execution`: all time of `fit` that is neither the environment, nor acting,
nor the compiled updates, in percent of the updates. The median of several epochs.
"""

import argparse
import time

import gymnasium as gym
import keras
import numpy as np

from keras_rl2x import DQN

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=7)
parser.add_argument("--steps", type=int, default=2_000, help="steps per epoch")
args = parser.parse_args()


class Overhead(keras.callbacks.Callback):
    """Prints where the time of each epoch went, from its start to that of the next."""

    def on_train_begin(self, logs=None):
        self.shares, self.last = [], None

    def on_epoch_begin(self, epoch, logs=None):
        now = {**self.model.seconds, "total": time.perf_counter()}
        if self.last is not None:
            self.report({name: now[name] - self.last.get(name, 0.0) for name in now})
        self.last = now

    def report(self, spent):
        rest = 2 * spent["total"] - sum(spent.values())
        self.shares.append(100.0 * (rest + spent["memory"]) / spent["updating"])
        spent = {**spent, "rest": rest}
        del spent["total"]
        line = "  ".join(
            f"{name} {1e6 * value / args.steps:5.0f}" for name, value in spent.items()
        )
        print(f"microseconds per step: {line}   overhead {self.shares[-1]:4.1f} %")


env = gym.make("CartPole-v1")
agent = DQN.from_env(env, seed=1)
agent.compile()
agent.fit(env, steps_per_epoch=256, seed=1, verbose=0)  # compiles
overhead = Overhead()
settings = {"steps_per_epoch": args.steps, "epochs": args.epochs + 1, "verbose": 0}
agent.fit(env, callbacks=[overhead], **settings)
median = np.median(overhead.shares)
print(f"overhead, median of {args.epochs}: {median:.1f} % of the updates")
