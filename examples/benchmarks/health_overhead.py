"""What `Health` costs at its default schedule: pairs of runs with and without it.

Each pair is two runs of `fit` of the same length in one process, one with and one
without, in turn first. Compiling is not counted: once per run it takes a second or two.
Medians are printed: of the time that passed, of the processor's time, and of the share
of a run that is spent inside `Health`, which other programs disturb least.
"""

import argparse
import time

import gymnasium as gym
import numpy as np

from keras_rl2x import DDPG
from keras_rl2x import DQN
from keras_rl2x.diagnostics import Health

TASKS = {"dqn-cartpole": (DQN, "CartPole-v1"), "ddpg-pendulum": (DDPG, "Pendulum-v1")}


def clocks():
    """Seconds: the time that passes, and that of the processor."""
    return np.array([time.perf_counter(), time.process_time()])


class Stopwatch(Health):
    """`Health` that measures how long its first look takes, with compiling."""

    first = inside = 0.0

    def on_train_begin(self, logs=None):
        start = time.perf_counter()
        super().on_train_begin(logs)
        self.first = time.perf_counter() - start
        self.begun = clocks()

    def on_train_batch_end(self, batch, logs=None):
        start = time.perf_counter()
        super().on_train_batch_end(batch, logs)
        self.inside += time.perf_counter() - start


class Begin(Stopwatch):
    """The stopwatch alone."""

    def on_train_begin(self, logs=None):
        self.begun = clocks()

    def on_train_batch_end(self, batch, logs=None):
        """Measures nothing."""


def seconds(agent, env, kind, steps):
    """What `fit` takes from its first step on, by both clocks and inside `Health`.

    And what the first look took.
    """
    watch = kind(verbose=False)
    agent.fit(env, steps_per_epoch=steps, callbacks=[watch], verbose=0)
    return np.append(clocks() - watch.begun, watch.inside), watch.first


def compare(task, pairs, steps):
    """Overheads `[pairs, 3]` in percent, and the seconds of the first looks."""
    kind, env_id = TASKS[task]
    env = gym.make(env_id)
    agent = kind.from_env(env, seed=1)
    agent.compile()
    agent.fit(env, steps_per_epoch=256, seed=1, verbose=0)  # compiles
    overheads, firsts = [], []
    for number in range(pairs):
        order = (Begin, Stopwatch) if number % 2 == 0 else (Stopwatch, Begin)
        taken = {each: seconds(agent, env, each, steps) for each in order}
        (wall, cpu, inside), first = taken[Stopwatch]
        plain, plain_cpu, _ = taken[Begin][0]
        quotients = (wall / plain - 1.0, cpu / plain_cpu - 1.0, inside / wall)
        overheads.append([100.0 * each for each in quotients])
        firsts.append(first)
        wall, cpu, share = overheads[-1]
        print(
            f"{task}  pair {number + 1}: {wall:5.1f} %, processor {cpu:5.1f} %, "
            f"inside {share:4.1f} %",
            flush=True,
        )
    return np.array(overheads), firsts


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tasks", nargs="*", default=list(TASKS))
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--steps", type=int, default=10_000)
    args = parser.parse_args()
    for task in args.tasks:
        overheads, firsts = compare(task, args.pairs, args.steps)
        wall, cpu, share = np.median(overheads, axis=0)
        print(
            f"{task}: median {wall:.1f} %, of the processor's time {cpu:.1f} %, inside "
            f"`Health` {share:.1f} %, of {args.pairs} pairs of {args.steps:,} steps; "
            f"the first look, with compiling, takes {np.median(firsts):.1f} s once",
            flush=True,
        )


if __name__ == "__main__":
    main()
