"""What checkpoints cost: steps per second with one every 10 000 steps and without.

    python examples/benchmarks/checkpoint_cost.py --frames 100000

CartPole is DQN with its defaults and a memory of 100 000; runs with and without
checkpoints take turns, and the medians are compared. The Atari memory is filled with
random frames of 84×84 (stacks of 4), written as a whole, and again after each further
10 000 frames, when files that have not changed are linked in place of being written.
"""

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

import gymnasium as gym
import numpy as np

from keras_rl2x import DQN
from keras_rl2x import ReplayMemory
from keras_rl2x.callbacks import Checkpoint
from keras_rl2x.types import Step


def size(directory):
    """Megabytes in a directory; what is linked from another counts too."""
    files = [path for path in Path(directory).rglob("*") if path.is_file()]
    return sum(path.stat().st_size for path in files) / 1e6


def rate(steps, directory=None):
    """Env steps per second of a CartPole run, after a first one that compiles."""
    env = gym.make("CartPole-v1")
    agent = DQN.from_env(env, seed=1)
    agent.compile()
    agent.fit(env, steps_per_epoch=256, batch_size=64, seed=1, verbose=0)
    callbacks = [Checkpoint(directory, every=10_000)] if directory else []
    start = time.perf_counter()
    agent.fit(env, steps_per_epoch=steps, batch_size=64, callbacks=callbacks, verbose=0)
    return steps / (time.perf_counter() - start), agent


def cartpole(steps, repeats):
    plain, checked = [], []
    for _ in range(repeats):
        plain.append(rate(steps)[0])
        with tempfile.TemporaryDirectory() as directory:
            speed, agent = rate(steps, directory)
            checked.append(speed)
            checkpoint = Checkpoint(directory, every=10_000)
            checkpoint.set_model(agent)
            start = time.perf_counter()
            path = checkpoint.write()
            seconds, megabytes = time.perf_counter() - start, size(path)
    share = statistics.median(checked) / statistics.median(plain)
    print(
        f"CartPole: {statistics.median(plain):.0f} steps/s without, "
        f"{statistics.median(checked):.0f} with a checkpoint every 10,000 steps "
        f"({share:.1%}); one takes {seconds:.2f} s and {megabytes:.1f} MB"
    )


def add_frames(memory, count, rng):
    """Episodes of 1 000 steps of random frames."""
    for _ in range(count // 1_000):
        frames = rng.integers(0, 256, (1_004, 84, 84), np.uint8)
        stacks = np.lib.stride_tricks.sliding_window_view(frames, 4, axis=0)
        stacks = np.moveaxis(stacks, -1, 1)
        ends = np.arange(1_000) == 999
        step = Step(
            observation=stacks[:-1],
            action=rng.integers(6, size=1_000),
            reward=np.zeros(1_000),
            terminated=ends,
            truncated=np.zeros(1_000, bool),
            next_observation=stacks[1:],
        )
        memory.allocate(Step(*(None if x is None else x[:1] for x in step)))
        memory.add(step, np.zeros(1_000, int))


def atari(frames):
    rng, memory = np.random.default_rng(0), ReplayMemory(frames, frame_stack=4)
    add_frames(memory, frames, rng)
    with tempfile.TemporaryDirectory() as root:
        earlier = None
        for number in range(4):
            directory = Path(root) / str(number)
            start = time.perf_counter()
            memory.save(directory, earlier)
            for path in directory.iterdir():
                with open(path, "rb") as file:
                    os.fsync(file.fileno())
            seconds = time.perf_counter() - start
            new = sum(
                path.stat().st_size
                for path in directory.iterdir()
                if path.stat().st_nlink == 1
            )
            print(
                f"Atari, {frames:,} frames, save {number + 1}: {seconds:.2f} s, "
                f"{size(directory):.0f} MB, of which {new / 1e6:.0f} MB were written"
            )
            earlier = directory
            add_frames(memory, 10_000, rng)


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=30_000)
parser.add_argument("--repeats", type=int, default=3)
parser.add_argument("--frames", type=int, default=0)
args = parser.parse_args()
if args.steps:
    cartpole(args.steps, args.repeats)
if args.frames:
    atari(args.frames)
