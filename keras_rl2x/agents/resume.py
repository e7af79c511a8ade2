"""What a checkpoint holds of a `fit` besides the agent and its memory, and back."""

import os
import random
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_rl2x import plain
from keras_rl2x.callbacks import checkpoint

FORMAT = 1


def run_state(agent: Any) -> dict[str, Any] | None:
    """The `fit` in progress, as plain data; `None` before there is one."""
    session = agent._run.session
    if session is None:
        return None
    return {
        "format": FORMAT,
        "stopped": bool(agent.stop_training),
        "metrics": {
            metric.name: [variable.numpy() for variable in metric.variables]
            for metric in agent.metrics
        },
        # An environment of the user's may draw from these.
        "random": random.getstate(),
        "numpy random": np.random.get_state(),
        **session.get_state(),
    }


def load(agent: Any, directory: str | os.PathLike) -> dict[str, Any] | None:
    """Loads the newest complete checkpoint into an agent, if there is one.

    Returns:
        The state of its `fit`, or `None` where there is no checkpoint.

    Raises:
        ValueError: if the checkpoint does not fit the agent.
    """
    path = checkpoint.newest(directory)
    if path is None:
        return None
    state = _read(path)
    memory = type(agent.memory).load(path / "memory")
    agent.load_weights(path / "agent.keras")
    agent._run.memory = agent._run.compile_arguments["memory"] = memory
    return state


def _read(path: Path) -> dict[str, Any]:
    if not (path / "run.json").exists():
        # Written outside of a `fit`.
        return {"closed": True, "unavailable": "the checkpoint was written outside fit"}
    state = plain.read(path / "run")
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        got = state.get("format") if isinstance(state, dict) else None
        raise ValueError(
            f"{str(path)!r} has format {got!r}, and this version of keras_rl2x reads "
            f"format {FORMAT}. Resume it with the version that wrote it."
        )
    return state


def report(state: dict[str, Any], session: Any, done: int) -> None:
    """Says where a resumed run does not go on as one would expect."""
    if state.get("stopped"):
        print(
            f"A callback stopped this run after {done} epochs. To train on, call `fit` "
            "once more, without `resume`"
        )
    elif session.new_episode is not None:
        print(f"Resuming at a new episode: {session.new_episode}")


def set_metrics(agent: Any, values: dict[str, list]) -> None:
    """Goes on with the means of the epoch in progress."""
    metrics = {metric.name: metric for metric in agent.metrics}
    for name, numbers in values.items():
        if name not in metrics:
            # Those of `track` are made in the first gradient step.
            metrics[name] = keras.metrics.Mean(name=name)
            agent._run.trackers[name] = metrics[name]
        for variable, number in zip(metrics[name].variables, numbers, strict=True):
            variable.assign(number)


def set_random(state: dict[str, Any]) -> None:
    """Goes on with the random numbers of Python and of NumPy's old interface."""
    random.setstate(state["random"])
    np.random.set_state(state["numpy random"])


def seeds(agent: keras.Model) -> list[Any]:
    """Variables that random layers draw from; Keras saves them in no file."""
    metrics = [*agent.metrics, *keras.Model.metrics.fget(agent)]
    known = {id(v) for v in agent.weights}
    known |= {id(v) for metric in metrics for v in metric.variables}
    return [variable for variable in agent.variables if id(variable) not in known]
