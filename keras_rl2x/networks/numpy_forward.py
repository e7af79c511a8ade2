"""The forward pass of a small network in NumPy, for acting.

One action of two layers of 256 costs TensorFlow 0.15 ms, nearly all of it the call
itself, and NumPy a tenth of that. Learning stays where it is, and so does every network
that is not a plain chain of the layers below.
"""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from keras_rl2x.layers import DuelingHead
from keras_rl2x.layers import RunningNormalization

ACTIVATIONS = {
    keras.activations.relu: lambda x: np.maximum(x, np.float32(0.0)),
    keras.activations.tanh: np.tanh,
}


class NumpyForward:
    """Evaluates a chain of Keras layers with NumPy.

    Args:
        policy: from a symbolic observation to the output of a network.
        shape: of one observation.
        reader: from variables to a function that reads them all; by default one by one.

    Raises:
        Unsupported: if the network has anything but the layers known here.
    """

    def __init__(
        self,
        policy: Callable,
        shape: tuple[int, ...],
        reader: Callable | None = None,
    ):
        observation = keras.Input(shape)
        try:
            whole = keras.Model(observation, policy(observation))
        except Exception as error:  # whatever a user's code raises on symbols
            raise Unsupported from error
        self._variables: list = []
        self._steps: list[tuple[Callable, slice]] = []
        if len(whole.operations) != 2:  # an input and a network
            raise Unsupported
        self._add(whole.operations[1])
        self._read = (reader or _one_by_one)(self._variables)
        self.refresh()

    def refresh(self) -> None:
        """Reads the variables."""
        self.weights = self._read()

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """`[N, ...]` to the output, with the weights of the last `refresh`."""
        x = x.astype(np.float32, copy=False)
        for function, of in self._steps:
            x = function(x, *self.weights[of])
        return x

    # ----------------------------------------------------------------- translation

    def _add(self, layer: Any) -> None:
        # Exact classes, for a subclass may do anything; Keras' own models are chains.
        rule = RULES.get(type(layer))
        if isinstance(layer, keras.Model) and type(layer).__module__[:6] == "keras.":
            rule = NumpyForward.add_chain
        if rule is None or layer.dtype_policy.compute_dtype != "float32":
            raise Unsupported
        rule(self, layer)

    def add_step(self, function: Callable, *variables: Any) -> None:
        """Appends `function(x, *values of the variables)`."""
        start = len(self._variables)
        self._variables += variables
        self._steps.append((function, slice(start, len(self._variables))))

    def add_chain(self, model: keras.Model) -> None:
        """Appends each layer of a model in which every layer feeds the next only."""
        if len(model.inputs) != 1 or len(model.outputs) != 1:
            raise Unsupported
        last = model.inputs[0]
        for layer in model.layers:
            if isinstance(layer, keras.layers.InputLayer):
                continue
            try:
                follows = layer.input is last
            except (AttributeError, ValueError):  # a shared layer has several inputs
                follows = False
            if not follows:
                raise Unsupported
            self._add(layer)
            last = layer.output
        if last is not model.outputs[0]:
            raise Unsupported

    def add_dense(self, layer: keras.layers.Dense) -> None:
        """Appends `activation(x @ kernel + bias)`."""
        if layer.quantization_mode is not None or layer.lora_enabled:
            raise Unsupported
        if layer.use_bias:
            self.add_step(lambda x, w, b: x @ w + b, layer.kernel, layer.bias)
        else:
            self.add_step(lambda x, w: x @ w, layer.kernel)
        self.add_activation(layer)

    def add_activation(self, layer: Any) -> None:
        """Appends a layer's activation."""
        if layer.activation is keras.activations.linear:
            return
        if layer.activation not in ACTIVATIONS:
            raise Unsupported
        self.add_step(ACTIVATIONS[layer.activation])

    def add_rescaling(self, layer: keras.layers.Rescaling) -> None:
        """Appends `x * scale + offset`."""
        scale, offset = np.float32(layer.scale), np.float32(layer.offset)
        self.add_step(lambda x: x * scale + offset)

    def add_normalization(self, layer: keras.layers.LayerNormalization) -> None:
        """Appends `(x - mean) / std * gamma + beta` over the last axis."""
        last_axis = layer.axis in (-1, [-1], [1]) and len(layer.output.shape) == 2
        if not (last_axis and layer.center and layer.scale):
            raise Unsupported
        epsilon = np.float32(layer.epsilon)

        def normalize(x, gamma, beta):
            x = x - x.mean(axis=-1, keepdims=True)
            variance = np.einsum("nf,nf->n", x, x)[:, None] / np.float32(x.shape[-1])
            return x * (gamma / np.sqrt(variance + epsilon)) + beta

        self.add_step(normalize, layer.gamma, layer.beta)

    def add_running_normalization(self, layer: RunningNormalization) -> None:
        """Appends `clip((x - mean) / std)` by the layer's statistics."""
        epsilon, clip = np.float32(layer.epsilon), np.float32(layer.clip)

        def normalize(x, count, total, spread):
            if count == 0.0:
                return np.clip(x, -clip, clip)
            std = np.sqrt(spread / count + epsilon)
            return np.clip((x - total / count) / std, -clip, clip)

        self.add_step(normalize, layer.count, layer.total, layer.spread)

    def add_dueling(self, layer: DuelingHead) -> None:
        """Appends `v + A - mean A`, of streams without a hidden layer."""
        if layer.units is not None:
            raise Unsupported
        value, advantage = layer.value.layers[-1], layer.advantage.layers[-1]

        def head(x, value_w, value_b, advantage_w, advantage_b):
            advantage = x @ advantage_w + advantage_b
            centred = advantage - advantage.mean(axis=-1, keepdims=True)
            return x @ value_w + value_b + centred

        self.add_step(head, value.kernel, value.bias, advantage.kernel, advantage.bias)

    def add_flatten(self, layer: Any) -> None:
        """Appends `[N, ...]` to `[N, F]`."""
        if len(layer.output.shape) != 2:
            raise Unsupported
        self.add_step(lambda x: x.reshape(len(x), -1))


def _one_by_one(variables: list) -> Callable[[], list[np.ndarray]]:
    return lambda: [variable.value.numpy() for variable in variables]


class Unsupported(Exception):
    """The network is not one of those that NumPy evaluates here."""


RULES = {
    keras.layers.Dense: NumpyForward.add_dense,
    keras.layers.Activation: NumpyForward.add_activation,
    keras.layers.Rescaling: NumpyForward.add_rescaling,
    keras.layers.LayerNormalization: NumpyForward.add_normalization,
    RunningNormalization: NumpyForward.add_running_normalization,
    keras.layers.Flatten: NumpyForward.add_flatten,
    keras.layers.Reshape: NumpyForward.add_flatten,
    DuelingHead: NumpyForward.add_dueling,
}
