"""One `fit`: from env steps to gradient steps."""

import math
from typing import Any

import numpy as np

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
        already: env steps of the first epoch that were taken before (after a resume).
        last: session of the last `fit`, whose episodes go on if the env is the same.
    """

    def __init__(
        self,
        agent: Any,
        env: Any,
        steps_per_epoch: int,
        batch_size: int,
        seed: int | None,
        already: int,
        last: "Session | None",
    ):
        self.agent, self.run = agent, agent._run
        self.steps_per_epoch, self._already = steps_per_epoch, already
        self.logs: dict[str, float] = {}
        self.terminates_on_nan = False
        if seed is not None:
            self.run.streams = RandomStreams(seed)
        self.steps_per_execution = self._execution(int(getattr(env, "num_envs", 1)))
        settings = {
            "batch_size": batch_size,
            "updates_per_step": self.run.updates_per_step,
            "steps_per_execution": self.steps_per_execution,
            "rng": self.run.streams.sample,
        }
        if last is not None and last.generator.env is env and seed is None:
            self.generator = last.generator
            self.generator.configure(**settings)
        else:
            self.generator = ReplayGenerator(agent, env, self.run.memory, **settings)
            self.generator.begin(seed)

    def _execution(self, num_envs: int) -> int:
        """Env steps per execution: whole vector steps, at most an epoch."""
        wanted = self.run.configured_execution
        whole = math.ceil(min(wanted, self.steps_per_epoch) / num_envs) * num_envs
        return min(whole, self.steps_per_epoch)

    def warm_up(self, verbose: bool) -> None:
        """Fills the memory before learning, if it holds too little."""
        memory = self.run.memory
        wanted = max(self.run.warmup_steps, self.generator.batch_size)
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
        progress.epoch, progress.epoch_steps = epoch, self._already
        self._already = 0
        self.generator.episodes.new_epoch()
        self.generator.timer.start_clock(progress.env_steps)

    def execute(self) -> dict[str, Any]:
        """Takes the steps of one execution and learns; returns the logs."""
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
        return {
            **self.logs,
            **self.run.exploration.values(progress.env_steps),
            **generator.episodes.logs(),
            "steps_per_second": generator.timer.rate(progress.env_steps),
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
