"""Losses of policies."""

from typing import Any

from keras import ops

from keras_rl2x.ops.checks import check_shapes

Tensor = Any


def deterministic_policy_loss(value: Tensor) -> Tensor:
    """Deterministic policy gradient, as a loss per sample.

    `loss = -q(s, mu(s))`, whose gradient with respect to the policy's weights is
    `-dq/da * dmu/dtheta`.

    Source: Silver et al., "Deterministic policy gradient algorithms", 2014;
    Lillicrap et al., "Continuous control with deep reinforcement learning", 2015.

    Args:
        value: `[B]` float, the critic's value of the actor's own actions.

    Returns:
        `[B]` float.

    Raises:
        ValueError: if `value` has another rank.
    """
    check_shapes(value=(value, "B"))
    return -ops.cast(value, "float32")
