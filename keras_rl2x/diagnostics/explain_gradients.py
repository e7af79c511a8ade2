"""Which variables a loss reaches, and why it does not reach the others."""

import contextlib
import gc
import numbers
import random
import re
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_rl2x.diagnostics.loss_graph import PYTHON
from keras_rl2x.diagnostics.loss_graph import LossGraph
from keras_rl2x.diagnostics.loss_graph import describe
from keras_rl2x.diagnostics.loss_graph import place_of_error

# What TensorFlow says where a tensor without a value is to become NumPy.
NUMPY_ERROR = (
    "no attribute 'numpy'|to a numpy array|numpy\\(\\) is only available|"
    "argument must be .* not 'SymbolicTensor'|Cannot evaluate tensor using `eval"
)
REBUILT_ERROR = "singleton tf.Variables"


@dataclass(frozen=True)
class GradientRow:
    """What is known of one variable.

    Attributes:
        name: path of the variable.
        reached: whether a gradient arrives and the variable may take it.
        gradient_norm: float, L2; `None` where TensorFlow gives no gradient.
        variable_norm: float, L2.
        ratio: gradient norm over variable norm; `None` where either is missing or the
            variable is zero.
        cause: `None` where all is well, else one of `"frozen"`, `"integer"`,
            `"unread"`, `"unused"`, `"rebuilt"`, `"cut"`, `"numpy"`, `"constant"`,
            `"zero"`, `"not finite"`, `"optimizer"`, `"unknown"`.
        reason: the cause in words, with the place and a remedy.
    """

    name: str
    reached: bool
    gradient_norm: float | None
    variable_norm: float
    ratio: float | None
    cause: str | None = None
    reason: str = ""


