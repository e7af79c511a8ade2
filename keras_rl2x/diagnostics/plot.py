"""One figure that shows at a glance how an agent is."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_rl2x.diagnostics.checks.values import discounted
from keras_rl2x.diagnostics.finding import Finding
from keras_rl2x.diagnostics.record import History
from keras_rl2x.diagnostics.record import Record

SIZE = (13.0, 8.0)  # inches
MOST_LINES = 8


def plot(
    history: History | None, findings: Sequence[Finding], path: str | os.PathLike
) -> None:
    """Draws gradients, updates, values and actions over the steps into a file.

    Without a display, and without touching the state of `matplotlib.pyplot`.

    Args:
        history: what was measured.
        findings: what was found.
        path: of the figure.

    Raises:
        ImportError: naming the extra to install.
        ValueError: before anything was measured.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            'A plot needs matplotlib: pip install "keras-rl2x[plot]".'
        ) from error
    if history is None or not history.records:
        raise ValueError(
            "Nothing was measured yet: pass `Health` to `fit`, then plot. If it was "
            "passed, `health.problem` says why."
        )
    figure = Figure(figsize=SIZE, layout="constrained")
    axes = figure.subplots(2, 3)
    figure.suptitle(_title(findings), ha="left", x=0.01, fontsize=11)
    _gradients(axes[0, 0], history)
    _updates(axes[0, 1], history)
    _values(axes[0, 2], history)
    _units(axes[1, 0], history)
    _targets(axes[1, 1], history)
    _actions(axes[1, 2], history)
    for axis in axes.flat:
        axis.grid(alpha=0.3)
        for finding in findings:
            if axis is not axes[1, 2]:
                color = "tab:red" if finding.severity == "error" else "tab:orange"
                axis.axvline(finding.first_step, color=color, alpha=0.4, linestyle=":")
    figure.savefig(path, dpi=110)


def _title(findings: Sequence[Finding]) -> str:
    if not findings:
        return "No findings"
    shown = [f"{each.severity}: {each.code} in {each.where}" for each in findings[:4]]
    more = len(findings) - len(shown)
    return "\n".join([*shown, *([f"and {more} more"] if more else [])])


def _lines(axis: Any, history: History, title: str, lines: dict[str, list]) -> None:
    steps = [record.step for record in history.records]
    for name, numbers in lines.items():
        known = [(x, y) for x, y in zip(steps, numbers, strict=True) if y is not None]
        if known:
            axis.plot(*zip(*known, strict=True), marker=".", label=name)
    axis.set_title(title, fontsize=10)
    axis.set_xlabel("env steps")
    if axis.get_legend_handles_labels()[1]:
        axis.legend(fontsize=7)


def _logarithmic(axis: Any) -> None:
    shown = np.concatenate([[0.0], *(line.get_ydata() for line in axis.lines)])
    if (shown > 0).any():
        axis.set_yscale("log")


def _gradients(axis: Any, history: History) -> None:
    kernels = [
        (name, path)
        for name, network in history.last.networks.items()
        for path in network.gradients
        if path.endswith("kernel")
    ]
    lines = {
        f"{name}: {path.removesuffix('/kernel')}": [
            record.networks[name].gradients.get(path) for record in history.records
        ]
        for name, path in kernels[:MOST_LINES]
    }
    _lines(axis, history, "gradient norm by layer", lines)
    _logarithmic(axis)


def _updates(axis: Any, history: History) -> None:
    names = history.last.networks
    lines = {
        name: [record.networks[name].update_ratio for record in history.records]
        for name in names
    }
    _lines(axis, history, "change per gradient step / weights", lines)
    axis.axhspan(1e-4, 1e-2, color="tab:green", alpha=0.1)
    axis.text(0.02, 2e-4, "usual", transform=axis.get_yaxis_transform(), fontsize=7)
    axis.set_yscale("log")


def _values(axis: Any, history: History) -> None:
    records = history.records
    lines: dict[str, list] = {}
    for i, values in enumerate(history.last.values):
        lines[f"mean Q of {values.network}"] = [
            record.values[i].mean if i < len(record.values) else None
            for record in records
        ]
    lines["return, discounted"] = [_discounted(history, r) for r in records]
    lines["greedy return, discounted"] = [
        float(np.mean([discounted(history, *each) for each in record.evaluations]))
        if record.evaluations
        else None
        for record in records
    ]
    _lines(axis, history, "Q against return", lines)


def _discounted(history: History, record: Record) -> float | None:
    keys = ("episode_return", "episode_length")
    if not all(key in record.logs for key in keys):
        return None
    return discounted(history, *(record.logs[key] for key in keys))


def _units(axis: Any, history: History) -> None:
    lines = {}
    for name, network in history.last.networks.items():
        for i, layer in enumerate(network.layers):
            kind = {"relu": "dead"}.get(layer.activation, "saturated")
            if layer.activation in ("relu", "tanh", "sigmoid", "hard_sigmoid"):
                lines[f"{name}: {layer.name} {kind}"] = [
                    getattr(record.networks[name].layers[i], kind)
                    for record in history.records
                ]
    shown = dict(list(lines.items())[:MOST_LINES])
    _lines(axis, history, "share of dead or saturated units", shown)
    axis.set_ylim(-0.02, 1.02)


def _targets(axis: Any, history: History) -> None:
    lines = {
        target.name: [record.targets[i].distance for record in history.records]
        for i, target in enumerate(history.last.targets)
    }
    _lines(axis, history, "distance of target and online / weights", lines)


def _actions(axis: Any, history: History) -> None:
    acting = history.last.acting
    axis.set_title("greedy actions of the newest measurement", fontsize=10)
    if acting is None or not acting.histogram:
        return
    if history.setup.actions == "discrete":
        axis.bar(range(len(acting.histogram)), acting.histogram)
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.set_xlabel("action")
    else:
        edges = np.linspace(-1.0, 1.0, len(acting.histogram) + 1)
        axis.bar(edges[:-1], acting.histogram, np.diff(edges), align="edge")
        axis.set_xlabel("action in [-1, 1], all dimensions")
    axis.set_ylabel("share")
