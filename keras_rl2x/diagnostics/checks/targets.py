"""Target networks: whether they follow, and whether they are used."""

from keras_rl2x.diagnostics.finding import Finding
from keras_rl2x.diagnostics.finding import error
from keras_rl2x.diagnostics.finding import warning
from keras_rl2x.diagnostics.record import History

SHORTEST_PERIOD = 10  # env steps
LONGEST_PERIOD = 10_000


def target_shared(run: History) -> Finding | None:
    """One network under two names."""
    for target in run.last.targets:
        if target.shared:
            return error(
                "target_shared",
                f"`{target.name}`",
                f"It holds the same variables as `{target.online}`, so it moves with "
                "every gradient step.",
                f"Give it variables of its own: leave `{target.name}` out, or pass "
                "`keras.models.clone_model(network)`.",
            )
    return None


def target_unused(run: History) -> Finding | None:
    """No loss depends on a target network."""
    for target in run.last.targets:
        if target.used is not False:
            continue
        if target.online_used_by:
            evidence = (
                f"No loss depends on it, but that of `{target.online_used_by}` depends "
                f"on `{target.online}`: the online network stands in its place."
            )
        else:
            evidence = (
                "No loss depends on it, so the targets come from an online network, "
                "which chases itself."
            )
        return error(
            "target_unused",
            f"`{target.name}` in `train_step`",
            evidence,
            f"Compute the TD target with `self.{target.name}(batch.next_observation)`.",
        )
    return None


def target_copied(run: History) -> Finding | None:
    """The target network is the online network after every step."""
    tau, period = run.setup.tau, run.setup.period
    if tau == 1.0 or period is not None and period < SHORTEST_PERIOD:
        setting = f"tau={tau:g}" if period is None else f"period={period}"
        return error(
            "target_copied",
            f"`TargetUpdate({setting})`",
            "It copies the online network at (almost) every step, as if there were no "
            "target network.",
            "Blend softly, `TargetUpdate(tau=0.005)`, or copy seldom, "
            "`TargetUpdate(period=1_000)`.",
        )
    for targets in zip(*(r.targets for r in run.latest(2)), strict=True):
        if all(target.equal and target.online_moved for target in targets):
            name, online = targets[0].name, targets[0].online
            return error(
                "target_copied",
                f"`{name}`",
                f"It equals `{online}` after each execution: copied (`set_weights`) "
                "where it should be blended.",
                "Let `self.update_targets()` do it, with `TargetUpdate(tau=0.005)`: "
                "target = tau * online + (1 - tau) * target.",
            )
    return None


def target_frozen(run: History) -> Finding | None:
    """The target network stays as it was."""
    period, left = run.setup.period, run.setup.end_step
    if period is not None and period > max(left, LONGEST_PERIOD):
        return error(
            "target_frozen",
            f"`TargetUpdate(period={period})`",
            f"The first copy comes after {period:,} env steps, but the run ends at "
            f"{left:,}.",
            "Copy more often, `TargetUpdate(period=1_000)`, or softly, "
            "`TargetUpdate(tau=0.005)`.",
        )
    due = run.setup.start_step + 2 * (period or 1)
    if len(run.latest(2)) < 2 or run.last.step < due:
        return None
    for target in run.last.targets:
        if target.online_moved and not target.moved and not target.shared:
            return error(
                "target_frozen",
                f"`{target.name}`",
                f"It has not changed in {run.last.gradient_steps:,} gradient steps, "
                f"while `{target.online}` has.",
                "Call `self.update_targets()` at the end of `train_step`, and let "
                "`TargetUpdate.blend` assign to `target.variables`.",
            )
    return None


def target_too_fast(run: History) -> Finding | None:
    """A blend so quick that the target network gives no rest."""
    tau = run.setup.tau
    if tau is None or not 0.2 <= tau < 1.0:
        return None
    return warning(
        "target_too_fast",
        f"`TargetUpdate(tau={tau:g})`",
        f"The target network follows within {1 / tau:.0f} gradient steps.",
        "Use `TargetUpdate(tau=0.005)`: a tau of 0.001 to 0.01 is usual.",
    )


CHECKS = (target_shared, target_unused, target_copied, target_frozen, target_too_fast)
