"""Every fault of the zoo in `tests/diagnostics/zoo.py`, and what is found first.

Needs a checkout. Writes the table `fault_zoo.md` beside this file; about five minutes
on two CPU cores.
"""

import argparse
import sys
from pathlib import Path

import keras

sys.path.insert(0, str(Path(__file__).parents[2]))

from keras_rl2x.diagnostics import explain_gradients
from tests.diagnostics import zoo


def faults(chosen):
    """Rows for the faults in our agents, with how often the first one is right."""
    for each in chosen:
        _, findings = zoo.run(each)
        first = findings[0] if findings else None
        remedy = "–"
        if each.check is not None:
            remedy = "learns" if learns(each) else "DOES NOT LEARN"
        yield (
            each.name,
            each.code,
            first.code if first else "nothing",
            "before training"
            if each.before
            else f"{first.first_step:,}"
            if first
            else "–",
            remedy,
        )
        keras.backend.clear_session()


def learns(each):
    """Whether the agent learns its probe once the remedy is applied."""
    agent, _ = zoo.run(each, cured=True)
    try:
        each.check(agent)
    except AssertionError:
        return False
    return True


def programs():
    """Rows for programs without our agents."""
    for each in zoo.PROGRAMS:
        found = explain_gradients(*each.make()).unreached[0].cause
        yield each.name, each.cause, found, "before training", "–"


def healthy(chosen):
    """Rows for runs in which nothing is wrong."""
    for each in chosen:
        findings = zoo.run_healthy(each)
        codes = ", ".join(f"{f.severity} {f.code}" for f in findings)
        yield each.name, str(each.seed), f"{each.steps:,}", codes or "none"
        keras.backend.clear_session()


def table(head, rows):
    """Lines of a Markdown table, printed as they come."""
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    for row in rows:
        lines.append("| " + " | ".join(row) + " |")
        print(lines[-1], flush=True)
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="part of a name; writes nothing")
    args = parser.parse_args()
    head = ("what is wrong", "expected", "found first", "at step", "with the remedy")
    chosen = [each for each in zoo.FAULTS if args.only in each.name]
    if args.only:
        table(head, faults(chosen))
        return
    rows = [*faults(chosen), *programs()]
    right = sum(expected == found for _, expected, found, _, _ in rows)
    lines = [
        "# The fault zoo",
        "",
        f"{right} of {len(rows)} faulty set-ups get the right name first, within "
        f"{zoo.STEPS:,} steps. Written by `fault_zoo.py`; the set-ups are in "
        "[tests/diagnostics/zoo.py](../../tests/diagnostics/zoo.py).",
        "",
        *table(head, rows),
        "",
        "Runs in which nothing is wrong:",
        "",
        *table(("run", "seed", "steps", "findings"), healthy(zoo.HEALTHY)),
    ]
    Path(__file__).with_name("fault_zoo.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
