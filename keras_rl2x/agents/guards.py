"""What ends a training early: gradients that do not arrive, numbers that are none."""

import contextlib
from typing import Any
from typing import NoReturn

import numpy as np

from keras_rl2x.agents.engine import take_batch
from keras_rl2x.diagnostics import explain_gradients
from keras_rl2x.diagnostics.nonfinite import explain_nonfinite
from keras_rl2x.types import Transition


class MissingGradients(ValueError):
    """Variables of a network that the loss does not reach.

    Args:
        network: attribute of the network.
        variables: those that got none.
        everywhere: whether these are all of its variables.
    """

    suspicion = (
        "The loss does not depend on them in a differentiable way. Look for a forward "
        "pass outside the `GradientTape`, for NumPy, `argmax` or a cast to integers on "
        "the way, for a critic whose output does not depend on the action, or for a "
        "layer that is never called (freeze it: `layer.trainable = False`)."
    )

    def __init__(self, network: str, variables: list, everywhere: bool):
        self.network, self.paths = network, [variable.path for variable in variables]
        extent = "any variable" if everywhere else "these variables"
        names = ", ".join(self.paths)
        super().__init__(f"No gradient reaches {extent} of `{network}`: {names}.")


def explain_missing(agent: Any, error: MissingGradients, batches: Transition) -> str:
    """An error with what `explain_gradients` finds out about it.

    Args:
        agent: whose `train_step` raised it.
        error: from `apply_gradients`.
        batches: `[K, B, ...]` leaves; the first minibatch raised it.
    """

    def loss_fn() -> Any:
        agent._run.dry_losses = {}
        try:
            agent.engine.run_one(batches, np.zeros(1), np.zeros(1), 0)
            return agent._run.dry_losses[error.network]
        finally:
            agent._run.dry_losses = None

    # The first error is the one to be seen, whatever the search for reasons meets.
    with contextlib.suppress(Exception), agent._dry_run():
        network = getattr(agent, error.network)
        report = explain_gradients(loss_fn, network.trainable_variables)
        rows = [row for row in report if row.name in error.paths]
        if all(row.reached for row in rows):
            return (
                f"{error} The loss depends on them, but was computed outside the "
                "`GradientTape`: move the forward pass into its `with` block."
            )
        is_sure = all(row.cause in ("cut", "numpy") for row in rows)
        reasons = dict.fromkeys(row.reason for row in rows)
        text = "\n".join(["Why:" if is_sure else error.suspicion, *reasons])
        return f"{error} {text.replace('`loss_fn`', '`train_step`')}"
    return f"{error} {error.suspicion}"


def stop_before_nonfinite(agent: Any, stack: Any, n: int, before: list) -> NoReturn:
    """Goes back to the last good step of a stack, and raises what is wrong after.

    The loop is deterministic, so it is run again from `before` as far as all is well:
    looking for that place costs nothing while nothing is wrong.

    Args:
        agent: that has just learned from the stack.
        stack: `(batches, step, previous)`.
        n: minibatches that were due.
        before: values of all variables before the first of them.

    Raises:
        FloatingPointError: always.
    """
    engine = agent.engine
    good, bad = 0, n
    while bad - good > 1:
        middle = (good + bad) // 2
        _put_back(agent, before)
        finite = engine.learn(*stack, middle)[2]
        good, bad = (middle, bad) if finite else (good, middle)
    _put_back(agent, before)
    engine.learn(*stack, good)
    agent.progress.gradient_steps += good
    with agent._dry_run() as gradients:
        engine.run_one(*stack, good)
        losses = engine.losses
    names = (*agent.trained, *agent.targets.values())
    networks = {name: getattr(agent, name) for name in names}
    batch = take_batch(stack[0], good)
    raise FloatingPointError(
        f"Training stopped before gradient step {agent.gradient_steps + 1:,} (env step "
        f"{int(stack[1][good]):,}): "
        f"{explain_nonfinite(batch, networks, losses, gradients)} All weights are "
        "those from before that step."
    )


def _put_back(agent: Any, before: list) -> None:
    for variable, value in zip(agent._state_variables(), before, strict=True):
        variable.assign(value)
