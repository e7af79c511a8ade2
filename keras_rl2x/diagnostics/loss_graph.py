"""The graph of a loss: which variables it depends on, and where paths are cut."""

import math
import os
import re
import sysconfig
import traceback
from collections import defaultdict
from collections import deque
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

# Their outputs tell of shapes, not of values: no path that anyone means.
SHAPES = {"Shape", "ShapeN", "Size", "Rank", "ZerosLike", "OnesLike"}
# TensorFlow calls their gradient zero instead of none.
FLAT = {"Sign"}
# Their gradient is that of the Python function, which may be NumPy inside.
PYTHON = {"PyFunc", "PyFuncStateless", "EagerPyFunc"}
CALLS = ("PartitionedCall", "If", "Case", "While")
LIBRARIES = tuple(
    os.path.dirname(path) + os.sep
    for path in (
        tf.__file__,
        keras.__file__,
        np.__file__,
        os.path.dirname(os.path.abspath(__file__)),
    )
)
STANDARD_LIBRARY = sysconfig.get_paths()["stdlib"] + os.sep


def user_place(frames: Iterable[tuple[str, int]]) -> str:
    """The innermost `file:line` that belongs to no library, or an empty string."""
    place = ""
    for filename, line in frames:
        generated = filename.startswith("<frozen") or "__autograph" in filename
        standard = filename.startswith(STANDARD_LIBRARY) and (
            "site-packages" not in filename
        )
        if not (generated or standard or filename.startswith(LIBRARIES)):
            place = f"{filename}:{line}"
    return place


def place_of_error(error: BaseException) -> str:
    """Where the user's code raised: AutoGraph writes it into the message."""
    written = re.findall(r'File "(.+?)", line (\d+), in', str(error))
    frames = traceback.extract_tb(error.__traceback__)
    return user_place((f, int(n)) for f, n in written) or user_place(
        (frame.filename, frame.lineno) for frame in frames
    )


def place_of_op(op: tf.Operation) -> str:
    """Where the user's code made an op."""
    return user_place((frame.filename, frame.lineno) for frame in op.traceback)


@dataclass(frozen=True)
class Edge:
    """Data that flows through an op; `passes` is `None` where the op decides."""

    source: tf.Tensor
    target: tf.Tensor
    op: tf.Operation
    passes: bool | None = None
    index: int = 0  # of the source among the inputs

    @property
    def kind(self) -> tuple:
        """What decides whether a gradient passes: the same for all ops of a kind."""
        attributes = self.op.node_def.attr
        name = "_gradient_op_type"
        custom = attributes[name].s if name in attributes else b""
        types = self.source.dtype, self.target.dtype
        return self.op.type, custom, self.index, self.target.value_index, types


@dataclass(frozen=True)
class Path:
    """What a gradient meets between the loss and a variable, on its best way.

    Attributes:
        cut: the op that no gradient passes, or `None` where the way is open; of
            several in a row the one closest to the variable.
        python: an op that calls Python, or `None`.
    """

    cut: tf.Operation | None
    python: tf.Operation | None


