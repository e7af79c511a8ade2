"""Findings and numbers as text."""

import platform
from collections.abc import Iterable
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version
from typing import Any

from keras_rl2x.diagnostics.finding import Finding
from keras_rl2x.diagnostics.record import History
from keras_rl2x.diagnostics.record import Record

SHOWN = 12  # rows of a table


def report(
    history: History | None, findings: Sequence[Finding], problem: str | None
) -> str:
    """What a person who is to help would ask for, in one text.

    Args:
        history: what was measured, or `None`.
        findings: what was found.
        problem: why nothing could be measured, or `None`.

    Returns:
        Several lines of plain text.
    """
    lines = [_versions()]
    if problem:
        lines += [f"Nothing was measured: {problem}"]
    if history is None or not history.records:
        return "\n".join([*lines, "No measurement yet: pass `Health` to `fit`."])
    lines += [_settings(history), "", f"Findings: {len(findings) or 'none'}"]
    lines += [str(finding) for finding in findings]
    lines += ["", *table(_rows(thinned(history.records)))]
    lines += ["", "Gradients of the newest measurement:"]
    lines += table(_gradients(history.last))
    return "\n".join(lines)


def table(rows: Iterable[Sequence[Any]]) -> list[str]:
    """Lines of a table with aligned columns; the first row is the head."""
    cells = [[_text(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join(
            [row[0].ljust(widths[0])]
            + [cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True)]
        ).rstrip()
        for row in cells
    ]


def thinned(records: list[Record]) -> list[Record]:
    """The first record, the last one, and some between."""
    if len(records) <= SHOWN:
        return records
    places = {round(i * (len(records) - 1) / (SHOWN - 1)) for i in range(SHOWN)}
    return [records[i] for i in sorted(places)]


def _text(cell: Any) -> str:
    if cell is None:
        return "-"
    return f"{cell:.3g}" if isinstance(cell, float) else str(cell)


def _versions() -> str:
    found = []
    for package in ("keras-rl2x", "keras", "tensorflow", "gymnasium"):
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            found.append(f"{package} (not installed as a package)")
    return f"Python {platform.python_version()}, {', '.join(found)}"


def _settings(history: History) -> str:
    setup, record = history.setup, history.last
    rule = f"tau={setup.tau:g}" if setup.tau else f"period={setup.period}"
    parts = [
        f"{setup.num_actions} {setup.actions} actions" if setup.actions == "discrete"
        else f"{setup.num_actions} action dimensions",
        f"gamma={setup.gamma:g}",
        f"TargetUpdate({rule})",
        f"{record.step:,} steps",
        f"{record.gradient_steps:,} gradient steps",
    ]  # fmt: skip
    for name, network in record.networks.items():
        clipping = network.clipping
        clipped = f", {clipping[0]}={clipping[1]:g}" if clipping else ""
        size = sum(weight**2 for weight in network.weights.values()) ** 0.5
        parts.append(
            f"{name}: learning_rate={network.learning_rate:g}{clipped}, weight norm "
            f"{size:.3g}"
        )
    return "; ".join(parts)


def _rows(records: list[Record]) -> Iterable[list[Any]]:
    names = list(records[-1].networks)
    head = ["step", "return", "mean Q", "largest Q", "dQ by action"]
    head += [f"gradient {name}" for name in names]
    yield head + [f"update {name}" for name in names]
    for record in records:
        values = record.values[0] if record.values else None
        networks = [record.networks[name] for name in names]
        yield [
            f"{record.step:,}",
            record.logs.get("episode_return"),
            values and values.mean,
            values and values.largest,
            values and float(values.by_action),
            *(network.gradient_norm for network in networks),
            *(network.update_ratio for network in networks),
        ]


def _gradients(record: Record) -> Iterable[list[Any]]:
    yield ["variable", "gradient norm", "weight norm", "update per step"]
    for name, network in record.networks.items():
        for path, norm in network.gradients.items():
            weight, update = network.weights[path], network.updates.get(path)
            yield [f"{name}: {path}", norm, weight, update]
