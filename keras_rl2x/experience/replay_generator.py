"""Minibatches from a live environment, through a replay memory."""

import math
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import numpy as np

from keras_rl2x import plain
from keras_rl2x.envs import EnvStepper
from keras_rl2x.envs import env_state
from keras_rl2x.envs.stepper import Outcome
from keras_rl2x.envs.stepper import frame_stack
from keras_rl2x.experience.episodes import EpisodeLog
from keras_rl2x.experience.timer import Timer
from keras_rl2x.types import Step
from keras_rl2x.types import Transition

STORE_AT_ONCE = 64  # calls of the env between two writes to the memory


class Stack(NamedTuple):
    """Minibatches for one execution.

    Attributes:
        batches: `Transition` with `[K, B, ...]` leaves, actions in network units.
        step: `[K]` int64, env step at which each gradient step is due.
        previous: `[K]` int64, env step at which the one before was due.
    """

    batches: Transition
    step: np.ndarray
    previous: np.ndarray


class ReplayGenerator:
    """Acts, stores and samples: the environment-backed data generator of `fit`.

    A plain object in the main thread, so that exceptions, Ctrl-C, rendering and
    debuggers behave as in any Python program.

    Args:
        agent: with `explore`, `weights_held`, `action_units`, `progress`, `gamma` and
            `n_step`.
        env: environment to act in.
        memory: where the steps go.
        batch_size: rows per minibatch.
        updates_per_step: gradient steps per env step; fractions are exact in the
            long run.
        steps_per_execution: most env steps that one `draw` is asked for.
        rng: randomness of sampling and of warm-up actions.
        step_timeout: seconds that a call of the env may take, or `None`.
    """

    def __init__(
        self,
        agent: Any,
        env: Any,
        memory: Any,
        *,
        batch_size: int,
        updates_per_step: float,
        steps_per_execution: int,
        rng: np.random.Generator,
        step_timeout: float | None = None,
    ):
        self.agent, self.env, self.memory = agent, env, memory
        self.stepper = EnvStepper(env, warn_outside=True)
        self.configure(
            batch_size, updates_per_step, steps_per_execution, rng, step_timeout
        )
        self.episodes = EpisodeLog(self.stepper.num_envs, agent.progress.episode_means)
        self.timer = Timer()
        self._taken: list[Outcome] = []

    def configure(
        self,
        batch_size: int,
        updates_per_step: float,
        steps_per_execution: int,
        rng: np.random.Generator,
        step_timeout: float | None = None,
    ) -> None:
        """Takes new settings; the episode in progress goes on."""
        self.batch_size, self.updates_per_step = batch_size, updates_per_step
        self.max_batches = max(1, math.ceil(steps_per_execution * updates_per_step))
        self.rng, self.stepper.timeout = rng, step_timeout

    def begin(self, seed: int | None = None) -> None:
        """Starts new episodes, and reserves the memory (or says that it cannot)."""
        self._reset(seed)
        # The first observation may equal the last one of another episode.
        self.memory.break_chains()
        self.agent.exploration.reset(np.ones(self.stepper.num_envs, bool))

    def _reset(self, seed: int | None) -> None:
        if seed is not None:
            self.env.action_space.seed(seed)
        self.stepper.reset(seed)
        self._reserve()

    def get_state(self) -> dict[str, Any]:
        """The env and its episodes in progress, as plain data.

        Returns:
            `environment`, `stepper` and `episodes`; or `unavailable`, which says why
            the env cannot be copied.
        """
        try:
            environment = env_state.get_state(self.env)
        except plain.NotPlain as reason:
            return {"unavailable": str(reason)}
        return {
            "environment": tuple(environment),
            "stepper": self.stepper.get_state(),
            "episodes": self.episodes.get_state(),
        }

    def resume(self, state: dict[str, Any], seed: int | None) -> str | None:
        """Goes on with the episodes of `get_state`, or else begins new ones.

        Args:
            state: from `get_state`.
            seed: for new episodes, or `None`.

        Returns:
            Why new ones began, or `None`.
        """
        reason = state.get("unavailable")
        if reason is None:
            self._reset(None)
            try:
                env_state.set_state(self.env, plain.Frozen(*state["environment"]))
            except plain.NotPlain as difference:
                reason = str(difference)
            else:
                self.stepper.set_state(state["stepper"])
                self.episodes.set_state(state["episodes"])
                return None
        self.begin(seed)
        return reason

    def _reserve(self) -> None:
        stepper, count = self.stepper, self.stepper.num_envs
        if getattr(self.memory, "frame_stack", 1) is None:
            self.memory.frame_stack = frame_stack(self.env)
        example = Step(
            observation=stepper.observation,
            action=self.agent.action_units.to_env(
                self.agent.action_units.uniform(count, np.random.default_rng(0), None)
            ),
            reward=np.zeros(count),
            terminated=np.zeros(count, bool),
            truncated=np.zeros(count, bool),
            next_observation=stepper.observation,
            action_mask=stepper.action_mask,
            next_action_mask=stepper.action_mask,
        )
        self.memory.allocate(example)

    # ------------------------------------------------------------------- acting

    def warm_up(self, steps: int, random: bool) -> None:
        """Acts without learning until the memory holds `steps` steps.

        Args:
            steps: what the memory should hold.
            random: uniformly random actions; else the agent explores as usual.
        """
        self._collect(max(0, steps - len(self.memory)), random=random)
        self.agent.progress.last_update_step = self.agent.progress.env_steps

    def _collect(
        self, steps: int, random: bool = False, learning: bool = False
    ) -> None:
        progress = self.agent.progress
        target = progress.env_steps + steps
        # What the last vector call brought beyond its budget counts now.
        self._count(min(progress.surplus, steps), learning)
        try:
            with self.agent.weights_held():
                while progress.env_steps < target:
                    taken = self._act(random)
                    progress.surplus += taken
                    self._count(min(taken, target - progress.env_steps), learning)
                    if len(self._taken) == STORE_AT_ONCE:
                        self._store()
        finally:
            self._store()

    def _store(self) -> None:
        """Moves the steps taken into the memory, many at once: it costs far less."""
        taken, self._taken = self._taken, []
        if not taken:
            return
        with self.timer("memory"):
            steps = [outcome.step for outcome in taken]
            columns = np.concatenate([outcome.columns for outcome in taken])
            self.memory.add(Step(*map(_join, zip(*steps, strict=True))), columns)

    def _count(self, steps: int, learning: bool) -> None:
        progress = self.agent.progress
        progress.surplus -= steps
        progress.env_steps += steps
        if learning:
            progress.update_credit += steps * self.updates_per_step

    def _act(self, random: bool) -> int:
        """One step in every environment; returns how many true steps it brought."""
        stepper, agent, timer = self.stepper, self.agent, self.timer
        with timer("acting"):
            if random:
                action = agent.action_units.uniform(
                    stepper.num_envs, self.rng, stepper.action_mask
                )
            else:
                step = agent.progress.env_steps + agent.progress.surplus
                action = agent.explore(stepper.observation, step, stepper.action_mask)
            action = agent.action_units.to_env(action)
        with timer("environment"):
            outcome = stepper.step(action)
        self._taken.append(outcome)
        self.episodes.add(outcome.columns, outcome.reward, outcome.ended)
        if outcome.ended.any():
            ended = np.zeros(stepper.num_envs, bool)
            ended[outcome.columns] = outcome.ended
            agent.exploration.reset(ended)
        return len(outcome.columns)

    # ----------------------------------------------------------------- sampling

    def draw(self, steps: int) -> tuple[Stack | None, int]:
        """Acts for `steps` env steps and samples the minibatches that are due.

        Returns:
            `(stack, n)`: the first `n` minibatches of the stack are due. Its size
            is constant, so that one compilation serves every execution; it is
            `None` where nothing is due.
        """
        progress = self.agent.progress
        start, credit = progress.env_steps, progress.update_credit
        self._collect(steps, learning=True)
        # The tolerance makes ten times a tenth one.
        due = min(int(progress.update_credit + 1e-9), self.max_batches)
        if due == 0:
            return None, 0
        progress.update_credit -= due
        with self.timer("memory"):
            batches = self.memory.sample(
                self.batch_size,
                self.max_batches,
                gamma=self.agent.gamma,
                n_step=self.agent.n_step,
                rng=self.rng,
            )
            action = self.agent.action_units.to_network(batches.action)
        number = np.arange(1, self.max_batches + 1)
        step = start + np.ceil((number - credit) / self.updates_per_step - 1e-9)
        step = np.minimum(step, progress.env_steps).astype(np.int64)
        previous = np.concatenate([[progress.last_update_step], step[:-1]])
        progress.last_update_step = int(step[due - 1])
        stack = Stack(batches._replace(action=action), step, previous.astype(np.int64))
        return stack, due

    def learned(self, stack: Stack, n: int, td_error: np.ndarray | None) -> None:
        """Hands the TD errors of the first `n` minibatches to the memory.

        They reach it after the whole execution, so priorities lag by at most one.
        """
        if td_error is not None:
            index = np.asarray(stack.batches.index)[:n].reshape(-1)
            self.memory.update_priorities(index, np.abs(td_error[:n]).reshape(-1))


def _join(parts: Sequence) -> Any:
    """One leaf of many steps, one after the other."""
    if parts[0] is None:
        return None
    if isinstance(parts[0], dict):
        return {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}
    return np.concatenate(parts)