@dataclass(frozen=True)
class GradientReport:
    """One row per variable, in the order given; prints as a table.

    Attributes:
        rows: tuple of `GradientRow`.
        loss: float, or `None` where `loss_fn` could not be run.
        notes: what concerns no single variable.
    """

    rows: tuple[GradientRow, ...]
    loss: float | None
    notes: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[GradientRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def unreached(self) -> tuple[GradientRow, ...]:
        """Rows of the variables that do not learn from this loss."""
        return tuple(row for row in self.rows if not row.reached)

    @property
    def ok(self) -> bool:
        """Whether every variable is reached and nothing is to be said."""
        return not self.notes and all(row.cause is None for row in self.rows)

    def __str__(self) -> str:
        title = ("variable", "reached", "gradient norm", "variable norm", "ratio")
        cells = [title]
        for row in self.rows:
            numbers = (row.gradient_norm, row.variable_norm, row.ratio)
            texts = ("-" if x is None else f"{x:.3g}" for x in numbers)
            cells.append((row.name, "yes" if row.reached else "NO", *texts))
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = []
        for name, *others in cells:
            aligned = (t.rjust(w) for t, w in zip(others, widths[1:], strict=True))
            lines.append("  ".join((name.ljust(widths[0]), *aligned)))
        reasons: dict[tuple, list[str]] = {}
        for row in self.rows:
            if row.cause is not None:
                reasons.setdefault((row.cause, row.reason), []).append(row.name)
        for (cause, reason), names in reasons.items():
            lines += ["", f"{_listed(names)}: {cause}"]
            lines += [f"  {line}" for line in reason.split("\n")]
        for note in self.notes:
            lines += ["", f"Note: {note}"]
        return "\n".join(lines)


def explain_gradients(
    loss_fn: Callable[[], Any], variables: Sequence[Any], optimizer: Any = None
) -> GradientReport:
    """Tells which variables a loss reaches, and why it does not reach the others.

    `gradient norm = |d loss / d variable|_2`, `ratio = gradient norm / |variable|_2`

    Works with any TensorFlow or Keras 3 code. `loss_fn` is traced once into a graph
    and run once eagerly. Afterwards all variables and the global generators of Python
    and NumPy are as before; only what `loss_fn` itself keeps elsewhere (a replay
    memory's generator, the unseeded `tf.random` ops) moves on.

    Args:
        loss_fn: callable without arguments that computes the loss, a scalar, from the
            networks' outputs; plain Python or a `tf.function`.
        variables: list of `keras.Variable` or `tf.Variable` that should learn, usually
            `model.trainable_variables`.
        optimizer: the Keras optimizer that is to apply the gradients, to check that it
            holds these variables; `None` for no check.

    Returns:
        A report that prints as a table and iterates over rows with `name`, `reached`,
        `gradient_norm`, `variable_norm`, `ratio`, `cause` and `reason`.

    Raises:
        TypeError: if `loss_fn` is not callable or returns no tensor, `variables` holds
            anything but variables, or `optimizer` is no Keras optimizer.
        ValueError: if the loss is no scalar, or `variables` is empty.
        RuntimeError: inside of a `tf.function`.

    Example:
    ```python
    def loss_fn():
        return keras.ops.mean((network(states) - targets) ** 2)

    print(explain_gradients(loss_fn, network.trainable_variables))
    ```
    """
    variables = _checked(loss_fn, variables, optimizer)
    with _unchanged() as known:
        graph, error = None, None
        try:
            graph = LossGraph(loss_fn)
        except Exception as caught:  # explained below, or raised again by the run
            error = caught
        run = _run(loss_fn, [_tensor(v) for v in variables], error)
    detective = _Detective(graph, error, run, known, variables)
    held = _held_by(optimizer)
    rows = tuple(
        _row(variable, gradient, detective, held)
        for variable, gradient in zip(variables, run.gradients, strict=True)
    )
    notes = (*_pair_notes(rows), *_optimizer_notes(variables, optimizer, held))
    return GradientReport(rows, run.loss, notes)


# ----------------------------------------------------------------- arguments


def _checked(loss_fn: Any, variables: Any, optimizer: Any) -> list[Any]:
    if not tf.executing_eagerly():
        raise RuntimeError(
            "`explain_gradients` runs `loss_fn` itself; call it outside of any "
            "`tf.function`."
        )
    if not callable(loss_fn):
        hint = ""
        if tf.is_tensor(loss_fn):
            hint = " A computed loss no longer knows its path: pass the function."
        raise TypeError(
            "`loss_fn` must be a callable without arguments that returns the loss, "
            f"such as `lambda: loss(network(x), y)`. Received: {loss_fn!r}.{hint}"
        )
    if _is_variable(variables) or not isinstance(variables, Iterable):
        raise TypeError(
            "`variables` must be a list of variables, such as "
            "`model.trainable_variables`. Received an object of type "
            f"{type(variables).__name__}."
        )
    variables = list(variables)
    if not variables:
        raise ValueError(
            "`variables` is empty. Pass `model.trainable_variables` of a model that is "
            "built (called once) and not frozen."
        )
    for i, variable in enumerate(variables):
        if not _is_variable(variable):
            raise TypeError(
                "`variables` must hold `keras.Variable` or `tf.Variable` objects, not "
                f"their values. Received at index {i}: {type(variable).__name__}. "
                "Use `model.trainable_variables`, not `get_weights()`."
            )
    if not (optimizer is None or isinstance(optimizer, keras.optimizers.Optimizer)):
        raise TypeError(
            "`optimizer` must be a `keras.optimizers.Optimizer` or `None`. Received an "
            f"object of type {type(optimizer).__name__}."
        )
    return variables


def _check_loss(loss: Any) -> None:
    expected = "`loss_fn` must return the loss, a scalar tensor"
    if loss is None:
        raise TypeError(f"{expected}. Received: None. Is a `return` missing?")
    if isinstance(loss, keras.KerasTensor):
        raise TypeError(
            f"{expected}. Received a KerasTensor, which has no value; call the "
            "network on an array, not on a `keras.Input`."
        )
    if not (tf.is_tensor(loss) or isinstance(loss, (numbers.Real, np.ndarray))):
        raise TypeError(
            f"{expected}. Received a {type(loss).__name__}; return the loss alone."
        )
    if np.shape(loss) != ():
        raise ValueError(
            f"{expected}. Received shape {tuple(np.shape(loss))}; reduce it with "
            "`keras.ops.mean(loss)`."
        )


def _is_variable(value: Any) -> bool:
    return isinstance(value, (keras.Variable, tf.Variable))


def _tensor(variable: Any) -> tf.Variable:
    return variable.value if isinstance(variable, keras.Variable) else variable


def _name(variable: Any) -> str:
    return getattr(variable, "path", None) or variable.name.split(":")[0]


def _listed(names: Sequence[str], most: int = 4) -> str:
    names = list(dict.fromkeys(names))
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


# --------------------------------------------------------------- measurement


@contextlib.contextmanager
def _unchanged() -> Iterator[list[tf.Variable]]:
    """Gives all variables there are, and puts their values back at the end.

    A loss may change variables that nobody gave: moving averages, seeds, metrics. The
    copies cost nothing, since TensorFlow shares buffers until one is written.
    """
    objects = gc.get_objects()
    kinds = {kind for kind in set(map(type, objects)) if issubclass(kind, tf.Variable)}
    known = [obj for obj in objects if type(obj) in kinds and _is_eager(obj)]
    del objects
    values = [variable.read_value() for variable in known]
    generators = random.getstate(), np.random.get_state()
    try:
        yield known
    finally:
        random.setstate(generators[0])
        np.random.set_state(generators[1])
        for variable, value in zip(known, values, strict=True):
            variable.assign(value, read_value=False)


def _is_eager(variable: tf.Variable) -> bool:
    """Whether a variable has a value of its own that can be read now."""
    if hasattr(variable, "values"):  # spread over devices; each part is found as well
        return False
    return not tf.is_symbolic_tensor(variable.handle) and bool(
        variable.is_initialized()
    )


@dataclass(frozen=True)
class _Run:
    """What one eager call has shown."""

    loss: float | None
    gradients: list
    watched: Sequence[tf.Variable] = ()
    created: Sequence[tf.Variable] = ()
    failure: str = ""


def _run(
    loss_fn: Callable[[], Any], variables: list[tf.Variable], error: Exception | None
) -> _Run:
    created = []

    def remember(create: Callable, **kwargs: Any) -> tf.Variable:
        created.append(create(**kwargs))
        return created[-1]

    nothing = [None] * len(variables)
    try:
        with tf.variable_creator_scope(remember), tf.GradientTape() as tape:
            loss = loss_fn()
    except Exception as raised:
        # A `tf.function` raises here what it raised when it was traced.
        known = re.search(f"{NUMPY_ERROR}|{REBUILT_ERROR}", str(raised))
        if error is None or known is None:
            raise
        return _Run(None, nothing)
    _check_loss(loss)
    gradients, failure = nothing, ""
    if tf.is_tensor(loss) and (loss.dtype.is_floating or loss.dtype.is_complex):
        try:
            gradients = tape.gradient(loss, variables)
        except Exception as raised:  # the graph tells why, where it can
            failure = _first_line(raised)
    return _Run(float(loss), gradients, tape.watched_variables(), created, failure)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:120]}"


