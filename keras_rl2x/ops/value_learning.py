"""Targets and errors of value learning.

Actions are indices in `[0, A)`. Nothing here reduces over the batch: the Keras
loss does, with the sample weights.
"""

from typing import Any

from keras import ops

from keras_rl2x.ops.checks import check_shapes

Tensor = Any


def select(values: Tensor, action: Tensor) -> Tensor:
    """Values of the chosen actions: `q(s, a)`.

    Args:
        values: `[B, A]` float, one value per action.
        action: `[B]` int32 or int64, indices in `[0, A)`.

    Returns:
        `[B]` float.

    Raises:
        ValueError: if ranks or batch sizes differ.
    """
    values, action = ops.convert_to_tensor(values), ops.convert_to_tensor(action)
    check_shapes(values=(values, "BA"), action=(action, "B"))
    return ops.squeeze(ops.take_along_axis(values, action[:, None], axis=1), axis=1)


def mask_values(values: Tensor, action_mask: Tensor | None) -> Tensor:
    """Values with the forbidden actions at the lowest finite number.

    Args:
        values: `[B, A]` float.
        action_mask: `[B, A]` bool, `True` where the action is allowed, or `None`.

    Returns:
        `[B, A]` float.
    """
    if action_mask is None:
        return values
    values, action_mask = ops.convert_to_tensor(values), ops.cast(action_mask, "bool")
    check_shapes(values=(values, "BA"), action_mask=(action_mask, "BA"))
    # A finite floor: an infinite one times a zero discount would be NaN.
    floor = ops.cast(-3e38 if values.dtype != "float16" else -6e4, values.dtype)
    return ops.where(action_mask, values, floor)


def td_target(reward: Tensor, discount: Tensor, next_value: Tensor) -> Tensor:
    """One-step (or n-step) temporal-difference target, without gradient.

    `y = r + discount * v(s')`

    Source: Sutton, "Learning to predict by the methods of temporal
    differences", 1988.

    Args:
        reward: `[B]` float, the (n-step) reward.
        discount: `[B]` float, `0` where terminated, `gamma ** n` elsewhere.
        next_value: `[B]` float, the value of the next observation.

    Returns:
        `[B]` float32; gradients do not flow through it.

    Raises:
        ValueError: if ranks or batch sizes differ.
    """
    reward = ops.cast(reward, "float32")
    discount = ops.cast(discount, "float32")
    next_value = ops.cast(next_value, "float32")
    check_shapes(
        reward=(reward, "B"), discount=(discount, "B"), next_value=(next_value, "B")
    )
    return ops.stop_gradient(reward + discount * next_value)


def q_learning_value(
    next_q_values: Tensor, next_action_mask: Tensor | None = None
) -> Tensor:
    """Value of the next state in Q-learning.

    `v(s') = max_a q_target(s', a)`

    Source: Watkins and Dayan, "Q-learning", 1992; Mnih et al., "Human-level
    control through deep reinforcement learning", 2015.

    Args:
        next_q_values: `[B, A]` float, of the *target* network.
        next_action_mask: `[B, A]` bool or `None`.

    Returns:
        `[B]` float.
    """
    check_shapes(next_q_values=(next_q_values, "BA"))
    return ops.max(mask_values(next_q_values, next_action_mask), axis=1)


def double_q_learning_value(
    next_q_values: Tensor,
    next_selector_values: Tensor,
    next_action_mask: Tensor | None = None,
) -> Tensor:
    """Value of the next state in Double Q-learning.

    `v(s') = q_target(s', argmax_a q_online(s', a))`

    Source: van Hasselt, Guez and Silver, "Deep reinforcement learning with
    double Q-learning", 2015.

    Args:
        next_q_values: `[B, A]` float, of the *target* network, which evaluates.
        next_selector_values: `[B, A]` float, of the *online* network, which selects.
        next_action_mask: `[B, A]` bool or `None`.

    Returns:
        `[B]` float. Ties go to the lowest index.
    """
    check_shapes(
        next_q_values=(next_q_values, "BA"),
        next_selector_values=(next_selector_values, "BA"),
    )
    best = ops.argmax(mask_values(next_selector_values, next_action_mask), axis=1)
    return select(next_q_values, best)
