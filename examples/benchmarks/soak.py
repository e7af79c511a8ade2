"""Kills, Ctrl-C at any moment, a million steps, a hundred agents: does a run survive?

    python examples/benchmarks/soak.py --kills 50 --interrupts 50 --steps 1000000 \
        --agents 100

Prints a table; `soak.md` beside this file holds the one of a real run. Each kill is one
run that gets SIGKILL at a random moment (every third one inside of the writing of a
checkpoint) and is resumed in a new process; what it ends with (variables, optimizers,
memory, random streams, env, callbacks) is compared, bit for bit, with a run that nobody
disturbed. Runs are forked from a process that has imported TensorFlow and used nothing
of it, so that fifty take minutes.
"""

import argparse
import gc
import hashlib
import json
import multiprocessing
import os
import signal
import tempfile
import threading
import time
from pathlib import Path

import gymnasium as gym
import keras
import numpy as np

from keras_rl2x import DDPG
from keras_rl2x import DQN
from keras_rl2x import ReplayMemory
from keras_rl2x import plain
from keras_rl2x.callbacks import Checkpoint

RUNS = {
    "DQN, n_step=3, single env": (DQN, "CartPole-v1", 1),
    "DQN, n_step=3, vector env of 3": (DQN, "CartPole-v1", 3),
    "DDPG, single env": (DDPG, "Pendulum-v1", 1),
    "DDPG, vector env of 3": (DDPG, "Pendulum-v1", 3),
}
EPOCHS, STEPS = 4, 250
process = multiprocessing.get_context("fork").Process


def make(name, seed=1):
    """The env and the agent of a run."""
    cls, env_id, count = RUNS[name]
    env = gym.make(env_id) if count == 1 else gym.make_vec(env_id, count, "sync")
    for each in (env, *getattr(env, "envs", ())):
        # Nobody draws from them, but they are part of what is compared.
        each.action_space.seed(seed)
        each.observation_space.seed(seed)
    agent = cls.from_env(env, hidden=(16,), seed=seed, n_step=3 if cls is DQN else 1)
    agent.compile(
        memory=ReplayMemory(600),
        warmup_steps=64,
        updates_per_step=0.5,
        steps_per_execution=16,
        jit_compile=False,
    )
    return env, agent


def digest(agent):
    """A sum over everything that decides what comes next."""
    total, store = hashlib.sha256(), {}
    agent.save_own_variables(store)
    text, data = plain.freeze(agent.run_state())
    total.update(store["state"].tobytes() + text.encode() + data.tobytes())
    for _, value in agent.variable_values():
        total.update(np.ascontiguousarray(value).tobytes())
    with tempfile.TemporaryDirectory() as directory:
        agent.memory.save(directory)
        facts = json.loads((Path(directory) / "memory.json").read_text())
    total.update(json.dumps([facts["sha256"], facts["count"]]).encode())
    return total.hexdigest()


def train(name, directory, die_in_write=None):
    """Runs or resumes; writes the digest at the end. Runs in a process of its own."""
    np.random.seed(1)
    keras.utils.set_random_seed(1)
    if die_in_write is not None:
        die_in_sync(die_in_write)
    env, agent = make(name)
    monitor = {"monitor": "episode_return", "mode": "max"}
    agent.fit(
        env,
        epochs=EPOCHS,
        steps_per_epoch=STEPS,
        batch_size=32,
        seed=1,
        verbose=0,
        resume=directory,
        callbacks=[
            keras.callbacks.EarlyStopping(patience=99, **monitor),
            keras.callbacks.ReduceLROnPlateau(patience=0, **monitor),
            Checkpoint(directory, every=100),
        ],
    )
    (directory / "digest").write_text(digest(agent))


def die_in_sync(number):
    """SIGKILL in the n-th flush to disk, which is in the midst of a checkpoint."""
    flush, left = os.fsync, [number]

    def fsync(descriptor):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        flush(descriptor)

    os.fsync = fsync


def finish(name, directory):
    """Seconds that a run takes to its end, and its digest."""
    start = time.monotonic()
    child = process(target=train, args=(name, directory))
    child.start()
    child.join()
    if child.exitcode != 0:
        raise RuntimeError(f"{name}: a run ended with exit code {child.exitcode}")
    return time.monotonic() - start, (directory / "digest").read_text()


def kill_once(name, directory, seconds, rng, number):
    """Starts a run and kills it; returns whether that was inside a write."""
    inside = number % 3 == 0
    die_in_write = int(rng.integers(1, 60)) if inside else None
    child = process(target=train, args=(name, directory, die_in_write))
    child.start()
    if not inside:
        time.sleep(rng.uniform(0.2, 1.0) * seconds)
        os.kill(child.pid, signal.SIGKILL)
    child.join()
    return child.exitcode == -signal.SIGKILL, inside