def _norm(tensor: Any) -> float:
    tensor = tf.convert_to_tensor(tensor)  # sums the rows of an embedding's slices
    return float(tf.norm(tf.cast(tf.abs(tensor), tf.float64)))


# ----------------------------------------------------------------- reasoning


def _row(
    variable: Any, gradient: Any, detective: "_Detective", held: set[int] | None
) -> GradientRow:
    norm = None if gradient is None else _norm(gradient)
    size = _norm(_tensor(variable))
    ratio = norm / size if norm is not None and size > 0 else None
    cause, reason = detective.explain(variable, norm)
    reached = cause in (None, "zero", "not finite")
    if cause is None and held is not None and id(_tensor(variable)) not in held:
        cause, reason = (
            "optimizer",
            (
                "A gradient arrives, but the optimizer was built for other variables.\n"
                "Make a new one, and `optimizer.build(variables)` with all of them."
            ),
        )
    return GradientRow(_name(variable), reached, norm, size, ratio, cause, reason)


class _Detective:
    """Finds out why a variable is not reached."""

    def __init__(
        self,
        graph: LossGraph | None,
        error: Exception | None,
        run: _Run,
        known: list[tf.Variable],
        variables: list[Any],
    ):
        self.graph, self.error, self.run = graph, error, run
        self.watched = {id(variable) for variable in run.watched}
        candidates = {id(v): v for v in (*known, *run.watched)}.values()
        floats = [v for v in candidates if v.dtype.is_floating]
        if graph is None:
            self.reads = list(run.watched)
        else:
            self.reads = [v for v in floats if graph.uses(v)]
        given = {id(_tensor(variable)) for variable in variables}
        self.others = [v for v in self.reads if id(v) not in given]
        self.reads_given = len(self.others) < len(self.reads)
        created = {id(variable) for variable in run.created}
        self.rebuilt = [v for v in run.watched if id(v) in created]

    def explain(self, variable: Any, norm: float | None) -> tuple[str | None, str]:
        """The cause, or `None`, and the reason in words."""
        tensor = _tensor(variable)
        if not variable.trainable:
            return "frozen", (
                "It is frozen: `trainable` is False, so Keras never updates it.\n"
                "Set `trainable = True` on its layer, or do not list it."
            )
        if not (tensor.dtype.is_floating or tensor.dtype.is_complex):
            return "integer", (
                f"It holds {tensor.dtype.name}, and only floating point numbers have "
                "gradients."
            )
        if norm is not None and not np.isfinite(norm):
            return "not finite", (
                "The gradient is NaN or infinite: a logarithm, root or division at 0, "
                "or an overflow.\nKeep the arguments away from 0, or scale the loss."
            )
        if norm:
            return None, ""
        if self.graph is None:
            return self._without_graph(tensor, norm)
        if not self.graph.uses(tensor):
            return self._unread(tensor, self.graph.calls(tensor))
        return self._on_the_path(tensor, norm)

    def _on_the_path(
        self, tensor: tf.Variable, norm: float | None
    ) -> tuple[str | None, str]:
        path = self.graph.path(tensor)
        if path.cut is not None:
            name, remedy = describe(path.cut)
            return "numpy" if path.cut.type in PYTHON else "cut", (
                f"Its path to the loss is cut by {name}, which has no gradient.\n"
                f"{remedy}"
            )
        if path.python is not None:
            name, remedy = describe(path.python)
            return "numpy", (
                f"Its path to the loss leaves TensorFlow in {name}.\n{remedy}"
            )
        if self.run.failure:
            return "unknown", (
                f"TensorFlow cannot compute the gradients: {self.run.failure}."
            )
        if norm is None:
            return "unknown", (
                "A path is there in the graph, but an eager run gives no gradient.\n"
                "Does `loss_fn` do something else in a `tf.function` than eagerly?"
            )
        return _zero()

    def _without_graph(
        self, tensor: tf.Variable, norm: float | None
    ) -> tuple[str | None, str]:
        """From the error of the trace, and from what the eager run has watched."""
        if norm is not None:
            return _zero()
        place = place_of_error(self.error)
        where = f" at {place}" if place else ""
        is_read = id(tensor) in self.watched
        if re.search(REBUILT_ERROR, str(self.error)) and not is_read:
            return self._rebuilt(where)
        ran = self.run.loss is not None
        if ran and not is_read and (self.rebuilt or self.reads):
            return self._unread(tensor, False)
        if re.search(NUMPY_ERROR, str(self.error)):
            return "numpy", (
                f"Its path leaves TensorFlow{where}: `.numpy()`, `predict` and NumPy "
                "give plain numbers.\nCall the network itself, and compute with "
                "TensorFlow or `keras.ops`."
            )
        return "unknown", (
            f"It is read, but no gradient arrives, and tracing failed{where}:\n"
            f"{_first_line(self.error)}"
        )

    def _unread(self, tensor: tf.Variable, called: bool) -> tuple[str, str]:
        if called:
            return "unused", (
                "`loss_fn` reads it, but nothing that is computed from it enters the "
                f"loss.\n{self._reading()}\nCompute the loss from the network's output."
            )
        if self.rebuilt:
            return self._rebuilt("")
        replaced = any(other.shape == tensor.shape for other in self.others)
        if replaced and not self.reads_given:
            return "rebuilt", (
                "The loss reads variables of the same shapes in its place: "
                f"{_listed([_name(v) for v in self.others])}.\n"
                "They belong to another network, or to this one built anew.\n"
                "List the variables of the network that the loss calls."
            )
        if not self.reads:
            return "constant", (
                "The loss is a constant: it depends on no variable. It may once have "
                "been a tensor,\nbut NumPy, `predict` or a computation before "
                "`loss_fn` has left only its value.\n"
                "Call the network inside of `loss_fn`."
            )
        return "unread", (
            f"The loss never reads it. {self._reading()}\n"
            "Call its network in `loss_fn`, or do not list it."
        )

    def _rebuilt(self, where: str) -> tuple[str, str]:
        made = _listed([_name(v) for v in self.rebuilt])
        return "rebuilt", (
            f"`loss_fn` builds its network anew at every call{where}"
            f"{f' ({made})' if made else ''},\nso the variables given are not the ones "
            "it uses.\nBuild the network once, outside, and only call it inside."
        )

    def _reading(self) -> str:
        names = _listed([_name(v) for v in self.reads])
        return f"It reads: {names}." if names else "The loss reads no variable."


