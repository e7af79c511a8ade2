"""Gradients and steps: too small, too large, cut down, or not there."""

import numpy as np

from keras_rl2x.diagnostics.finding import Finding
from keras_rl2x.diagnostics.finding import error
from keras_rl2x.diagnostics.finding import warning
from keras_rl2x.diagnostics.record import History
from keras_rl2x.diagnostics.record import Network

SMALLEST_CLIPPING = 1e-3
CLIPPED = 100.0  # times the threshold
SLOW_UPDATE, SLOWEST_UPDATE = 1e-3, 2e-6  # of the weights, per gradient step
FAST_UPDATE = 0.05
LOW_RATE = 2e-5
LARGEST_GRADIENT = 1e4
VANISHED = 1e-4  # first kernel against the last one


def gradient_missing(run: History) -> Finding | None:
    """A trainable variable that no loss reaches."""
    for name, network in run.last.networks.items():
        missing = [path for path, norm in network.gradients.items() if norm is None]
        if missing:
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            return error(
                "gradient_missing",
                f"`{missing[0]}`{more} of `{name}`",
                "No gradient reaches it: the loss does not depend on it in a "
                "differentiable way.",
                "`keras_rl2x.diagnostics.explain_gradients(loss_fn, variables)` names "
                "the place where the path is cut.",
            )
    return None


def clipping_too_low(run: History) -> Finding | None:
    """A threshold that leaves of each gradient little more than its direction."""
    for name, network in run.last.networks.items():
        if network.clipping is None:
            continue
        kind, threshold = network.clipping
        norms = [_clipped_norm(r.networks[name], kind) for r in run.records]
        norm = float(np.median(norms))
        if threshold >= SMALLEST_CLIPPING and norm < CLIPPED * threshold:
            continue
        if norm < threshold:
            continue
        return error(
            "clipping_too_low",
            f"`{kind}={threshold:g}` of the optimizer of `{name}`",
            f"Gradients have a norm of {norm:.2g}, {norm / threshold:.0f} times the "
            "threshold: every step is clipped to almost nothing.",
            f"Leave it out, or use `global_clipnorm={_round_up(norm):g}`, so that only "
            "outliers are clipped.",
        )
    return None


def _clipped_norm(network: Network, kind: str) -> float:
    if kind == "global_clipnorm":
        return network.gradient_norm
    norms = [norm for norm in network.gradients.values() if norm is not None]
    return max(norms, default=0.0)


def _round_up(value: float) -> float:
    return float(10.0 ** np.ceil(np.log10(max(value, 1.0))))


def learning_rate_too_high(run: History) -> Finding | None:
    """Each step changes a network by a great part of itself."""
    for name, network in run.last.networks.items():
        ratios = [record.networks[name].update_ratio for record in run.latest(2)]
        now = min(ratios) if ratios and None not in ratios else 0.0
        # A network may be beyond all hope before the first look.
        ratio, rate = max(now, network.drift), network.learning_rate
        if ratio > FAST_UPDATE:
            return error(
                "learning_rate_too_high",
                f"the optimizer of `{name}`",
                f"A gradient step changes the weights by {ratio:.1%} of their size.",
                f"Lower `learning_rate`, now {rate:g}: 1e-4 to 1e-3 is usual.",
            )
    return None


def learning_rate_too_low(run: History) -> Finding | None:
    """Steps so small that nothing will have changed at the end."""
    for name, network in run.last.networks.items():
        ratios = [record.networks[name].slowest_update for record in run.records]
        ratios = [ratio for ratio in ratios if ratio is not None]
        # From the start: a rate that has decayed was larger once.
        rate = network.learning_rate
        if len(ratios) < 2 or rate > LOW_RATE or max(ratios) > SLOW_UPDATE:
            continue
        kind = error if max(ratios) < SLOWEST_UPDATE else warning
        return kind(
            "learning_rate_too_low",
            f"the optimizer of `{name}`",
            f"A gradient step changes the weights of a layer by {ratios[-1]:.1e} of "
            f"their size: {0.1 / max(ratios[-1], 1e-12):,.0f} steps for a tenth.",
            f"Raise `learning_rate`, now {rate:g}: 1e-4 is usual for an actor and for "
            "DQN, 1e-3 for a critic.",
        )
    return None


def exploding_gradients(run: History) -> Finding | None:
    """Gradients that no longer fit the weights."""
    records = run.latest(2)
    for name in run.last.networks:
        norms = [record.networks[name].gradient_norm for record in records]
        if norms and min(norms) > LARGEST_GRADIENT:
            network = run.last.networks[name]
            path = max(network.gradients, key=lambda p: network.gradients[p] or 0.0)
            return error(
                "exploding_gradients",
                f"`{path}` of `{name}`",
                f"The gradient of `{name}` has a norm of {norms[-1]:.2g}, most of it "
                "in this variable.",
                "Scale rewards to about 1, use a Huber loss, and clip: "
                "`Adam(1e-4, global_clipnorm=10.0)`.",
            )
    return None


def vanishing_gradients(run: History) -> Finding | None:
    """Gradients that fade on the way from the loss to the first layer."""
    for name, network in run.last.networks.items():
        norms = [(p, g) for p, g in network.gradients.items() if _is_kernel(p)]
        norms = [(path, norm) for path, norm in norms if norm is not None]
        if len(norms) < 3:
            continue
        (_, first), (_, last) = norms[0], norms[-1]
        if first >= VANISHED * last or last == 0.0:
            continue
        pairs = zip(norms[:-1], norms[1:], strict=True)
        fading = [path for (path, norm), (_, later) in pairs if later > 2.0 * norm]
        begin = fading[-1] if fading else norms[0][0]
        return error(
            "vanishing_gradients",
            f"`{begin}` of `{name}`",
            f"From here on gradients fade towards the input: {last:.1e} at the last "
            f"kernel, {first:.1e} at the first one.",
            "Use ReLU in place of sigmoid or tanh in hidden layers, fewer layers, or "
            "`LayerNormalization` between them.",
        )
    return None


def _is_kernel(path: str) -> bool:
    return path.endswith("kernel")


def nearly_always_clipped(run: History) -> Finding | None:
    """A threshold below almost every gradient."""
    records = run.latest(4)
    for name, network in run.last.networks.items():
        if network.clipping is None or not records:
            continue
        kind, threshold = network.clipping
        norms = [_clipped_norm(record.networks[name], kind) for record in records]
        if min(norms) > 3.0 * threshold:
            return warning(
                "nearly_always_clipped",
                f"`{kind}={threshold:g}` of the optimizer of `{name}`",
                f"The last {len(norms)} gradients measured, of norm {min(norms):.2g} "
                f"to {max(norms):.2g}, were all clipped: their size is lost.",
                f"Use `global_clipnorm={_round_up(max(norms)):g}`, or smaller rewards.",
            )
    return None


CHECKS = (
    clipping_too_low,
    learning_rate_too_high,
    learning_rate_too_low,
    vanishing_gradients,
    exploding_gradients,
    nearly_always_clipped,
)
