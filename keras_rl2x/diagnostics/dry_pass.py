"""One training step that is measured and undone."""

import contextlib
import functools
import time
from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from keras_rl2x.diagnostics.spies import Call
from keras_rl2x.diagnostics.spies import replaced
from keras_rl2x.diagnostics.spies import watched
from keras_rl2x.networks import checks
from keras_rl2x.types import Transition

# Of outputs that count as being at the end of their range: below and above.
ENDS = {"tanh": (-0.99, 0.99), "sigmoid": (0.01, 0.99), "hard_sigmoid": (0.01, 0.99)}
AT_BOUND = 0.99
MISSING = -1.0  # in place of the norm of a gradient that does not arrive


class Shape(NamedTuple):
    """What of a layer is no number: its name, activation, and whether it is last."""

    name: str
    activation: str
    is_output: bool


class DryPass:
    """Runs `train_step` and the policy on a minibatch, compiled, without any effect.

    Works by what every agent offers: `trained`, `policy`, `train_step`, and the methods
    that a `train_step` is made of. Whatever a step may change (weights, optimizers,
    random seeds, metrics) is put back within the same call.

    Args:
        agent: bound and compiled.

    Attributes:
        layers: shapes of the layers of each online network, in the order of calls.
        first_layers: of each online network, the layer whose inputs are measured.
        policy_networks: attributes of the networks that `policy` calls.
        critics: attributes of those that judge actions; empty for discrete actions.
    """

    def __init__(self, agent: Any):
        self.agent = agent
        self.networks = {name: getattr(agent, name) for name in agent.trained}
        self.layers: dict[str, list[Shape]] = {}
        self.first_layers: dict[str, str] = {}
        self.policy_networks: tuple[str, ...] = ()
        self.critics: tuple[str, ...] = ()
        function = functools.partial(self._run)
        if not agent.run_eagerly:
            function = tf.function(function, autograph=False)
        self._function = function

    def __call__(self, batch: Transition) -> dict[str, Any]:
        """Numbers by kind and network, as NumPy.

        Args:
            batch: `Transition` of arrays `[B, ...]`, actions in network units.

        Returns:
            `losses`, `gradients` (norm by path, or `MISSING`), `layers` (`[L, 2]`:
            dead, saturated), `inputs` (largest, smallest), `policy` and `values`.
        """
        results = self._function(_tensors(batch))
        return keras.tree.map_structure(np.asarray, results)

    def _run(self, batch: Transition) -> dict[str, Any]:
        variables = self._variables()
        before = [tf.identity(variable) for variable in variables]
        losses, gradients, calls = self._train(batch)
        numbers = {"losses": losses, "gradients": gradients}
        numbers |= self._describe_layers(calls)
        numbers |= self._describe_policy(batch.observation)
        for variable, value in zip(variables, before, strict=True):
            variable.assign(value)
        return numbers

    def seconds_per_update(self, batch: Transition, count: int = 32) -> float:
        """Seconds that an update takes in a compiled loop; all of it is undone.

        Args:
            batch: as for a measurement.
            count: updates in the loop.
        """

        def apply_gradients(tape: Any, loss: Any, network: Any) -> None:
            optimizer = self._optimizer_of(network)
            variables = network.trainable_variables
            optimizer.apply(tape.gradient(loss, variables), variables)

        def body(i: Any) -> Any:
            self.agent.train_step(batch)
            return (i + 1,)

        def loop() -> Any:
            variables = self._variables()
            before = [tf.identity(variable) for variable in variables]
            stand_ins = self._stand_ins() | {"apply_gradients": apply_gradients}
            with replaced(self.agent, **stand_ins):
                done = tf.while_loop(lambda i: i < count, body, (tf.constant(0),))
            for variable, value in zip(variables, before, strict=True):
                variable.assign(value)
            return done

        batch = _tensors(batch)
        function = loop
        if not self.agent.run_eagerly:
            jit_compile = self.agent.engine.jit_compile
            function = tf.function(loop, jit_compile=jit_compile, autograph=False)
        function()  # compiles
        start = time.perf_counter()
        keras.tree.map_structure(np.asarray, function())
        return (time.perf_counter() - start) / count

    def _variables(self) -> list:
        """All that a training step may change."""
        agent = self.agent
        optimizers = [getattr(agent, name) for name in agent.trained.values()]
        owners = [agent, *optimizers, *agent.metrics]
        found = [variable for owner in owners for variable in owner.variables]
        return list({id(variable): variable for variable in found}.values())

    # ------------------------------------------------------------------ training

    def _train(self, batch: Transition) -> tuple[dict, dict, list[Call]]:
        losses, gradients = {}, {}

        def apply_gradients(tape: Any, loss: Any, network: Any) -> None:
            name = self._name_of(network)
            optimizer = self._optimizer_of(network)
            variables = network.trainable_variables
            # Tiny gradients would be lost in float16.
            scale = optimizer.scale_loss(tf.ones_like(loss))
            arrived = tape.gradient(loss, variables, output_gradients=scale)
            losses[name] = loss
            gradients[name] = {
                v.path: tf.constant(MISSING) if g is None else _norm(g) / scale
                for v, g in zip(variables, arrived, strict=True)
            }

        stand_ins = self._stand_ins() | {"apply_gradients": apply_gradients}
        leaves = [leaf for n in self.networks.values() for leaf in checks.layers_of(n)]
        with replaced(self.agent, **stand_ins), watched(leaves) as calls:
            self.agent.train_step(batch)
        return losses, gradients, calls

    @staticmethod
    def _stand_ins() -> dict[str, Callable]:
        """In place of the methods that reach beyond a step: logs, clock, priorities."""

        def track(**values: Any) -> dict[str, Any]:
            return {name: tf.reduce_mean(value) for name, value in values.items()}

        return {
            "track": track,
            "update_targets": lambda: None,
            "report_td_error": lambda td_error: None,
        }

    def _name_of(self, network: Any) -> str:
        return next(name for name, own in self.networks.items() if own is network)

    def _optimizer_of(self, network: Any) -> Any:
        return getattr(self.agent, self.agent.trained[self._name_of(network)])

    # -------------------------------------------------------------------- layers

    def _describe_layers(self, calls: list[Call]) -> dict[str, dict[str, Any]]:
        layers, inputs = {}, {}
        for name, network in self.networks.items():
            own = {id(layer) for layer in checks.layers_of(network)}
            first: dict[int, Call] = {}
            for call in calls:
                if id(call.layer) in own and _is_ours(call.outputs):
                    first.setdefault(id(call.layer), call)
            known = list(first.values())
            self.layers[name] = [
                Shape(call.layer.name, activation_of(call.layer), call is known[-1])
                for call in known
            ]
            numbers = [_layer_numbers(call) for call in known]
            layers[name] = tf.stack(numbers) if numbers else tf.zeros((0, 2))
            received = self._first_inputs(name, known)
            if received is not None:
                inputs[name] = received
        return {"layers": layers, "inputs": inputs}

    def _first_inputs(self, name: str, calls: list[Call]) -> Any:
        """Magnitudes of what the first layer with a kernel receives, if it is raw."""
        for layer, given, _ in calls:
            if "Normalization" in type(layer).__name__:
                return None
            if hasattr(layer, "kernel"):
                self.first_layers[name] = layer.name
                return _input_numbers(given)
        return None

    # -------------------------------------------------------------------- policy

    def _describe_policy(self, observation: Any) -> dict[str, Any]:
        agent = self.agent
        with watched(self.networks.values()) as calls:
            action = tf.cast(agent.policy(observation, training=False), tf.float32)
        called = {id(call.layer) for call in calls}
        self.policy_networks = tuple(
            name for name, network in self.networks.items() if id(network) in called
        )
        if agent.actions == "discrete":
            return {"policy": action, "values": {}}
        values = {}
        for name in set(self.networks) - set(self.policy_networks):
            # A network of another kind has no value of (observation, action).
            with contextlib.suppress(TypeError, ValueError):
                values[name] = _judge(self.networks[name], observation, action)
        self.critics = tuple(values)
        return {"policy": action, "values": values}