class LossGraph:
    """A loss traced into a graph, with the functions inside of it.

    A function that is called twice is walked once, with the inputs of both calls.

    Args:
        loss_fn: callable without arguments that returns the loss.

    Raises:
        Exception: whatever `loss_fn` raises where tensors have no values yet.
    """

    def __init__(self, loss_fn: Callable[[], Any]):
        # Kept, since the graph only lives as long as its function.
        self._function = _trace(loss_fn)
        graph = self._function.graph
        self._loss = graph.outputs[0]
        self._placeholders = {id(outer): inner for outer, inner in graph.captures}
        self._from, into = defaultdict(list), defaultdict(list)
        for edge in _edges(graph, set()):
            self._from[edge.source.ref()].append(edge)
            into[edge.target.ref()].append(edge)
        self._relevant = _sources(self._loss, into)
        self._passing: dict[tuple, bool] = {}

    def calls(self, variable: tf.Variable) -> bool:
        """Whether a variable is read (or assigned), for whatever purpose."""
        return id(variable.handle) in self._placeholders

    def uses(self, variable: tf.Variable) -> bool:
        """Whether the value of the loss depends on a variable."""
        placeholder = self._placeholders.get(id(variable.handle))
        return placeholder is not None and placeholder.ref() in self._relevant

    def path(self, variable: tf.Variable) -> Path:
        """What lies between the loss and a variable that it uses."""
        start = self._placeholders[id(variable.handle)].ref()
        cuts, last, waiting = {start: 0}, {}, deque([start])
        # The way with the fewest cuts is the one that was meant: others lead through
        # the cuts that belong there, of a comparison or a normalisation.
        while waiting:
            tensor = waiting.popleft()
            for edge in self._from.get(tensor, ()):
                target, passes = edge.target.ref(), self._passes(edge)
                count = cuts[tensor] + (not passes)
                if target in self._relevant and count < cuts.get(target, math.inf):
                    cuts[target], last[target] = count, edge
                    (waiting.appendleft if passes else waiting.append)(target)
        way, tensor = [], self._loss.ref()
        while tensor != start:
            way.insert(0, last[tensor])
            tensor = way[0].source.ref()
        return Path(
            next((edge.op for edge in way if not self._passes(edge)), None),
            next((edge.op for edge in way if edge.op.type in PYTHON), None),
        )

    def _passes(self, edge: Edge) -> bool:
        if edge.passes is not None:
            return edge.passes
        # TensorFlow searches the whole graph for each gradient, so it is asked once.
        if edge.kind not in self._passing:
            self._passing[edge.kind] = _has_gradient(edge)
        return self._passing[edge.kind]


def _trace(loss_fn: Callable[[], Any]) -> Any:
    def call() -> tf.Tensor:
        return tf.convert_to_tensor(loss_fn())

    try:
        return tf.function(call, autograph=False).get_concrete_function()
    except tf.errors.OperatorNotAllowedInGraphError:
        # `if tensor:` in eager code; AutoGraph turns it into a graph.
        return tf.function(call, autograph=True).get_concrete_function()


def _sources(tensor: tf.Tensor, into: dict) -> set:
    """References of a tensor and of all on which it depends."""
    found, waiting = {tensor.ref()}, [tensor.ref()]
    while waiting:
        for edge in into.get(waiting.pop(), ()):
            if edge.source.ref() not in found:
                found.add(edge.source.ref())
                waiting.append(edge.source.ref())
    return found


def _edges(graph: Any, seen: set[int]) -> Iterator[Edge]:
    """All edges of a graph and of the functions that it calls."""
    if id(graph) in seen:
        return
    seen.add(id(graph))
    for op in graph.get_operations():
        bodies = _bodies(op)
        yield from _call_edges(op, bodies) if bodies else _op_edges(op)
        for body in bodies.values():
            yield from _edges(body, seen)


def _op_edges(op: tf.Operation) -> Iterator[Edge]:
    if op.type in SHAPES:
        return
    for index, source in enumerate(op.inputs):
        for target in op.outputs:
            yield Edge(source, target, op, index=index)


def _call_edges(op: tf.Operation, bodies: dict[str, Any]) -> Iterator[Edge]:
    """Edges into and out of the functions of a call, a condition or a loop."""

    def link(sources: Iterable, targets: Iterable, passes: bool = True) -> Iterator:
        for source, target in zip(sources, targets, strict=False):
            yield Edge(source, target, op, passes)

    inputs, outputs = list(op.inputs), list(op.outputs)
    condition = bodies.get("cond")
    if "If" in op.type or "Case" in op.type:
        predicate = inputs.pop(0)
        yield from link([predicate] * len(outputs), outputs, False)
    if condition is not None:
        results = [body for name, body in bodies.items() if name != "cond"]
        yield from link(inputs, outputs)  # not one iteration
        yield from link(condition.outputs * len(outputs), outputs, False)
        for body in results:
            yield from link(body.outputs, body.inputs)
            yield from link(body.outputs, condition.inputs)
    for name, body in bodies.items():
        yield from link(inputs, body.inputs)
        if name != "cond":
            yield from link(body.outputs, outputs)


