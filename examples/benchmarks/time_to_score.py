"""Training time until a task is solved, beside Stable-Baselines3.

    python time_to_score.py                             # keras_rl2x alone
    python time_to_score.py --peer-python PATH          # and SB3 in turn

CartPole to 475 and Pendulum to -200, a greedy mean over 20 episodes. keras_rl2x runs
with its defaults, SB3 with the settings that its own zoo has tuned for the task. The
clock counts everything from making the agent on, compilation and warm-up included, and
stands still while an agent is evaluated. A seed is a process of its own, and the
libraries take turns. Writes `time_to_score.md` beside this file.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from datetime import date
from pathlib import Path
from statistics import median

TASKS = {
    # name: (environment, steps between evaluations, steps at most, score)
    "dqn-cartpole": ("CartPole-v1", 2_000, 100_000, 475.0),
    "ddpg-pendulum": ("Pendulum-v1", 1_000, 40_000, -200.0),
}
# https://github.com/DLR-RM/rl-baselines3-zoo, "tuned" for these tasks.
ZOO = {
    "dqn-cartpole": {
        "learning_rate": 2.3e-3,
        "batch_size": 64,
        "buffer_size": 100_000,
        "learning_starts": 1_000,
        "gamma": 0.99,
        "target_update_interval": 10,
        "train_freq": 256,
        "gradient_steps": 128,
        "exploration_fraction": 0.16,
        "exploration_final_eps": 0.04,
        "policy_kwargs": {"net_arch": [256, 256]},
    },
    "ddpg-pendulum": {
        "learning_rate": 1e-3,
        "buffer_size": 200_000,
        "learning_starts": 10_000,
        "gamma": 0.98,
        "train_freq": 1,
        "gradient_steps": 1,
        "policy_kwargs": {"net_arch": [400, 300]},
    },
}


def keras_rl2x(task: str, seed: int) -> dict:
    """Our defaults."""
    import gymnasium as gym

    from keras_rl2x import DDPG
    from keras_rl2x import DQN

    name, every, most, score = TASKS[task]
    env, eval_env = gym.make(name), gym.make_vec(name, num_envs=20)
    start, paused, best = time.perf_counter(), 0.0, -float("inf")
    agent = {"dqn": DQN, "ddpg": DDPG}[task.split("-")[0]].from_env(env, seed=seed)
    agent.compile()
    steps = every - agent.defaults().warmup_steps  # the warm-up counts
    while agent.env_steps < most and best < score:
        if steps > 0:
            fresh = seed if agent.env_steps == 0 else None
            agent.fit(env, steps_per_epoch=steps, seed=fresh, verbose=0)
        steps = every
        pause = time.perf_counter()
        if agent.env_steps:
            found = agent.evaluate(eval_env, 20, seed=seed + 1_000)
            best = max(best, found["episode_return"])
        paused += time.perf_counter() - pause
    seconds = time.perf_counter() - start - paused
    return {"steps": agent.env_steps, "seconds": seconds, "best": best}


def sb3(task: str, seed: int) -> dict:
    """Stable-Baselines3 with the settings of its zoo."""
    import warnings

    import gymnasium as gym
    import numpy as np
    import stable_baselines3
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.noise import NormalActionNoise

    warnings.filterwarnings("ignore")
    name, every, most, score = TASKS[task]
    env, eval_env = gym.make(name), gym.make(name)
    eval_env.reset(seed=seed + 1_000)

    class Stop(BaseCallback):
        """Ends the training at the score."""

        paused, best = 0.0, -np.inf

        def _on_step(self) -> bool:
            if self.num_timesteps % every == 0:
                pause = time.perf_counter()
                mean, _ = evaluate_policy(self.model, eval_env, 20, warn=False)
                self.paused += time.perf_counter() - pause
                self.best = max(self.best, float(mean))
            return self.best < score

    settings = dict(ZOO[task])
    if task == "ddpg-pendulum":
        settings["action_noise"] = NormalActionNoise(np.zeros(1), 0.1 * np.ones(1))
    stop, start = Stop(), time.perf_counter()
    algorithm = getattr(stable_baselines3, task.split("-")[0].upper())
    agent = algorithm("MlpPolicy", env, seed=seed, device="cpu", **settings)
    agent.learn(most, callback=stop)
    seconds = time.perf_counter() - start - stop.paused
    return {"steps": agent.num_timesteps, "seconds": seconds, "best": stop.best}


def run(python: str, library: str, task: str, seed: int) -> dict:
    """One seed as a process, whose last line is read."""
    command = [python, str(Path(__file__).resolve()), task, "--worker", library]
    env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [*command, "--seeds", str(seed)], capture_output=True, text=True, env=env
    )
    if done.returncode:
        sys.exit(f"{library} failed:\n{done.stderr[-2_000:]}")
    row = json.loads(done.stdout.strip().splitlines()[-1])
    print(
        f"{task:14} {library:10} seed {seed}: {row['steps']:7,} steps "
        f"{row['seconds']:6.1f} s  best {row['best']:7.1f}",
        flush=True,
    )
    return row


def table(results: dict[tuple[str, str], list[dict]]) -> str:
    """All seeds and the medians as Markdown."""
    lines = [
        "# Time to score",
        "",
        f"{date.today()}, {_processor()}, {os.cpu_count()} CPUs. Seconds of training "
        "(evaluation not counted) and env steps until the greedy mean over 20 episodes "
        "reaches the score; written by `time_to_score.py`. A dash: not reached.",
        "",
        "| task | library | median s | ratio | median steps | seconds by seed | "
        "steps by seed |",
        "|" + " --- |" * 7,
    ]
    for (task, library), rows in results.items():
        solved = [row["best"] >= TASKS[task][-1] for row in rows]
        seconds = median(row["seconds"] for row in rows)
        ours = median(row["seconds"] for row in results[task, "keras_rl2x"])
        by_seed = [
            [f"{row[key]:,.{digits}f}" if ok else "–" for row, ok in zip(rows, solved)]
            for key, digits in (("seconds", 1), ("steps", 0))
        ]
        lines.append(
            f"| {task} | {library} | {seconds:.1f} | {ours / seconds:.2f} | "
            f"{median(row['steps'] for row in rows):,} | "
            f"{' '.join(by_seed[0])} | {' '.join(by_seed[1])} |"
        )
    return "\n".join(lines)


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tasks", nargs="*", choices=[*TASKS, []], default=[])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--peer-python", help="Python that has Stable-Baselines3")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        function = {"keras_rl2x": keras_rl2x, "sb3": sb3}[args.worker]
        print(json.dumps(function(args.tasks[0], args.seeds[0])))
        return
    pythons = {"keras_rl2x": sys.executable}
    if args.peer_python:
        pythons["sb3"] = args.peer_python
    results: dict[tuple[str, str], list[dict]] = {}
    for task in args.tasks or TASKS:
        for seed in args.seeds:
            for library, python in pythons.items():
                row = run(python, library, task, seed)
                results.setdefault((task, library), []).append(row)
    text = table(results)
    print(text)
    if set(results) == {(task, library) for task in TASKS for library in pythons}:
        Path(__file__).with_suffix(".md").write_text(text + "\n")


if __name__ == "__main__":
    main()
