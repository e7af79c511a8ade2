"""Where numbers stopped being numbers."""

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

from keras_rl2x.networks.checks import is_graph
from keras_rl2x.types import Transition

LARGE = 1e6  # beyond it, a number of a minibatch is suspicious


def explain_nonfinite(
    batch: Transition,
    networks: dict[str, keras.Model],
    losses: list,
    gradients: dict[str, Any],
) -> str:
    """Says in two or three sentences where NaN or infinity came from.

    Looks in the order in which numbers flow: minibatch, weights, layers, losses,
    gradients. The first place that is not finite is the cause of all later ones.

    Args:
        batch: minibatch whose step fails, `[B, ...]` leaves.
        networks: by their names in the agent, with the weights from before the step.
        losses: scalars of the step.
        gradients: by path of the variable.

    Returns:
        Text that ends with a full stop.
    """
    loss = next((float(x) for x in losses if not np.isfinite(float(x))), None)
    wrong = [path for path, value in gradients.items() if not _finite(value)]
    if loss is not None:
        what = f"the loss is {loss}."
    elif wrong:
        what = f"the loss is finite, but the gradient of {wrong[0]!r} is not."
    else:
        what = "the step makes weights that are no finite numbers."
    place = next(_places(batch, networks), "") or _large(batch)
    return " ".join(filter(None, (what, place, _remedy(place, loss))))


def _places(batch: Transition, networks: dict[str, keras.Model]) -> Iterator[str]:
    """Places that are not finite, the first cause first."""
    for name, value in _leaves(batch):
        if not _finite(value):
            row = int(np.argwhere(~np.isfinite(value))[0][0])
            yield f"`{name}` of the minibatch is not finite (row {row})."
    for name, network in networks.items():
        for variable in network.variables:
            if _is_float(variable) and not _finite(variable):
                yield f"The weights {variable.path!r} of `{name}` are not finite."
    for name, network in networks.items():
        layer = _first_layer(network, batch)
        if layer is not None:
            yield (
                f"The first layer whose output is not finite is {layer!r} of `{name}`."
            )


def _first_layer(network: keras.Model, batch: Transition) -> str | None:
    """Name of the first layer with an output that is not finite, where it shows."""
    if not is_graph(network):
        return None
    layers = [layer for layer in network.layers if hasattr(layer, "output")]
    probe = keras.Model(network.inputs, [layer.output for layer in layers])
    for observation in (batch.observation, batch.next_observation):
        inputs = keras.tree.flatten(observation)
        if len(network.inputs) > len(inputs):
            inputs.append(batch.action)
        try:
            outputs = probe(inputs, training=False)
        except (ValueError, TypeError):  # called in a way of its own
            return None
        for layer, output in zip(layers, outputs, strict=True):
            if not _finite(output):
                return layer.name
    return None


def _large(batch: Transition) -> str:
    """The largest number of a minibatch, if it is suspicious."""
    for name, value in _leaves(batch):
        if value.size and np.max(np.abs(value)) > LARGE:
            at = np.unravel_index(np.argmax(np.abs(value)), value.shape)
            return (
                f"`{name}` of the minibatch holds {value[at]:.3g} (row {int(at[0])})."
            )
    return ""


def _remedy(place: str, loss: float | None) -> str:
    if "of the minibatch" in place:
        return "Scale or clip it in a wrapper of the env."
    if "first layer" in place or loss is None:
        return "Look for a division, logarithm or root of zero there."
    return (
        "Look at the loss, and try a lower learning rate, smaller rewards or "
        "`global_clipnorm=10.0` in the optimizer."
    )


def _leaves(batch: Transition) -> Iterator[tuple[str, np.ndarray]]:
    for field, value in batch._asdict().items():
        parts = value.items() if isinstance(value, dict) else [(None, value)]
        for name, part in parts:
            if part is not None and np.asarray(part).dtype.kind == "f":
                label = field if name is None else f"{field}[{name!r}]"
                yield label, np.asarray(part)


def _is_float(variable: Any) -> bool:
    return keras.backend.is_float_dtype(variable.dtype)


def _finite(value: Any) -> bool:
    return bool(np.isfinite(keras.ops.convert_to_numpy(value)).all())
