"""One `fit`: from env steps to gradient steps."""

import math
from typing import Any

import numpy as np

from keras_rl2x.agents import resume
from keras_rl2x.agents.state import RandomStreams
from keras_rl2x.experience import ReplayGenerator


class Session:
    """Acts and learns for one `fit`; Keras calls `execute` in its own loop.

    `terminates_on_nan` says that a callback of Keras ends the training at a NaN, so
    that none needs to be raised.

    Args:
        agent: bound and compiled.
        env: environment to act in.
        steps_per_epoch: env steps per epoch.
        batch_size: rows per minibatch.
        seed: begins new random streams and episodes; `None` goes on with the old.
        last: session of the last `fit`, whose episodes go on if the env is the same.
        resumed: what `get_state` gave in the run that this one goes on with.
        step_timeout: seconds that a call of the env may take, or `None`.

    Attributes:
        passing: executions of the first epoch that were taken before a resume; Keras
            comes by for them too.
        new_episode: why a resumed run began a new episode, or `None`.
        callbacks: list of this `fit`, with `get_state`.
    """

    def __init__(
        self,
        agent: Any,
        env: Any,
        steps_per_epoch: int,
        batch_size: int,
        seed: int | None,
        last: "Session | None",
        resumed: dict[str, Any] | None = None,
        step_timeout: float | None = None,
    ):
        self.agent, self.run = agent, agent._run
        self.steps_per_epoch, self._resumed = steps_per_epoch, resumed
        self.logs: dict[str, float] = {}
        self.terminates_on_nan = False
        self.callbacks: Any = None
        self.passing, self.closed = 0, False
        self.new_episode: str | None = None
        if seed is not None and resumed is None:
            self.run.streams = RandomStreams(seed)
        self.steps_per_execution = self._execution(int(getattr(env, "num_envs", 1)))
        settings = {
            "batch_size": batch_size,
            "updates_per_step": self.run.updates_per_step,
            "steps_per_execution": self.steps_per_execution,
            "rng": self.run.streams.sample,
            "step_timeout": step_timeout,
        }
        if resumed is not None:
            self.generator = ReplayGenerator(agent, env, self.run.memory, **settings)
            self._resume(resumed, seed)
        elif last is not None and last.generator.env is env and seed is None:
            self.generator = last.generator
            self.generator.configure(**settings)
        else:
            self.generator = ReplayGenerator(agent, env, self.run.memory, **settings)
            self.generator.begin(seed)

    @property
    def initial_epoch(self) -> int:
        """Epochs that a resumed run has finished."""
        return self.run.progress.epoch + self._resumed["closed"]

    @property
    def in_epoch(self) -> bool:
        """Whether it is about to go on in the middle of an epoch."""
        return self._resumed is not None and not self._resumed["closed"]

    def _resume(self, state: dict[str, Any], seed: int | None) -> None:
        """Goes on where another run was; its random streams go on too."""
        progress = self.run.progress
        if seed is not None:
            # For new episodes, if need be: not those of the beginning again.
            entropy = np.random.SeedSequence([seed, progress.env_steps])
            seed = int(entropy.generate_state(1)[0])
        episodes = state.get("generator", state)
        self.new_episode = self.generator.resume(episodes, seed)
        self.logs, self.closed = state.get("logs", {}), state["closed"]
        if self.in_epoch:
            taken = progress.epoch_steps / self.steps_per_execution
            over = progress.epoch_steps >= self.steps_per_epoch
            self.passing = math.ceil(taken) if over else int(taken)

    def get_state(self) -> dict[str, Any]:
        """What decides how it goes on besides agent and memory, as plain data."""
        return {
            "closed": self.closed,
            "logs": self.logs,
            "generator": self.generator.get_state(),
            "callbacks": self.callbacks.get_state(),
        }

    def _execution(self, num_envs: int) -> int:
        """Env steps per execution: whole vector steps, at most an epoch."""
        wanted = self.run.configured_execution
        whole = math.ceil(min(wanted, self.steps_per_epoch) / num_envs) * num_envs
        return min(whole, self.steps_per_epoch)

    def warm_up(self, verbose: bool) -> None:
        """Fills the memory before learning, if it holds too little."""
        memory = self.run.memory
        wanted = self.generator.batch_size
        if self._resumed is None:
            wanted = max(self.run.warmup_steps, wanted)
        wanted = min(wanted, getattr(memory, "capacity", wanted))
        missing = wanted - len(memory)
        if missing > 0:
            # An agent that has learned already acts by what it knows.
            random = self.run.progress.gradient_steps == 0
            if verbose:
                kind = "random" if random else "exploring"
                print(
                    f"Filling the memory with {missing:,} {kind} steps before learning"
                )
            self.generator.warm_up(wanted, random=random)
        self.generator.timer.seconds.clear()

    def begin_epoch(self, epoch: int) -> None:
        """Starts the counts and the clock of an epoch."""
        progress = self.run.progress
        self.generator.timer.start_clock(progress.env_steps)
        state, goes_on, self._resumed = self._resumed, self.in_epoch, None
        self.closed = False
        if state is not None and "random" in state:
            resume.set_random(state)
        if goes_on:
            resume.set_metrics(self.agent, state["metrics"])
            return
        progress.epoch, progress.epoch_steps = epoch, 0
        self.generator.episodes.new_epoch()

    def end_epoch(self) -> None:
        """Notes that all callbacks have seen the end of the epoch."""
        self.closed = True

    def execute(self) -> dict[str, Any]:
        """Takes the steps of one execution and learns; returns the logs."""
        if self.passing > 0:
            self.passing -= 1
            return self._all_logs()
        progress, generator = self.run.progress, self.generator
        left = self.steps_per_epoch - progress.epoch_steps
        before = progress.env_steps
        try:
            stack, n = generator.draw(min(self.steps_per_execution, left))
        except StopIteration as error:
            # Keras would end the training as if the data had run out.
            text = f"The environment raised StopIteration: {error}"
            raise RuntimeError(text).with_traceback(error.__traceback__) from error
        finally:
            progress.epoch_steps += progress.env_steps - before
        if n > 0:
            with generator.timer("updating"):
                errors = self._learn(stack, n)
            generator.learned(stack, n, None if errors is None else np.asarray(errors))
        return self._all_logs()

    def _all_logs(self) -> dict[str, Any]:
        steps, generator = self.run.progress.env_steps, self.generator
        return {
            **self.logs,
            **self.run.exploration.values(steps),
            **generator.episodes.logs(),
            "steps_per_second": generator.timer.rate(steps),
        }

    def _learn(self, stack: Any, n: int) -> Any:
        """Learns, keeps the numbers, and returns the TD errors."""
        try:
            logs, errors = self.agent.learn(stack, n)
        except FloatingPointError:
            if not self.terminates_on_nan:
                raise
            self.logs = {**self.logs, "loss": math.nan}  # Keras' callback ends the run
            return None
        # Fetching the numbers waits for the computation.
        self.logs = {name: float(value) for name, value in logs.items()}
        return errors