def _bodies(op: tf.Operation) -> dict[str, Any]:
    """Graphs of the functions that an op calls, where TensorFlow tells them."""
    bodies = {}
    if not op.type.endswith(CALLS):
        return bodies
    for name in ("f", "then_branch", "else_branch", "cond", "body", "branches"):
        if name not in op.node_def.attr:
            continue
        functions = op.get_attr(name)
        for i, function in enumerate(
            functions if isinstance(functions, list) else [functions]
        ):
            lookup = getattr(op.graph, "_get_function", lambda name: None)
            body = getattr(lookup(function.name), "graph", None)
            if body is not None:
                bodies[f"{name}{i or ''}"] = body
    return bodies


def _has_gradient(edge: Edge) -> bool:
    """Whether an op hands a gradient from one of its outputs to one of its inputs."""
    source, target, op = edge.source, edge.target, edge.op
    carriers = (tf.resource, tf.variant)
    if op.type in FLAT:
        return False
    if op.type.endswith(CALLS):
        return True  # a function that cannot be looked into
    if source.dtype in carriers or target.dtype in carriers:
        return True  # reads of variables, and lists inside of loops
    continuous = [
        tensor.dtype.is_floating or tensor.dtype.is_complex
        for tensor in (source, target)
    ]
    if not all(continuous):
        return False
    with op.graph.as_default():
        try:
            gradient = tf.gradients(
                target,
                source,
                grad_ys=tf.ones_like(target),
                stop_gradients=list(op.inputs),
            )
        except LookupError:  # nobody has written one
            return False
        except Exception:  # one that cannot be called apart is there all the same
            return True
    return gradient[0] is not None


# What a user calls an op, and what to do about it.
_SMOOTH = "Use a smooth function instead, for example a sigmoid."
_STRAIGHT = (
    "Use the value without it, or pass the gradient through: "
    "`x + stop_gradient(round(x) - x)`."
)
_INDEX = "Use the value at the index (`max`, `take_along_axis`), not the index."
_NUMPY = "Write it with TensorFlow or `keras.ops`."
NAMED = {
    "PyFunc": ("tf.numpy_function", _NUMPY),
    "PyFuncStateless": ("tf.numpy_function", _NUMPY),
    "EagerPyFunc": ("tf.py_function", _NUMPY),
    "StopGradient": ("stop_gradient", "Leave it out if the variable is to learn."),
    "ArgMax": ("argmax", _INDEX),
    "ArgMin": ("argmin", _INDEX),
    "Cast": ("a cast to {dtype}", "Keep the value in floating point."),
    "Round": ("round", _STRAIGHT),
    "Rint": ("round", _STRAIGHT),
    "Floor": ("floor", _STRAIGHT),
    "Ceil": ("ceil", _STRAIGHT),
    "Sign": ("sign", _STRAIGHT),
    **{
        name: (f"a comparison ({name})", _SMOOTH)
        for name in (
            "Greater",
            "GreaterEqual",
            "Less",
            "LessEqual",
            "Equal",
            "NotEqual",
        )
    },
}


def describe(op: tf.Operation) -> tuple[str, str]:
    """What a user calls an op, with its place, and what to do about it."""
    default = (op.type, "Use an op that has a gradient.")
    name, remedy = NAMED.get(op.type, default)
    name = name.format(dtype=op.outputs[0].dtype.name if op.outputs else "")
    place = place_of_op(op)
    return f"{name} (`{op.name}`{', ' + place if place else ''})", remedy
