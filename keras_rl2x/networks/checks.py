"""Checks of networks that a user passes, and copies of them for targets."""

import inspect
import re
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_rl2x.ops.checks import warn


def check_model(network: Any, name: str) -> keras.Model:
    """Raises unless `network` is a Keras 3 model.

    Raises:
        TypeError: saying what came.
    """
    if isinstance(network, keras.Model):
        return network
    module = type(network).__module__
    if module.startswith(("tf_keras", "tensorflow.python.keras", "keras.src.legacy")):
        raise TypeError(
            f"`{name}` is a Keras 2 model ({module}.{type(network).__name__}); build "
            "it with `keras` 3 (`import keras`)."
        )
    hint = ""
    if isinstance(network, keras.layers.Layer):
        hint = " Wrap the layer in `keras.Sequential([layer])`."
    elif isinstance(network, type):
        hint = " Pass an object, not the class."
    elif hasattr(network, "observation_space"):
        hint = " To make an agent for an environment, call `from_env(env)`."
    raise TypeError(
        f"`{name}` must be a `keras.Model`. Received an object of type "
        f"{module}.{type(network).__name__}.{hint}"
    )


def layers_of(network: keras.Model) -> Iterator[keras.layers.Layer]:
    """All layers of a network that are no containers, in order."""
    for layer in getattr(network, "layers", []):
        if isinstance(layer, keras.Model) or getattr(layer, "layers", None):
            yield from layers_of(layer)
        else:
            yield layer


def is_convolution(layer: keras.layers.Layer) -> bool:
    """Whether a layer convolves (or pools) over space."""
    return hasattr(layer, "data_format") and (
        hasattr(layer, "kernel_size") or hasattr(layer, "pool_size")
    )


def check_layout(network: keras.Model, name: str) -> None:
    """Raises for layouts of images that cannot work.

    Raises:
        ValueError: if layers disagree on `data_format`, or if there is no GPU for
            channels-first convolutions: some CPUs have kernels for them, but what is
            trained or exported there would not run on the next.
    """
    formats: dict[str, str] = {}
    for layer in layers_of(network):
        if is_convolution(layer):
            formats.setdefault(layer.data_format, layer.name)
    if len(formats) > 1:
        raise ValueError(
            f"`{name}` mixes image layouts: layer {formats['channels_first']!r} is "
            f"channels_first, layer {formats['channels_last']!r} is channels_last. "
            "`data_format` must be the same in all of them (it is set per layer, not "
            "inherited from the first)."
        )
    if "channels_first" in formats and not tf.config.list_physical_devices("GPU"):
        raise ValueError(
            f"`{name}` convolves channels-first images (layer "
            f"{formats['channels_first']!r}), which TensorFlow does on a GPU, and "
            "not on every CPU. "
            "Leave out `data_format` and begin the network with "
            "`keras.layers.Permute((2, 3, 1))`."
        )


def check_stateless(network: keras.Model, name: str) -> None:
    """Raises for recurrent layers that carry a state from batch to batch.

    Raises:
        ValueError: naming the layer.
    """
    for layer in layers_of(network):
        if getattr(layer, "stateful", False):
            raise ValueError(
                f"Layer {layer.name!r} of `{name}` is stateful, but minibatches are "
                "drawn at random: the state that it carries over belongs to other "
                "episodes. Use `stateful=False` over a window of observations "
                "(`gymnasium.wrappers.FrameStackObservation`)."
            )


RANGES = {
    "softmax": "stay between 0 and 1",
    "sigmoid": "stay between 0 and 1",
    "tanh": "stay between -1 and 1",
    "relu": "are never negative",
    "softplus": "are never negative",
}


def warn_if_squashed(network: keras.Model, name: str) -> None:
    """Warns when the last layer cannot represent returns."""
    activation, layer = last_activation(network)
    if activation in RANGES:
        warn(
            f"`{name}` ends in {activation} (layer {layer!r}), so its values "
            f"{RANGES[activation]}. Q-values are expected returns: use a last layer "
            "without activation."
        )


def warn_if_not_tanh(network: keras.Model, name: str) -> None:
    """Warns when a dense last layer leaves `[-1, 1]`, or covers only a part of it."""
    activation, layer = last_activation(network)
    if activation == "linear" or activation in RANGES and activation != "tanh":
        warn(
            f"`{name}` ends in {activation} (layer {layer!r}), but actions lie in "
            "[-1, 1] before they are scaled to the env's bounds: use "
            "`activation='tanh'` in the last layer."
        )


