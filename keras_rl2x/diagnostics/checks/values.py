"""Q-values: whether they can be true."""

import numpy as np

from keras_rl2x.diagnostics.finding import Finding
from keras_rl2x.diagnostics.finding import error
from keras_rl2x.diagnostics.finding import warning
from keras_rl2x.diagnostics.record import History

EVALUATIONS = 3
NO_DIFFERENCE = 1e-5


def values_diverging(run: History) -> Finding | None:
    """Q grows ever faster, beyond all that rewards allow."""
    values, bound = _beyond(run)
    if values is None:
        return None
    records = run.latest(3)
    sizes = [_largest(record, values.network) for record in records]
    before, now = np.diff(sizes) / np.diff([record.step for record in records])
    if not now > 1.2 * before > 0.0:
        return None
    text = ", ".join(f"{size:.3g}" for size in sizes)
    return error(
        "values_diverging",
        f"the values of `{values.network}`",
        f"The largest |Q| of the last measurements: {text}; rewards allow {bound:.3g}.",
        "Lower the learning rate, slow down `TargetUpdate`, clip gradients "
        "(`global_clipnorm=10.0`), and see that targets use `batch.discount`.",
    )


def values_beyond_bound(run: History) -> Finding | None:
    """Q beyond `r_max / (1 - gamma)`."""
    values, bound = _beyond(run)
    if values is None:
        return None
    return error(
        "values_beyond_bound",
        f"the values of `{values.network}`",
        f"|Q| reaches {values.largest:.3g}, but with rewards of at most "
        f"{run.last.data.reward_largest:.3g} and gamma {run.setup.gamma:g} no return "
        f"exceeds {bound:.3g}.",
        "See that the target is `reward + batch.discount * next_value`, with the "
        "target network; lower the learning rate.",
    )


def _beyond(run: History) -> tuple:
    """The first network whose values are beyond the bound to stay, and the bound."""
    records, gamma = run.latest(3), run.setup.gamma
    if not records or run.last.data is None or gamma >= 1.0:
        return None, 0.0
    reward = run.last.data.reward_largest
    bound = reward / (1.0 - gamma)
    for values in run.last.values:
        start = _largest(run.records[0], values.network)
        limit = 1.5 * bound + 2.0 * start
        if reward and all(
            _largest(record, values.network) > limit for record in records[1:]
        ):
            return values, bound
    return None, bound


def _largest(record, network: str) -> float:
    return next((v.largest for v in record.values if v.network == network), 0.0)


def overestimation(run: History) -> Finding | None:
    """Q promises more than greedy episodes bring."""
    data, evaluations = run.last.data, run.last.evaluations
    if data is None or not run.last.values or len(evaluations) < EVALUATIONS:
        return None
    realised = [discounted(run, *episode) for episode in evaluations[-EVALUATIONS:]]
    # The best of them: an estimate of the present policy that is not unkind.
    best, claimed = max(realised), run.last.values[0].mean
    margin = 0.25 * data.reward_largest / (1.0 - min(run.setup.gamma, 0.999))
    if claimed - best <= margin or len(run.latest(2)) < 2:
        return None
    before = run.latest(2)[0].values[0].mean
    if claimed < before:  # on its way down from the initial values
        return None
    return warning(
        "overestimation",
        f"the values of `{run.last.values[0].network}`",
        f"Mean Q is {claimed:.3g}, but the last greedy episodes brought a discounted "
        f"return of {np.mean(realised):.3g} (the best {best:.3g}).",
        "Use `DQN(double=True)`, a slower `TargetUpdate`, a lower learning rate, or "
        "more steps before learning.",
    )


def discounted(run: History, total: float, length: float) -> float:
    """A discounted return, from a plain one and its length, rewards being even.

    `G = total / length * (1 - gamma^length) / (1 - gamma)`; without the power where
    episodes are only cut off, since the task would go on.
    """
    gamma = run.setup.gamma
    if gamma >= 1.0:
        return total
    ends = run.last.data is not None and run.last.data.terminations
    cut = gamma**length if ends else 0.0
    return total / max(length, 1.0) * (1.0 - cut) / (1.0 - gamma)


def no_action_difference(run: History) -> Finding | None:
    """All actions have the same value everywhere."""
    records = run.latest(2)
    if run.setup.actions != "discrete" or run.setup.num_actions < 2 or not records:
        return None
    for pair in zip(*(record.values for record in records), strict=True):
        if all(v.by_action <= NO_DIFFERENCE * max(v.largest, 1e-3) for v in pair):
            return error(
                "no_action_difference",
                f"the outputs of `{pair[-1].network}`",
                f"Best and worst action differ by {pair[-1].by_action:.1e}, where |Q| "
                f"is {pair[-1].largest:.2g}: the policy cannot choose.",
                "See that each action has its own output, from weights that learn, and "
                "that the loss uses the action taken (`ops.select`).",
            )
    return None


CHECKS = (values_diverging, values_beyond_bound, overestimation, no_action_difference)
