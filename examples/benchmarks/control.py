"""CartPole with DQN and Pendulum with DDPG, as `from_env` and `compile()` make them.

For each seed: the first step at which the greedy mean over 20 episodes reaches the
threshold, the mean of the last three evaluations, and every evaluation. Writes one
table per task beside this file. A seed takes one to three minutes on two CPU cores.
"""

import argparse
import time
from pathlib import Path

import gymnasium as gym
import numpy as np

from keras_rl2x import DDPG
from keras_rl2x import DQN

TASKS = {
    # name: (agent, environment, steps in all, steps between evaluations, threshold)
    "cartpole": (DQN, "CartPole-v1", 50_000, 2_000, 475.0),
    "pendulum": (DDPG, "Pendulum-v1", 20_000, 2_000, -200.0),
}


def run(task: str, seed: int) -> dict:
    kind, name, steps, every, threshold = TASKS[task]
    env, eval_env = gym.make(name), gym.make_vec(name, num_envs=20)
    agent = kind.from_env(env, seed=seed)
    agent.compile()
    start = time.perf_counter()
    # The warm-up counts: the first epoch is shorter by it.
    warmup = agent.defaults().warmup_steps
    scores = []
    for number in range(steps // every):
        agent.fit(
            env,
            steps_per_epoch=every - (warmup if number == 0 else 0),
            seed=seed if number == 0 else None,
            verbose=0,
        )
        score = agent.evaluate(eval_env, episodes=20, seed=10_000 + number)
        scores.append(score["episode_return"])
        print(f"seed {seed}  step {agent.env_steps:6}  {scores[-1]:8.1f}", flush=True)
    env.close()
    eval_env.close()
    reached = [i for i, score in enumerate(scores) if score >= threshold]
    return {
        "seed": seed,
        "reached at": f"{(reached[0] + 1) * every:,}" if reached else "–",
        "last three": f"{np.mean(scores[-3:]):.1f}",
        "seconds": f"{time.perf_counter() - start:.0f}",
        "evaluations": " ".join(f"{score:.0f}" for score in scores),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=sorted(TASKS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    args = parser.parse_args()
    rows = [run(args.task, seed) for seed in args.seeds]
    kind, name, steps, every, threshold = TASKS[args.task]
    lines = [
        f"# {name} with {kind.__name__}",
        "",
        f"Greedy mean over 20 episodes every {every:,} of {steps:,} steps (warm-up "
        f"included); threshold {threshold:g}. Written by `control.py {args.task}`.",
        "",
        "| " + " | ".join(rows[0]) + " |",
        "|" + " --- |" * len(rows[0]),
        *("| " + " | ".join(map(str, row.values())) + " |" for row in rows),
    ]
    path = Path(__file__).with_name(f"{args.task}.md")
    path.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
