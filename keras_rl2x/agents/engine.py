"""The compiled functions of an agent: one for acting, one for learning."""

import contextlib
import functools
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_rl2x.networks.checks import is_convolution
from keras_rl2x.networks.checks import layers_of
from keras_rl2x.networks.numpy_forward import NumpyForward
from keras_rl2x.networks.numpy_forward import Unsupported
from keras_rl2x.types import Transition

# Beyond so many products in a layer NumPy starts threads, which then are in the way of
# TensorFlow's: four observations of two layers of 256, one of two layers of 512.
MAX_PRODUCTS = 2**18


def resolve_jit_compile(jit_compile: Any, networks: list) -> bool:
    """What `jit_compile="auto"` means here.

    XLA makes dense layers a fifth faster, and convolutions inside the training
    loop ten times slower on a CPU; recurrent layers of cuDNN do not compile at all.
    """
    if jit_compile != "auto":
        return bool(jit_compile)
    layers = [layer for network in networks for layer in layers_of(network)]
    return not any(map(is_convolution, layers)) and all(
        layer.supports_jit for layer in layers
    )


class Engine:
    """Runs `agent.policy` and `agent.train_step` as compiled functions.

    Args:
        policy: `observation -> [N, A]`.
        train_step: `batch -> logs`, learns from one minibatch.
        results: `() -> {name: tensor}`, the metrics so far.
        learned: `() -> list`, the variables that learn, to be looked after.
        state: `() -> list`, all variables that a gradient step may change.
        jit_compile: use XLA.
        run_eagerly: compile nothing.
        fuse_updates: use XLA for the optimizers' steps, also where the rest does not.

    Attributes:
        clock: `(step, previous)` of the gradient step being traced or run.
        td_error: `[B]` that `train_step` reported, or `None`.
        losses: scalars that gradients were taken of in the present step.
        traces: number of times that the training loop was traced.
        rehearsed: whether `train_step` has run once without effect.
    """

    def __init__(
        self,
        policy: Callable,
        train_step: Callable,
        results: Callable,
        learned: Callable,
        state: Callable,
        jit_compile: bool,
        run_eagerly: bool,
        fuse_updates: bool = False,
    ):
        self._policy, self._train_step, self._results = policy, train_step, results
        self._learned, self._state = learned, state
        self._fuse_updates = fuse_updates
        self.jit_compile, self.run_eagerly = jit_compile, run_eagerly
        self.clock: tuple[Any, Any] = (0, 0)
        self.td_error: Any = None
        self.losses: list = []
        self.traces = 0
        self.rehearsed = False
        self._acting: dict[tuple, Callable] = {}
        self._light: dict[tuple, NumpyForward | None] = {}
        self._weights_held = False
        self._fresh: set[tuple] = set()  # whose weights have been read since then
        # A partial, since TensorFlow counts traces by code object: several agents
        # would look like one that is traced again and again. And no AutoGraph, which
        # needs source files and is not needed for explicit loops.
        self._compiled = tf.function(
            functools.partial(self._loop), jit_compile=jit_compile, autograph=False
        )

    # ------------------------------------------------------------------- acting

    def act(self, observation: Any) -> np.ndarray:
        """`policy` of a batch of observations, as NumPy.

        A concrete function per batch size is called straight, which takes a third
        of the time of a `tf.function` and a hundredth of `Model.predict`. Where many
        actions are asked of the same weights, plain networks run in NumPy.
        """
        is_dict = isinstance(observation, dict)
        parts = list(observation.values()) if is_dict else [observation]
        names = tuple(observation) if is_dict else None
        if self.run_eagerly:
            tensors = [tf.convert_to_tensor(part) for part in parts]
            return self._policy(_pack(names, tensors)).numpy()
        key = (names, *((part.shape, part.dtype.str) for part in parts))
        light = self._light_for(key, names, parts) if self._weights_held else None
        if light is not None:
            return light(parts[0])
        return self._function(key, names, parts)(*map(tf.constant, parts)).numpy()

    @contextlib.contextmanager
    def weights_held(self) -> Iterator[None]:
        """Promises that no weight changes within, so that NumPy may read them once."""
        self._fresh.clear()
        self._weights_held = True
        try:
            yield
        finally:
            self._weights_held = False

    def _light_for(self, key: tuple, names: tuple | None, parts: list) -> Any:
        if key not in self._light:
            self._light[key] = self._make_light(key, names, parts)
        elif key not in self._fresh and self._light[key] is not None:
            self._light[key].refresh()
        self._fresh.add(key)
        return self._light[key]

    def _make_light(self, key: tuple, names: tuple | None, parts: list) -> Any:
        """NumPy for few observations and a plain network, or `None`."""
        if names is not None:
            return None
        try:
            light = NumpyForward(self._policy, parts[0].shape[1:], _reader)
        except Unsupported:
            return None
        if len(parts[0]) * max(w.size for w in light.weights) > MAX_PRODUCTS:
            return None
        # The proof that it computes the same.
        expected = self._function(key, names, parts)(tf.constant(parts[0])).numpy()
        return light if np.allclose(light(parts[0]), expected, 1e-4, 1e-5) else None

    def _function(self, key: tuple, names: tuple | None, parts: list) -> Callable:
        if key not in self._acting:
            self._acting[key] = self._concrete(names, parts)
        return self._acting[key]

    def _concrete(self, names: tuple | None, parts: list) -> Callable:
        function = tf.function(
            lambda *tensors: self._policy(_pack(names, tensors)),
            jit_compile=self.jit_compile,
            autograph=False,
        )
        specs = [tf.TensorSpec(part.shape, part.dtype) for part in parts]
        return function.get_concrete_function(*specs)

    # ----------------------------------------------------------------- learning

    def learn(self, batches: Transition, step: Any, previous: Any, n: int) -> tuple:
        """Runs `train_step` on the first `n` minibatches of a stack.

        Returns:
            `(logs, td_errors, finite, before)`: tensors by name; `[K, B]` or `None`; a
            bool tensor, whether losses and weights are numbers (the loop ends with the
            first loss that is none); and what the variables were before.
        """
        if self.run_eagerly:
            return self._eager_loop(batches, step, previous, n)
        return self._compiled(batches, step, previous, tf.constant(n))

    def _loop(self, batches: Transition, step: Any, previous: Any, n: Any) -> tuple:
        """One compilation for full, partial and fractional executions.

        The stack has a constant size and `n` is a tensor: XLA would recompile for
        every other size, and a loop over a Python number be unrolled.
        """
        self.traces += 1
        before = _values(self._state())
        wants_errors = batches.index is not None
        errors = tf.zeros(tf.shape(batches.reward)) if wants_errors else tf.zeros(())

        def body(i: Any, errors: Any, finite: Any) -> tuple:
            self._one(batches, step, previous, i)
            if wants_errors:
                errors = tf.tensor_scatter_nd_update(
                    errors, [[i]], tf.cast(self._reported(), tf.float32)[None]
                )
            return i + 1, errors, _all_finite(self.losses)

        _, errors, finite = tf.while_loop(
            lambda i, errors, finite: (i < n) & finite,
            body,
            (tf.constant(0), errors, tf.constant(True)),
            parallel_iterations=1,
        )
        # A loss does not show what its own gradient did; the weights do.
        finite &= _all_finite(self._learned())
        return self._results(), errors if wants_errors else None, finite, before

    def apply(self, optimizer: Any, gradients: list, variables: list) -> None:
        """Takes one step of an optimizer.

        Convolutions keep the loop from XLA, but an optimizer's dozen passes over each
        variable become one with it, a fifteenth of the time of a Nature CNN's update.
        """
        if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
            optimizer.apply(gradients, variables)
            return
        plain = all(tf.is_tensor(gradient) for gradient in gradients)
        if not self._fuse_updates or not plain:
            _apply(optimizer, variables, *gradients)
            return
        step = functools.partial(_apply, optimizer, variables)
        tf.function(step, jit_compile=True, autograph=False)(*gradients)

    def _eager_loop(self, batches: Any, step: Any, previous: Any, n: int) -> tuple:
        errors, finite, before = [], True, _values(self._state())
        for i in range(n):
            self.run_one(batches, step, previous, i)
            if batches.index is not None:
                errors.append(self._reported())
            finite = bool(_all_finite(self.losses))
            if not finite:
                break
        finite = finite and bool(_all_finite(self._learned()))
        return self._results(), np.stack(errors) if errors else None, finite, before

    def run_one(self, batches: Any, step: Any, previous: Any, i: int) -> None:
        """Runs `train_step` on one minibatch of a NumPy stack, uncompiled."""
        self._one(_map(tf.convert_to_tensor, batches), step, previous, i)

    def _one(self, batches: Any, step: Any, previous: Any, i: Any) -> None:
        self.clock = (step[i], previous[i])
        self.td_error, self.losses = None, []
        self._train_step(take_batch(batches, i))

    def _reported(self) -> Any:
        if self.td_error is None:
            raise ValueError(
                "This memory samples by TD errors, but `train_step` reported none: "
                "call `self.report_td_error(errors)` in it, with shape [B]."
            )
        return self.td_error