def _tensors(batch: Transition) -> Transition:
    leaves = keras.tree.map_structure(
        lambda leaf: None if leaf is None else tf.convert_to_tensor(leaf), tuple(batch)
    )
    return Transition(*leaves)


def _judge(critic: Any, observation: Any, action: Any) -> tuple[Any, Any]:
    """`q(s, a)` of a critic, `[B]`, and the norm of dq/da, `[B]`."""
    with tf.GradientTape() as tape:
        tape.watch(action)
        value = checks.call_critic(critic, observation, action, training=False)
    slope = tape.gradient(value, action)
    slope = tf.zeros_like(action) if slope is None else slope
    return tf.cast(value[:, 0], tf.float32), tf.norm(slope, axis=-1)


def activation_of(layer: Any) -> str:
    """Name of what a layer applies at its end, `"linear"` for nothing."""
    activation = getattr(layer, "activation", None)
    return getattr(activation, "__name__", None) or type(layer).__name__.lower()


def _is_ours(tensor: Any) -> bool:
    """Whether a tensor can be read here: not one from within another function."""
    if not tf.is_tensor(tensor):
        return False
    if not tf.is_symbolic_tensor(tensor):
        return True
    return tensor.graph is tf.compat.v1.get_default_graph()


def _layer_numbers(call: Call) -> Any:
    """Share of dead units and of saturated outputs, `[2]`."""
    outputs = tf.cast(call.outputs, tf.float32)
    name = activation_of(call.layer)
    dead = saturated = tf.zeros(())
    if name == "relu":
        highest = tf.reduce_max(outputs, axis=list(range(outputs.shape.rank - 1)))
        dead = _share(highest <= 0.0)
    elif name in ENDS:
        low, high = ENDS[name]
        saturated = _share((outputs < low) | (outputs > high))
    return tf.stack([dead, saturated])


def _input_numbers(given: Any) -> Any:
    """Largest magnitude of all features, and of the smallest that varies, `[2]`."""
    parts = [tf.cast(part, tf.float32) for part in keras.tree.flatten(given)]
    parts = [tf.reshape(part, (-1, part.shape[-1])) for part in parts]
    x = tf.concat(parts, axis=-1)
    sizes = tf.reduce_max(tf.abs(x), axis=0)
    varies = tf.reduce_max(x, axis=0) > tf.reduce_min(x, axis=0)
    largest = tf.reduce_max(sizes)
    smallest = tf.reduce_min(tf.where(varies & (sizes > 0), sizes, largest))
    return tf.stack([largest, smallest])


def _share(condition: Any) -> Any:
    return tf.reduce_mean(tf.cast(condition, tf.float32))


def _norm(gradient: Any) -> Any:
    return tf.norm(tf.cast(tf.convert_to_tensor(gradient), tf.float32))
