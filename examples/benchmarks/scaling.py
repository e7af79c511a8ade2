"""How speed and memory grow with what is asked: replay, environments, width, batch.

DQN on CartPole with one update per step, one thing changed at a time. Steps per second
are the median of several epochs; the memory is filled first where its size is the
question. Writes `scaling.md` beside this file.
"""

import argparse
import platform
import time
from datetime import date
from pathlib import Path
from statistics import median

import gymnasium as gym
import numpy as np
import psutil

from keras_rl2x import DQN
from keras_rl2x import ReplayMemory

BASE = {"replay": 100_000, "envs": 1, "width": 256, "batch": 64}
AXES = {
    "replay": (1_000, 10_000, 100_000, 500_000),
    "envs": (1, 2, 4, 8, 16, 32),
    "width": (64, 128, 256, 512, 1_024),
    "batch": (16, 32, 64, 128, 256, 512),
}
TITLES = {
    "replay": "steps in the replay memory",
    "envs": "environments",
    "width": "width of both hidden layers",
    "batch": "batch size",
}


def measure(settings: dict, epochs: int, steps: int, fill: bool) -> dict:
    """Steps and updates per second, and bytes that the memory takes."""
    env = gym.make("CartPole-v1")
    if settings["envs"] > 1:
        env = gym.make_vec("CartPole-v1", num_envs=settings["envs"])
    agent = DQN.from_env(env, hidden=(settings["width"],) * 2, seed=0)
    memory = ReplayMemory(settings["replay"])
    agent.compile(memory=memory, warmup_steps=min(1_000, settings["replay"]))
    before = psutil.Process().memory_info().rss
    if fill:
        _fill(memory, settings["replay"])
    grown = psutil.Process().memory_info().rss - before
    fit = {"batch_size": settings["batch"], "verbose": 0}
    agent.fit(env, steps_per_epoch=256, seed=0, **fit)  # compiles
    rates = []
    for _ in range(epochs):
        start = time.perf_counter()
        agent.fit(env, steps_per_epoch=steps, **fit)
        rates.append(steps / (time.perf_counter() - start))
    env.close()
    return {"rate": median(rates), "nbytes": memory.nbytes, "grown": grown}


def _fill(memory: ReplayMemory, steps: int, length: int = 200) -> None:
    """Episodes of random numbers, until the memory is full."""
    rng = np.random.default_rng(0)
    for _ in range(steps // length):
        memory.add_episode(
            rng.normal(size=(length + 1, 4)).astype(np.float32),
            rng.integers(2, size=length),
            np.ones(length),
            terminated=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=1_600, help="per epoch")
    args = parser.parse_args()
    lines = [
        "# Scaling",
        "",
        f"{date.today()}, {platform.processor() or platform.machine()}. DQN on "
        "CartPole, one update per step; where not varied: "
        f"{', '.join(f'{name} {value:,}' for name, value in BASE.items())}. Median of "
        f"{args.epochs} epochs of {args.steps:,} steps, written by `scaling.py`.",
    ]
    for axis, values in AXES.items():
        replay = axis == "replay"
        head = [TITLES[axis], "steps/s", "ms per step"]
        head += ["MB as predicted", "MB as taken"] if replay else []
        lines += ["", "| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
        for value in values:
            row = measure({**BASE, axis: value}, args.epochs, args.steps, fill=replay)
            cells = [f"{value:,}", f"{row['rate']:,.0f}", f"{1e3 / row['rate']:.2f}"]
            if replay:
                cells += [f"{row[key] / 1e6:.1f}" for key in ("nbytes", "grown")]
            lines.append("| " + " | ".join(cells) + " |")
            print(lines[-1], flush=True)
    Path(__file__).with_suffix(".md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
