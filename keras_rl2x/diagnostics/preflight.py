"""A look at an agent and an environment before training."""

import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from dataclasses import replace
from typing import Any

import numpy as np

from keras_rl2x.diagnostics.checks import CHECKS
from keras_rl2x.diagnostics.checks.networks import mixed_layouts
from keras_rl2x.diagnostics.finding import Finding
from keras_rl2x.diagnostics.finding import error
from keras_rl2x.diagnostics.finding import warning
from keras_rl2x.diagnostics.meter import Meter
from keras_rl2x.diagnostics.record import History
from keras_rl2x.diagnostics.record import Record
from keras_rl2x.envs import EnvStepper
from keras_rl2x.envs import spaces
from keras_rl2x.envs.stepper import frame_stack
from keras_rl2x.memories import ReplayMemory

GIB = 2**30
NO_END = 10**9  # env step at which a run ends that is not yet planned


@dataclass(frozen=True)
class Preflight:
    """What `Agent.diagnose` has seen; prints as a table with the findings below it.

    Attributes:
        rows: pairs of a name and what was measured.
        findings: list of `Finding`, the root cause first.
    """

    rows: tuple[tuple[str, str], ...]
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    def __str__(self) -> str:
        width = max((len(name) for name, _ in self.rows), default=0)
        lines = [f"{name.ljust(width)}  {text}" for name, text in self.rows]
        lines += ["", f"Findings: {len(self.findings) or 'none'}"]
        return "\n".join([*lines, *map(str, self.findings)])


def preflight(agent: Any, env: Any, steps: int) -> Preflight:
    """Acts at random for some steps and takes one gradient step that is undone.

    Args:
        agent: compiled.
        env: environment, single or vector. It is reset and stepped.
        steps: env steps to take.

    Returns:
        A table and findings.
    """
    networks = {name: getattr(agent, name) for name in agent.trained}
    finding = mixed_layouts(networks)
    if finding is not None:
        return Preflight((), (finding,))
    try:
        agent.bind(*spaces.single_spaces(env))
    except (ValueError, TypeError) as problem:
        return Preflight((), (_refused(problem, "`env` and the networks"),))
    walk = _Walk(agent, env)
    rows = [
        ("observations", str(agent.observation_space)),
        ("actions", str(agent.action_space)),
    ]
    try:
        outside = walk.take(steps)
    except (ValueError, TypeError) as problem:
        where = f"`reset` or `step` of {type(env.unwrapped).__name__}"
        return Preflight(tuple(rows), (_refused(problem, where),))
    rows += walk.rows()
    meter = Meter(agent, memory=walk.memory, end_step=NO_END)
    record = meter.record()
    setup = replace(meter.setup(), steps_at_start=_warmup(agent))
    rows += [*_networks(agent, record), *_costs(agent, walk)]
    found = [check(History(setup, [record])) for check in CHECKS]
    findings = [each.at(agent.env_steps) for each in (*outside, *found) if each]
    if "gradient_missing" not in {each.code for each in findings}:
        rows += [_speed(agent, walk, meter)]
    return Preflight(tuple(rows), tuple(findings))


def _refused(problem: Exception, where: str) -> Finding:
    """An error that `fit` would raise, as a finding."""
    text = " ".join(str(problem).split())
    evidence, _, remedy = text.partition(". ")
    return error(
        "refused", where, f"{evidence}.", remedy or "`fit` would raise this error."
    )


def _setting(agent: Any, name: str) -> Any:
    given = agent.get_compile_config()[name]
    return getattr(agent.defaults(), name) if given is None else given


def _warmup(agent: Any) -> int:
    return max(_setting(agent, "warmup_steps"), len(agent.memory))


class _Walk:
    """Random steps in an environment, with a memory and randomness of its own."""

    def __init__(self, agent: Any, env: Any):
        self.units, self.env = agent.action_units, env
        self.memory = ReplayMemory(10_000, frame_stack=frame_stack(env))
        self.rewards: list[float] = []
        self.lengths: list[int] = []
        self.ends = {"terminated": 0, "truncated": 0}
        self.seconds = 0.0

    def take(self, steps: int) -> list[Finding]:
        """Takes at least so many steps; returns what the environment does wrong."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self._take(steps)
        texts = dict.fromkeys(str(each.message) for each in caught)
        return [
            warning(
                "environment_warns",
                f"`step` of {type(self.env.unwrapped).__name__}",
                " ".join(text.split())[:300],
                "Mend the environment, or declare its spaces as they are.",
            )
            for text in texts
        ]

    def _take(self, steps: int) -> None:
        rng = np.random.default_rng(0)
        stepper = EnvStepper(self.env, warn_outside=True)
        stepper.reset(0)
        length = np.zeros(stepper.num_envs, int)
        while len(self.rewards) < steps:
            mask = stepper.action_mask
            action = self.units.uniform(stepper.num_envs, rng, mask)
            start = time.perf_counter()
            outcome = stepper.step(self.units.to_env(action))
            self.seconds += time.perf_counter() - start
            self.memory.add(outcome.step, outcome.columns)
            self.rewards += np.asarray(outcome.reward).tolist()
            length[outcome.columns] += 1
            over = outcome.columns[outcome.ended]
            self.lengths += length[over].tolist()
            length[over] = 0
            terminated = np.asarray(outcome.step.terminated)
            self.ends["terminated"] += int((terminated & outcome.ended).sum())
            self.ends["truncated"] += int((~terminated & outcome.ended).sum())

    def rows(self) -> Iterator[tuple[str, str]]:
        """What the environment is like."""
        low, high, mean = (f(self.rewards) for f in (np.min, np.max, np.mean))
        yield "rewards", f"{low:.3g} to {high:.3g}, mean {mean:.3g}"
        text = f"none ended in {len(self.rewards)} random steps"
        if self.lengths:
            ends = ", ".join(f"{count} {name}" for name, count in self.ends.items())
            text = (
                f"{len(self.lengths)} of {np.mean(self.lengths):.0f} steps on average "
                f"({ends})"
            )
        yield "episodes", text


def _networks(agent: Any, record: Record) -> Iterator[tuple[str, str]]:
    for name, network in record.networks.items():
        count = getattr(agent, name).count_params()
        text = f"{count:,} parameters, gradient norm {network.gradient_norm:.3g}"
        yield f"`{name}`", text


def _costs(agent: Any, walk: _Walk) -> Iterator[tuple[str, str]]:
    capacity = getattr(agent.memory, "capacity", None)
    if capacity is not None:
        size = walk.memory.nbytes / walk.memory.capacity * capacity / GIB
        yield "memory", f"{size:.3g} GiB for {capacity:,} steps"


def _speed(agent: Any, walk: _Walk, meter: Meter) -> tuple[str, str]:
    update = meter.seconds_per_update(agent.defaults().batch_size)
    step = walk.seconds / len(walk.rewards)
    rate = 1.0 / (step + update * _setting(agent, "updates_per_step"))
    text = f"environment {1e3 * step:.2g} ms, update {1e3 * update:.2g} ms"
    return "speed", f"about {rate:,.0f} steps/s ({text})"