def _all_finite(values: list) -> Any:
    finite = [tf.reduce_all(tf.math.is_finite(value)) for value in values]
    return tf.reduce_all(finite) if finite else tf.constant(True)


def _reader(variables: list) -> Callable[[], list[np.ndarray]]:
    """Reads all variables in one call, a third of the time of one by one."""
    read = tf.function(functools.partial(_values, variables), autograph=False)
    function = read.get_concrete_function()
    return lambda: [value.numpy() for value in function()]


def _values(variables: list) -> list:
    return [tf.identity(variable.value) for variable in variables]


def _apply(optimizer: Any, variables: list, *gradients: Any) -> None:
    """`optimizer.apply`, without Keras' sum of the gradients over replicas.

    There is one replica, and TensorFlow keeps the graph in which it traces that sum
    for as long as the process lives: 7 MB for every agent that is made and dropped.
    Across replicas, as within `merge_call`, Keras leaves it out.
    """
    tf.distribute.get_replica_context().merge_call(
        lambda strategy: optimizer.apply(list(gradients), variables)
    )


def take_batch(batches: Transition, i: Any) -> Transition:
    """One minibatch of a stack."""
    return _map(lambda leaf: leaf[i], batches)


def _pack(names: tuple | None, tensors: Any) -> Any:
    return tensors[0] if names is None else dict(zip(names, tensors, strict=True))


def _map(function: Callable, batch: Transition) -> Transition:
    """Applies to each array of a batch; absent fields stay `None`."""

    def leaf(value: Any) -> Any:
        if value is None:
            return None
        if isinstance(value, dict):
            return {name: function(part) for name, part in value.items()}
        return function(value)

    return type(batch)(*map(leaf, batch))
