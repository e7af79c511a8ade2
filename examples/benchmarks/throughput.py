"""Environment steps per second while learning, and where the time goes.

    python throughput.py                                # keras_rl2x alone
    python throughput.py --peer-python PATH             # and SB3 and SBX beside it

All libraries do the same work: the same environment, widths, batch size and number of
gradient steps per environment step, with exploration at its end. Every measurement is
a process of its own; the libraries take turns, in both orders, so that a slow minute
of the machine hits all of them, and medians are compared. SB3 runs with one and with
two threads, and the faster counts.
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

STEPS = {
    "dqn-cartpole": 6_000,
    "ddpg-pendulum": 3_000,
    "dqn-pong": 2_000,
    "dqn-pong-8": 2_000,
}
# SBX has no CNN that would compare.
PEERS = {
    "sb3, 1 thread": (("sb3", "--threads", "1"), STEPS),
    "sb3, 2 threads": (("sb3", "--threads", "2"), STEPS),
    "sbx": (("sbx",), ("dqn-cartpole", "ddpg-pendulum")),
}
SHARES = ("environment", "acting", "memory", "updating", "keras")


def make(workload: str) -> tuple:
    """The agent, compiled, its environment and the batch size."""
    import gymnasium as gym

    from keras_rl2x import DDPG
    from keras_rl2x import DQN
    from keras_rl2x import ReplayMemory
    from keras_rl2x.callbacks import TargetUpdate
    from keras_rl2x.envs import make_atari
    from keras_rl2x.exploration import EpsilonGreedy

    common = {"exploration": EpsilonGreedy(0.05), "warmup_steps": 1_000}
    if workload == "dqn-cartpole":
        env = gym.make("CartPole-v1")
        # SB3's DQN is the plain one, without a second network that chooses.
        agent = DQN.from_env(env, double=False, layer_norm=False, seed=0)
        agent.compile(**common, memory=ReplayMemory(100_000))
        return agent, env, 64, [TargetUpdate(period=10_000)]
    if workload == "ddpg-pendulum":
        env = gym.make("Pendulum-v1")
        agent = DDPG.from_env(env, seed=0)
        agent.compile(warmup_steps=1_000, memory=ReplayMemory(100_000))
        return agent, env, 256, []
    env = make_atari("ALE/Pong-v5", num_envs=8 if workload.endswith("8") else 1)
    agent = DQN.from_env(env, dueling=False, seed=0)
    agent.compile(**common, memory=ReplayMemory(20_000), updates_per_step=0.25)
    return agent, env, 32, []


def measure(workload: str, steps: int) -> dict:
    """One measurement in this process."""
    agent, env, batch_size, callbacks = make(workload)
    settings = {"batch_size": batch_size, "callbacks": callbacks, "verbose": 0}
    first = first_update()
    settings["callbacks"] = [*callbacks, first]
    agent.fit(env, steps_per_epoch=600, seed=0, **settings)  # warm-up, compilation
    settings["callbacks"] = callbacks
    start = time.perf_counter()
    agent.fit(env, steps_per_epoch=steps, **settings)
    seconds = time.perf_counter() - start
    shares = {name: agent.seconds.get(name, 0.0) / seconds for name in SHARES}
    shares["keras"] = 1.0 - sum(shares.values())
    return {
        "library": "keras_rl2x",
        "workload": workload,
        "env_steps_per_s": steps / seconds,
        "shares": shares,
        "first_update_s": first.seconds,
    }


def first_update():
    """A callback that times the first execution, in which everything is compiled."""
    import keras

    class FirstUpdate(keras.callbacks.Callback):
        seconds = None

        def on_train_batch_begin(self, batch, logs=None):
            if self.seconds is None:
                self._start = time.perf_counter()

        def on_train_batch_end(self, batch, logs=None):
            if self.seconds is None:
                self.seconds = time.perf_counter() - self._start

    return FirstUpdate()


def run(command: list[str]) -> dict:
    """Runs a measurement as a process and reads its last line."""
    env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr[-2_000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def compare(workload: str, steps: int, repeats: int, peer: str | None) -> list[dict]:
    """Medians over `repeats` rounds, one object per library."""
    here = Path(__file__).resolve()
    flags = ["--steps", str(steps)]
    commands = {"keras_rl2x": [sys.executable, str(here), "--worker", workload, *flags]}
    for name, (arguments, workloads) in PEERS.items() if peer else ():
        if workload in workloads:
            script, (library, *rest) = here.with_name("peers.py"), arguments
            commands[name] = [peer, str(script), library, workload, *flags, *rest]
    results: dict[str, list] = {name: [] for name in commands}
    for number in range(repeats):
        names = list(commands)
        for name in names if number % 2 == 0 else reversed(names):
            results[name].append(run(commands[name]))
    rows = []
    for name, several in results.items():
        rates = [one["env_steps_per_s"] for one in several]
        row = {"workload": workload, "library": name, "env_steps_per_s": median(rates)}
        if name == "keras_rl2x":
            row["shares"] = {
                share: median(one["shares"][share] for one in several)
                for share in SHARES
            }
            row["first_update_s"] = median(one["first_update_s"] for one in several)
        rows.append(row)
    return rows


def table(rows: list[dict]) -> str:
    """Rates, ratios and shares as Markdown."""
    lines = [
        f"{date.today()}, {_processor()}, {os.cpu_count()} CPUs; medians. `first` is "
        "the time of the first execution, compilation included.",
        "",
        "| workload | keras_rl2x | SB3 | ratio | SBX | ratio | "
        + " | ".join((*SHARES, "first"))
        + " |",
        "|" + " --- |" * (7 + len(SHARES)),
    ]
    for workload in dict.fromkeys(row["workload"] for row in rows):
        mine = {r["library"]: r for r in rows if r["workload"] == workload}
        ours = mine["keras_rl2x"]["env_steps_per_s"]
        cells = [workload, f"{ours:,.0f}"]
        for library in ("sb3", "sbx"):
            rates = [
                r["env_steps_per_s"] for n, r in mine.items() if n.startswith(library)
            ]
            cells += (
                [f"{max(rates):,.0f}", f"{ours / max(rates):.2f}"]
                if rates
                else ["–", "–"]
            )
        shares = mine["keras_rl2x"]["shares"]
        cells += [f"{100 * shares[name]:.0f} %" for name in SHARES]
        cells.append(f"{mine['keras_rl2x']['first_update_s']:.1f} s")
        lines.append("| " + " | ".join(cells) + " |")
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
    parser.add_argument("workloads", nargs="*", choices=[*STEPS, []], default=[])
    parser.add_argument("--peer-python", help="Python that has SB3 and SBX")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, help="environment steps measured")
    parser.add_argument("--json", action="store_true", help="print a list of objects")
    parser.add_argument("--worker", choices=STEPS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        steps = args.steps or STEPS[args.worker]
        print(json.dumps(measure(args.worker, steps)))
        return
    rows = []
    for workload in args.workloads or STEPS:
        steps = args.steps or STEPS[workload]
        new = compare(workload, steps, args.repeats, args.peer_python)
        rows += new
        if not args.json:
            for row in new:
                print(
                    f"{workload:14} {row['library']:15} {row['env_steps_per_s']:8.0f}"
                )
    print(json.dumps(rows, indent=1) if args.json else "\n" + table(rows))


if __name__ == "__main__":
    main()