def last_activation(network: Any) -> tuple[str | None, str | None]:
    """What the last layer applies (`"linear"` for nothing), and the layer's name.

    `None` where that cannot be known: a subclassed model may do anything after its
    last layer. Only one that ends in softmax or sigmoid is told from its layers.
    """
    last = _last_operation(network)
    if isinstance(last, keras.Model):
        last = next(reversed(list(layers_of(last))), None)
        name = _activation(last)
        return (name, last.name) if name in ("softmax", "sigmoid") else (None, None)
    return _activation(last), getattr(last, "name", None)


def _last_operation(network: Any) -> Any:
    """The layer (or Keras operation) that makes a network's output."""
    if isinstance(network, keras.Sequential):
        return _last_operation(network.layers[-1]) if network.layers else None
    if is_graph(network):
        return _last_operation(network.outputs[0]._keras_history.operation)
    return network


def is_graph(network: Any) -> bool:
    """Whether a model is a graph of layers, with known inputs and outputs.

    A subclassed one may use these names for what it likes.
    """
    ends = [getattr(network, name, None) for name in ("inputs", "outputs")]
    return isinstance(network, keras.Model) and all(
        isinstance(end, list) and end and hasattr(end[0], "_keras_history")
        for end in ends
    )


def _activation(layer: Any) -> str | None:
    activation = getattr(layer, "activation", None)
    return getattr(activation, "__name__", None) or type(layer).__name__.lower()


def call_critic(critic: keras.Model, observation: Any, action: Any, **kwargs) -> Any:
    """Calls a critic in the way it is written: with one pair, or two arguments."""
    if takes_two_arguments(critic):
        return critic(observation, action, **kwargs)
    return critic([observation, action], **kwargs)


def takes_two_arguments(critic: keras.Model) -> bool:
    """Whether `call(observation, action)` has two arguments for tensors."""
    names = [
        p.name
        for p in inspect.signature(critic.call).parameters.values()
        if p.kind == p.POSITIONAL_OR_KEYWORD
        and p.name not in ("training", "mask", "args", "kwargs")
    ]
    return len(names) >= 2


def clone(network: keras.Model, name: str) -> keras.Model:
    """A second network of the same architecture, not yet with the same weights.

    Raises:
        ValueError: if the network cannot be copied.
    """
    try:
        with keras.name_scope(f"target_{name}"):
            if type(network).__module__.startswith("keras."):
                target = keras.models.clone_model(network, clone_function=_copy_layer)
            else:
                # Not built here: Keras would build it from its first argument alone.
                target = type(network).from_config(network.get_config())
        target.name = f"target_{name}"
        return target
    except (NotImplementedError, TypeError) as error:
        raise ValueError(
            f"`{name}` ({type(network).__name__}) cannot be copied for the target "
            "network: define its `get_config()` with the arguments of its `__init__`, "
            f"or pass `target_{name}=`, a second network of your own. Keras says: "
            f"{first_line(error)}"
        ) from None


def _copy_layer(layer: keras.layers.Layer) -> keras.layers.Layer:
    """A new layer like this one; a `Lambda`, which Keras copies as code, is shared."""
    if isinstance(layer, keras.layers.Lambda):
        return layer
    return type(layer).from_config(layer.get_config())


def copy_weights(source: keras.Model, target: keras.Model, name: str) -> None:
    """Makes all weights of `target` equal, BatchNorm statistics included.

    Raises:
        ValueError: naming the network, if it has another architecture.
    """
    shapes = [tuple(weight.shape) for weight in source.weights]
    others = [tuple(weight.shape) for weight in target.weights]
    if shapes != others:
        raise ValueError(
            f"`target_{name}` must have the architecture of `{name}`: expected weights "
            f"of shapes {shapes}, received {others}."
        )
    for new, old in zip(target.weights, source.weights, strict=True):
        new.assign(old)


def symbolic_call(network: Any, name: str, *inputs: Any) -> Any:
    """Output of a network for symbolic inputs.

    Raises:
        ValueError: naming network and shapes, if it cannot take them.
    """
    try:
        if len(inputs) > 1:
            return call_critic(network, *inputs)
        return network(*inputs)
    except Exception as error:
        shapes = keras.tree.map_structure(lambda x: tuple(x.shape), inputs)
        shapes = shapes[0] if len(inputs) == 1 else shapes
        raise ValueError(
            f"`{name}` cannot be called with inputs of shape {shapes}, which is what "
            f"the spaces of the env give. Keras says: {first_line(error)}"
        ) from error


def first_line(error: BaseException) -> str:
    """The first line that says something, without the codes that colour it."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    lines = [line.strip() for line in plain.splitlines() if line.strip()]
    if lines and lines[0].startswith("Exception encountered"):
        del lines[0]
    return lines[0] if lines else type(error).__name__


def output_shape(output: Any) -> tuple:
    """Shape of a symbolic output as plain ints and `None`."""
    return tuple(None if n is None else int(n) for n in np.atleast_1d(output.shape))
