"""Every probe environment against its exact values, in every kind of environment.

    python examples/benchmarks/probe_matrix.py            # all, into probe_matrix.md
    python examples/benchmarks/probe_matrix.py Corridor   # some, on the screen only

A probe is a task of a few states whose values are known; `keras_rl2x.envs.probes`
says which fault shows as which wrong value. DQN learns all of them, DDPG the ones
whose action has no effect, and the one about action bounds.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import sys
from pathlib import Path
from typing import NamedTuple

import keras
import numpy as np
from gymnasium.vector import AsyncVectorEnv
from gymnasium.vector import AutoresetMode
from gymnasium.vector import SyncVectorEnv

from keras_rl2x import DDPG
from keras_rl2x import DQN
from keras_rl2x import ReplayMemory
from keras_rl2x.callbacks import TargetUpdate
from keras_rl2x.envs import probes
from keras_rl2x.exploration import EpsilonGreedy
from keras_rl2x.exploration import GaussianNoise

MODES = ("single", "NEXT_STEP", "SAME_STEP", "async")
SEEDS = (0, 1, 2)
STEPS = 1_500
LONGER = 2_500  # where a value is large, or travels far, or differs by chance
# No image twin; and where rewards differ by chance, some thousand steps hold actions
# that seem better than others, which an actor finds.
NO_TWIN = (
    probes.ImageScaleProbe,
    probes.NoisyRewardProbe,
    probes.RareRewardProbe,
    probes.RandomWalkProbe,
)


class Case(NamedTuple):
    """What one run of the matrix learns, and from what."""

    probe: type
    agent: type = DQN
    n_step: int = 1
    loss: str = "mse"
    steps: int = STEPS

    @property
    def name(self):
        notes = [f"n={self.n_step}"] * (self.n_step > 1) + ["Huber"] * self.is_huber
        return " ".join([self.probe.__name__.removesuffix("Probe"), *notes])

    @property
    def is_huber(self):
        return self.loss == "huber"

    def make(self):
        """One environment; for DDPG the twin with continuous actions."""
        if self.agent is DDPG and self.probe is not probes.AsymmetricActionProbe:
            return self.probe(continuous=True)
        return self.probe()


def cases():
    """All cases: each probe, and the losses, horizons and twins of some."""
    for probe in probes.PROBES:
        if probe is probes.AsymmetricActionProbe:
            yield Case(probe, DDPG, steps=LONGER)
            continue
        is_long = probe in (probes.TimeLimitProbe, probes.RandomWalkProbe)
        steps = LONGER if is_long else STEPS
        yield Case(probe, steps=steps)
        if hasattr(probe, "expected_huber"):
            yield Case(probe, loss="huber")
        if probe is probes.ChainProbe:
            yield from (Case(probe, n_step=n) for n in (3, 5))
        if probe.num_actions == 1 and probe not in NO_TWIN:
            yield Case(probe, DDPG, steps=steps)


def make_env(case, mode):
    """The environment of a case: alone, or several in a vector."""
    if mode == "single":
        return case.make()
    if mode == "async":
        return AsyncVectorEnv([case.make] * 2)
    return SyncVectorEnv([case.make] * 4, autoreset_mode=AutoresetMode[mode])


def train(case, env, seed=0):
    """An agent that has learned a probe from random behaviour.

    The target network is copied often: with a discount of 0.9 a value of 10 needs
    some hundred copies. The learning rates end at 0, so that the values settle on the
    mean of the memory rather than follow the last minibatches.
    """

    def adam(rate):
        decay = keras.optimizers.schedules.PolynomialDecay(rate, case.steps, 0.0)
        return keras.optimizers.Adam(decay)

    settings = {"gamma": case.probe.gamma, "n_step": case.n_step, "seed": seed}
    if case.agent is DQN:
        agent = DQN.from_env(env, hidden=(32,), **settings)
        agent.compile(
            adam(3e-3 if case.probe is not probes.RewardScaleProbe else 0.3),
            loss=case.loss,
            memory=ReplayMemory(10_000),
            exploration=EpsilonGreedy(1.0),
            warmup_steps=100,
            jit_compile=False,  # takes longer to compile than such short runs gain
        )
        rule = TargetUpdate(period=20)
    else:
        agent = DDPG.from_env(env, hidden=(128,), **settings)
        agent.compile(
            adam(3e-3),
            adam(3e-4),
            memory=ReplayMemory(10_000),
            exploration=GaussianNoise(1.0),
            warmup_steps=500,
            jit_compile=False,
        )
        rule = TargetUpdate(tau=0.05)
    agent.fit(
        env,
        steps_per_epoch=case.steps,
        batch_size=32,
        seed=seed,
        callbacks=[rule],
        verbose=0,
    )
    return agent


def compare(case, agent):
    """Pairs `(learned, expected)` of all that the probe knows about its values."""
    env = case.probe()
    observations = env.observations()
    if case.probe is probes.AsymmetricActionProbe:
        actions = np.array([[action] for _, action in env.expected], np.float32)
        units = agent.action_units.to_network(actions)
        values = agent.critic([np.repeat(observations, len(units), axis=0), units])
        pairs = list(zip(np.ravel(values), env.expected.values(), strict=True))
        return [*pairs, (agent.act(observations[0])[0], env.best_action)]
    expected = env.expected_huber if case.is_huber else env.expected
    if case.agent is DQN:
        values = np.asarray(agent(observations))
        pairs = [
            (values[state][column], value)
            for state, row in expected.items()
            for column, value in enumerate(row)
        ]
        if case.probe is probes.OffsetActionProbe:
            pairs.append((agent.act(observations[0]), env.best_action))
        return pairs
    pairs = []
    for action in (-1.0, 0.0, 1.0):  # of no effect, so of equal value
        actions = np.full((len(observations), 1), action, np.float32)
        values = np.asarray(agent.critic([observations, actions]))
        pairs += [(values[state, 0], row[0]) for state, row in expected.items()]
    return pairs


def run(case, mode, seed=0):
    """Learns one case and returns `(error, learned, expected)`."""
    env = make_env(case, mode)
    try:
        agent = train(case, env, seed)
    finally:
        env.close()
    learned, expected = np.array(compare(case, agent), float).T
    keras.backend.clear_session()
    return np.abs(learned - expected).max(), learned, expected


def report(lines, good):
    """The table so far, with what it means."""
    return "\n".join(
        [
            "# Probe environments\n",
            f"Written by `probe_matrix.py`, with Keras {keras.__version__}: "
            f"{sum(good)} of {len(good)} rows hold.\n",
            f"A row is the worst of seeds {', '.join(map(str, SEEDS))} after {STEPS} "
            f"(some: {LONGER}) steps of random behaviour: the values, and the largest "
            "error among them with its tolerance.\n",
            *lines,
            "",
        ]
    )


def main(words):
    chosen = [c for c in cases() if not words or any(w in c.name for w in words)]
    head = ["probe", "agent", "environment", "expected", "learned", "error", "ok"]
    lines = [f"| {' | '.join(head)} |", "|" + " --- |" * len(head)]
    print(*lines, sep="\n", flush=True)
    good = []
    for case in chosen:
        for mode in MODES:
            runs = [run(case, mode, seed) for seed in SEEDS]
            error, learned, expected = max(runs, key=lambda one: one[0])
            good.append(error <= case.probe.tolerance)
            row = [case.name, case.agent.__name__, mode]
            row += [
                ", ".join(f"{x:.6g}" for x in each.round(3) + 0.0)
                for each in (expected, learned)
            ]
            row += [f"{error:.3f} of {case.probe.tolerance:g}"]
            lines.append(f"| {' | '.join(row)} | {'yes' if good[-1] else 'NO'} |")
            print(lines[-1], flush=True)
        if not words:  # after each case, so that a broken run leaves what it has
            path = Path(__file__).with_suffix(".md")
            path.write_text(report(lines, good))
    print(f"{sum(good)} of {len(good)} rows hold.")


if __name__ == "__main__":
    main(sys.argv[1:])