def kills(count, names, seed=0):
    """Rows of the table: how many of how many kills left no trace."""
    rng, rows = np.random.default_rng(seed), []
    for i, name in enumerate(names):
        mine = count // len(names) + (i < count % len(names))
        equal, killed, writes = 0, 0, 0
        with tempfile.TemporaryDirectory() as root:
            whole = Path(root) / "whole"
            whole.mkdir()
            seconds, expected = finish(name, whole)
            while killed < mine:
                directory = Path(root) / f"run-{time.monotonic_ns()}"
                directory.mkdir()
                died, inside = kill_once(name, directory, seconds, rng, killed)
                if not died:
                    continue  # it had ended before
                killed, writes = killed + 1, writes + inside
                equal += finish(name, directory)[1] == expected
        what = f"{mine} × SIGKILL ({writes} inside a write), {name}"
        rows.append((what, f"{equal} of {mine} resumed bit for bit", equal == mine))
        print(*rows[-1][:2], sep=": ", flush=True)
    return rows


def interrupts(count, seed=0):
    """Ctrl-C at random moments; then `act`, `save` and `fit` must work as before."""
    rng, good, slowest = np.random.default_rng(seed), 0, 0.0
    name = next(iter(RUNS))
    env, agent = make(name)
    fit = {"steps_per_epoch": 200, "batch_size": 32, "verbose": 0}
    with tempfile.TemporaryDirectory() as root:
        agent.fit(env, **fit)
        for _ in range(count):
            sent = []

            def press(sent=sent):
                sent.append(time.monotonic())
                signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

            timer = threading.Timer(rng.uniform(0.0, 0.5), press)
            timer.start()
            try:
                agent.fit(
                    env,
                    epochs=10**6,
                    validation_data=gym.make("CartPole-v1"),
                    validation_episodes=1,
                    callbacks=[Checkpoint(root, every=100)],
                    **fit,
                )
            except KeyboardInterrupt:
                slowest = max(slowest, time.monotonic() - sent[0])
            before = agent.env_steps
            agent.act(env.observation_space.sample())
            agent.save(Path(root) / "agent.keras")
            agent.fit(env, **fit)
            counted = agent.env_steps == before + 200
            known = len(agent.memory) == min(600, agent.env_steps)
            good += counted and known
    what = f"{count} × Ctrl-C in an env step, an update, an evaluation or a checkpoint"
    result = f"{good} of {count} went on; slowest answer {slowest:.2f} s"
    return [(what, result, good == count and slowest < 2.0)]


def resident():
    """Megabytes of main memory in use, as Linux tells."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def long_run(steps):
    """Growth of a long run between a fifth of it and its end."""
    env = gym.make("CartPole-v1")
    agent = DQN.from_env(env, hidden=(8,), seed=1)
    agent.compile(
        memory=ReplayMemory(10_000), updates_per_step=1 / 64, steps_per_execution=64
    )
    epochs, sizes = 50, []
    watch = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: sizes.append(
            (resident(), len(gc.get_objects()))
        )
    )
    agent.fit(
        env, epochs=epochs, steps_per_epoch=steps // epochs, seed=1, verbose=0,
        callbacks=[watch],
    )  # fmt: skip
    (first, objects), (last, more) = sizes[epochs // 5 - 1], sizes[-1]
    what = f"{steps:,} steps of a small DQN, memory of 10,000"
    result = (
        f"{last - first:+.1f} MB, {more - objects:+,} objects in the last four fifths"
    )
    return [(what, result, last - first <= 20)]


def many_agents(count):
    """Growth per agent that was made, trained and dropped."""
    sizes = []
    for i in range(count):
        env, agent = make(next(iter(RUNS)), seed=i)
        agent.fit(env, steps_per_epoch=200, batch_size=32, verbose=0)
        del env, agent
        keras.backend.clear_session()
        gc.collect()
        sizes.append(resident())
    start = min(20, count - 1)
    growth = (sizes[-1] - sizes[start]) / max(1, count - 1 - start)
    what = f"{count} agents made, trained for 200 steps and dropped"
    result = f"{growth:+.2f} MB per agent after the {start + 1}th"
    return [(what, result, growth <= 1.0)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--only", default="", help="runs to kill, by part of the name")
    parser.add_argument("--interrupts", type=int, default=0)
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--agents", type=int, default=0)
    parser.add_argument("--output", help="file for the table")
    args = parser.parse_args()
    names = [name for name in RUNS if args.only in name]
    rows = kills(args.kills, names) if args.kills else []  # first: it forks
    for count, measure in (
        (args.interrupts, interrupts),
        (args.steps, long_run),
        (args.agents, many_agents),
    ):
        rows += measure(count) if count else []
    lines = ["| what | result | as required |", "| --- | --- | --- |"]
    lines += [
        f"| {what} | {result} | {'yes' if ok else 'NO'} |" for what, result, ok in rows
    ]
    print("\n".join(lines))
    if args.output:
        Path(args.output).write_text("\n".join(lines) + "\n", "utf-8")
    return 0 if all(ok for *_, ok in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