def _zero() -> tuple[str, str]:
    return "zero", (
        "A path is there, but the gradient is exactly 0 here: dead or saturated units, "
        "clipping, or a factor of 0.\nTry other inputs, and look at the activations."
    )


# --------------------------------------------------------------------- notes


def _pair_notes(rows: Sequence[GradientRow]) -> Iterator[str]:
    """Warns of a list of gradients from which each `None` is dropped."""
    for i, row in enumerate(rows):
        later = [r for r in rows[i + 1 :] if r.gradient_norm is not None]
        if row.gradient_norm is None and later:
            yield (
                f"the gradient of {row.name} is None. Whoever drops it before `zip` "
                f"gives it the gradient of {later[0].name};\n"
                "  drop pairs: `[(g, v) for g, v in zip(gradients, variables) if g is "
                "not None]`."
            )
            return


def _held_by(optimizer: Any) -> set[int] | None:
    """Identities of an optimizer's variables; `None` where it has none yet."""
    if optimizer is None or not optimizer.built:
        return None
    return {id(_tensor(variable)) for variable in _trained_by(optimizer)}


def _trained_by(optimizer: Any) -> list[Any]:
    # Keras has no public list of them; `variables` are the optimizer's own.
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    return list(inner._trainable_variables)


def _optimizer_notes(
    variables: list[Any], optimizer: Any, held: set[int] | None
) -> Iterator[str]:
    if held is None:
        return
    given = {id(_tensor(variable)) for variable in variables}
    trained = _trained_by(optimizer)
    missing = [_name(v) for v in variables if id(_tensor(v)) not in held]
    extra = [_name(v) for v in trained if id(_tensor(v)) not in given]
    if missing:
        yield (
            f"the optimizer does not hold {_listed(missing)}; it was built for "
            f"{_listed([_name(v) for v in trained])}."
        )
    elif extra:
        yield (
            f"the optimizer also holds {_listed(extra)}, which you did not list; give "
            "`apply` the variables: `optimizer.apply(gradients, variables)`."
        )
    elif [id(_tensor(v)) for v in trained] != [id(_tensor(v)) for v in variables]:
        yield (
            "the optimizer holds the variables in another order; give `apply` the "
            "variables: `optimizer.apply(gradients, variables)`."
        )
