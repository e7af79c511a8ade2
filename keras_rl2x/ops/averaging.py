"""Averaging of weights."""

from typing import Any

from keras import ops

Tensor = Any


def polyak_average(target: Tensor, online: Tensor, tau: float | Tensor) -> Tensor:
    """Soft update of one weight.

    `target <- tau * online + (1 - tau) * target`

    Source: Polyak and Juditsky, 1992; Lillicrap et al., 2015.

    Args:
        target: weight of the target network, any shape.
        online: weight of the online network, same shape.
        tau: in `(0, 1]`; higher follows faster, `1` copies.

    Returns:
        The new target weight.
    """
    return target + ops.cast(tau, target.dtype) * (online - target)
