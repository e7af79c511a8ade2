"""The callback that says what is wrong with an agent that does not learn."""

import os
from typing import Any

import keras
import numpy as np

from keras_rl2x.diagnostics.checks import CHECKS
from keras_rl2x.diagnostics.finding import SEVERITIES
from keras_rl2x.diagnostics.finding import Finding
from keras_rl2x.diagnostics.meter import Meter
from keras_rl2x.diagnostics.plot import plot
from keras_rl2x.diagnostics.record import History
from keras_rl2x.diagnostics.record import Record
from keras_rl2x.diagnostics.report import report
from keras_rl2x.ops.checks import check_whole

EARLY = (100, 250, 500, 1_000)  # env steps: most mistakes show at once
KEPT = 1_000  # records


class Health(keras.callbacks.Callback):
    """Names what keeps an agent from learning, with evidence and a remedy.

    Looks at the agent when learning begins, soon after, and then every `every` steps:
    gradients, units of layers, target networks, values, data and actions, on one
    minibatch of its own choice. Each finding is printed once, the root cause first.
    Training is not changed: the same seed gives the same weights with and without.

    Works with every `Agent`. What an agent does not offer is not looked at; if a
    `train_step` cannot be traced, `problem` says why and nothing is measured. A second
    `fit` goes on with the findings; another agent begins anew.

    Args:
        every: int, env steps between two looks. Fewer find faults sooner and cost
            more. Up to it, there are looks after 100, 250, 500 and 1,000 steps as well.
        stop_on: `"error"` or `"warning"` ends the training at a finding of that
            severity or above; `None` never does.
        verbose: print the findings.

    Attributes:
        findings: list of `Finding`, each with `code`, `severity`, `where`,
            `evidence`, `remedy` and `first_step`, in the order of their discovery.
        history: all that was measured.
        problem: why nothing could be measured, or `None`.

    Raises:
        ValueError: for arguments out of range.

    Example:
    ```python
    health = Health(stop_on="error")
    agent.fit(env, epochs=20, callbacks=[health])
    print(health.report())
    health.plot("health.png")
    ```
    """

    def __init__(
        self, every: int = 2_000, stop_on: str | None = None, verbose: bool = True
    ):
        super().__init__()
        if stop_on not in (None, *SEVERITIES):
            raise ValueError(
                f"`stop_on` must be 'error', 'warning' or None. Received: {stop_on!r}."
            )
        self.every, self.stop_on = check_whole("every", every), stop_on
        self.verbose = bool(verbose)
        self.findings: list[Finding] = []
        self.history: History | None = None
        self.problem: str | None = None
        self._meter: Meter | None = None
        self._episodes: list[tuple[float, float]] = []

    # ------------------------------------------------------------------ the hooks

    def on_train_begin(self, logs=None):
        agent, params = self.model, self.params
        steps = (params.get("epochs") or 1) * (params.get("steps") or 0)
        self._begin = agent.env_steps
        self._before, self._before_steps = None, 0
        self.problem = None
        if self._meter is not None and self._meter.agent is not agent:
            self.findings, self.history, self._episodes = [], None, []
        try:
            self._meter = Meter(agent, end_step=self._begin + steps)
            first = self._meter.record()
        except Exception as error:  # whatever a user's own agent may lack
            self._meter = None
            self.problem = f"{type(error).__name__}: {str(error).splitlines()[0]}"
            return
        records = [] if self.history is None else self.history.records
        self.history = History(self._meter.setup(), records)
        self._add(first)

    def on_train_batch_end(self, batch, logs=None):
        if self._meter is None:
            return
        agent = self.model
        if self._before is not None:
            steps = agent.gradient_steps - self._before_steps
            if steps > 0:
                weights, self._before = self._before, None
                self._look(weights, steps, logs)
        elif agent.env_steps >= self._next:
            # The execution that follows shows how far a step goes.
            self._before, self._before_steps = (
                self._meter.weights(),
                agent.gradient_steps,
            )

    def on_epoch_end(self, epoch, logs=None):
        if logs is not None and self.history is not None:
            logs.update(self.numbers())

    def on_test_batch_end(self, batch, logs=None):
        if logs and "episode_return" in logs:
            self._episodes.append((logs["episode_return"], logs["episode_length"]))
            del self._episodes[:-20]

    # -------------------------------------------------------------- the measuring

    def _look(self, before: Any, steps: int, logs: dict | None) -> None:
        try:
            record = self._meter.record(before, steps, logs, tuple(self._episodes))
        except Exception as error:  # networks that are changed on the way
            self._meter = None
            self.problem = f"{type(error).__name__}: {str(error).splitlines()[0]}"
            return
        self._add(record)

    def _add(self, record: Record) -> None:
        """Keeps a record, and asks every check about it."""
        records = self.history.records
        records.append(record)
        del records[1 : len(records) - KEPT]
        self._next = self._due_after(record.step)
        for check in CHECKS:
            finding = check(self.history)
            if finding is not None:
                self._say(finding.at(record.step))

    def _due_after(self, step: int) -> int:
        """Env step of the next look: early ones first, then each `every`."""
        done = step - self._begin
        for early in EARLY:
            if done < early <= self.every:
                return self._begin + early
        return self._begin + (done // self.every + 1) * self.every

    def _say(self, finding: Finding) -> None:
        known = {(each.code, each.where) for each in self.findings}
        if (finding.code, finding.where) in known:
            return
        self.findings.append(finding)
        if self.verbose:
            print(f"\n{finding}", flush=True)
        rank = SEVERITIES.index
        if self.stop_on and rank(finding.severity) >= rank(self.stop_on):
            self.model.stop_training = True

    # ----------------------------------------------------------------- the results

    def numbers(self) -> dict[str, float]:
        """The newest `health/…` numbers, as in the logs of an epoch; all finite."""
        record, numbers = self.history.last, {}
        for name, network in record.networks.items():
            layers = [layer for layer in network.layers if not layer.is_output]
            dead = [layer.dead for layer in layers if layer.activation == "relu"]
            numbers[f"gradient_norm/{name}"] = network.gradient_norm
            numbers[f"update_ratio/{name}"] = network.update_ratio or 0.0
            if dead:
                numbers[f"dead_units/{name}"] = float(np.mean(dead))
        for target in record.targets:
            numbers[f"target_distance/{target.name}"] = target.distance
        for values in record.values:
            numbers[f"largest_value/{values.network}"] = values.largest
        if record.acting is not None and self.history.setup.actions == "continuous":
            numbers["actions_at_bound"] = record.acting.at_bound
        numbers["findings"] = float(len(self.findings))
        largest = float(np.finfo(np.float32).max)  # a NaN would stay best for ever
        return {
            f"health/{name}": float(np.nan_to_num(value, nan=largest, posinf=largest))
            for name, value in numbers.items()
        }

    def report(self) -> str:
        """Findings, settings and numbers as text, to be pasted into a question."""
        return report(self.history, self.findings, self.problem)

    def plot(self, path: str | os.PathLike) -> None:
        """Draws what was measured into a file; needs the extra `plot`.

        Args:
            path: of a PNG, SVG or PDF.

        Raises:
            ImportError: naming the extra to install.
            ValueError: before anything was measured.
        """
        plot(self.history, self.findings, path)
