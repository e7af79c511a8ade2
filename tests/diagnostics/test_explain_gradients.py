"""Every fault that keeps a gradient from a variable, and networks without fault."""

import random

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

import keras_rl2x
from keras_rl2x.diagnostics import explain_gradients

X = np.random.default_rng(0).normal(size=(5, 3)).astype("float32")
Y = np.ones((5, 2), "float32")


def dense_network(name="q", units=2, **kwargs):
    layers = [keras.layers.Dense(4, "tanh"), keras.layers.Dense(units, **kwargs)]
    network = keras.Sequential(layers, name=name)
    network.build((None, 3))
    return network


def mean_square(x):
    return ops.mean(ops.square(x))


def line_of(text):
    """`file:line` of the first line of this file with a marker."""
    with open(__file__, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if line.rstrip().endswith(f"# {text}"):
                return f"{__file__}:{number}"
    raise AssertionError(text)


def only_cause(report):
    causes = {row.cause for row in report}
    assert len(causes) == 1, report
    return causes.pop()


# -------------------------------------------------------------- figures


def test_norms_of_a_product_by_hand():
    """`d(3 a b)/da = 3 b`."""
    a, b = tf.Variable([3.0, 4.0], name="a"), tf.Variable([6.0, 8.0], name="b")
    report = explain_gradients(lambda: 3 * tf.reduce_sum(a * b), [a, b])
    assert report.ok
    assert report.loss == pytest.approx(150)
    assert [row.name for row in report] == ["a", "b"]
    assert [row.gradient_norm for row in report] == pytest.approx([30, 15])
    assert [row.variable_norm for row in report] == pytest.approx([5, 10])
    assert [row.ratio for row in report] == pytest.approx([6, 1.5])


def test_rows_of_an_embedding_are_summed():
    """Row 1 twice, row 2 once: a norm of `sqrt(2 * 2^2 + 2 * 1^2)`."""
    layer = keras.layers.Embedding(4, 2)
    layer.build((None,))
    index = np.array([1, 1, 2])
    row = explain_gradients(lambda: ops.sum(layer(index)), layer.variables).rows[0]
    assert row.reached
    assert row.gradient_norm == pytest.approx(10**0.5)


def test_a_ratio_to_zero_is_left_out():
    variable = keras.Variable(np.zeros(3, "float32"), name="bias")
    report = explain_gradients(lambda: ops.sum(variable), [variable])
    assert report.rows[0].ratio is None
    assert report.ok
    assert "-" in str(report).split("\n")[1]


def test_the_table_is_aligned_and_names_paths():
    network = dense_network()
    report = explain_gradients(
        lambda: mean_square(network(X)), network.trainable_variables
    )
    lines = str(report).split("\n")
    assert len(report) == len(lines) - 1 == 4
    assert len({len(line) for line in lines}) == 1
    assert lines[0].startswith("variable ")
    for variable, line in zip(network.trainable_variables, lines[1:], strict=True):
        assert line.startswith(f"{variable.path} ")


# ------------------------------------------------------ healthy networks


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.inner = dense_network("inner", 3)
        self.head = keras.layers.Dense(2)

    def call(self, x, training=False):
        return self.head(self.inner(x))


def functional():
    x = keras.Input((3,))
    shared = keras.layers.Dense(3, "tanh")
    return keras.Model(x, keras.layers.Dense(2)(shared(shared(x))))


def multi_input():
    a, b = keras.Input((3,)), keras.Input((3,))
    y = keras.layers.Concatenate()([keras.layers.Dense(2)(a), b])
    model = keras.Model([a, b], keras.layers.Dense(2)(y))
    return lambda x, **kwargs: model([x, x], **kwargs), model


def normalised():
    return keras.Sequential(
        [
            keras.Input((3,)),
            keras.layers.Dense(4),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.1),
            keras.layers.Dense(2),
        ]
    )


def recurrent():
    return keras.Sequential(
        [
            keras.Input((3,)),
            keras.layers.Reshape((3, 1)),
            keras.layers.GRU(2),
            keras.layers.Dense(2),
        ]
    )


def convolutional():
    return keras.Sequential(
        [
            keras.Input((3,)),
            keras.layers.Reshape((3, 1)),
            keras.layers.Conv1D(2, 2),
            keras.layers.Flatten(),
            keras.layers.Dense(2),
        ]
    )


def mixed():
    dtype = keras.DTypePolicy("mixed_float16")
    layers = [keras.layers.Dense(4, "tanh", dtype=dtype)]
    layers.append(keras.layers.Dense(2, dtype=dtype))
    return keras.Sequential([keras.Input((3,)), *layers])


KINDS = [
    dense_network,
    functional,
    Subclassed,
    multi_input,
    normalised,
    recurrent,
    convolutional,
    mixed,
]


@pytest.mark.parametrize("compiled", [False, True], ids=["plain", "tf.function"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_all_variables_of_a_healthy_network_are_reached(kind, compiled):
    made = kind()
    call, model = made if isinstance(made, tuple) else (made, made)
    call(X)

    def loss_fn():
        return ops.mean(ops.square(ops.cast(call(X, training=True), "float32") - Y))

    optimizer = keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)
    report = explain_gradients(
        tf.function(loss_fn) if compiled else loss_fn,
        model.trainable_variables,
        optimizer,
    )
    assert not report.unreached, report
    assert not report.notes
    assert all(row.gradient_norm > 0 or row.cause == "zero" for row in report)


@pytest.mark.parametrize("kind", [Subclassed, multi_input, recurrent, mixed])
@pytest.mark.parametrize("compiled", [False, True], ids=["plain", "tf.function"])
def test_a_cut_behind_any_network_is_found(kind, compiled):
    made = kind()
    call, model = made if isinstance(made, tuple) else (made, made)
    call(X)

    def loss_fn():
        return ops.mean(ops.cast(tf.stop_gradient(call(X)), "float32"))  # behind any

    report = explain_gradients(
        tf.function(loss_fn) if compiled else loss_fn, model.trainable_variables
    )
    assert only_cause(report) == "cut"
    assert all("stop_gradient" in row.reason for row in report)
    assert all(line_of("behind any") in row.reason for row in report)


def test_targets_without_gradient_and_huber_are_no_fault():
    """Double Q-learning, as written by hand: argmax and stop_gradient off the path."""
    online, target = dense_network("online"), dense_network("target")

    def loss_fn():
        best = ops.argmax(online(X), axis=1)
        next_value = keras_rl2x.ops.select(target(X), best)
        y = keras_rl2x.ops.td_target(ops.ones(5), ops.ones(5), next_value)
        q = keras_rl2x.ops.select(online(X), ops.zeros(5, "int32"))
        return ops.mean(keras.losses.huber(y[:, None], q[:, None]))

    assert explain_gradients(loss_fn, online.trainable_variables).unreached == ()
    report = explain_gradients(loss_fn, target.trainable_variables)
    assert only_cause(report) == "cut"
    assert "stop_gradient" in report.rows[0].reason
    assert "keras_rl2x/ops" not in report.rows[0].reason


def test_a_straight_through_estimator_is_open():
    w = tf.Variable([0.4, 1.6])
    rounded = lambda: tf.reduce_sum(w + tf.stop_gradient(tf.round(w) - w))  # noqa: E731
    report = explain_gradients(rounded, [w])
    assert report.ok
    assert report.rows[0].gradient_norm == pytest.approx(2**0.5)


# ---------------------------------------------------------------- cuts

CUTS = {
    "argmax": lambda q: ops.cast(ops.argmax(q, axis=1), "float32"),
    "cast to int32": lambda q: ops.cast(ops.cast(q, "int32"), "float32"),
    "comparison": lambda q: ops.cast(q > 0, "float32"),
    "round": ops.round,
    "floor": ops.floor,
    "ceil": ops.ceil,
    "sign": ops.sign,
    "stop_gradient": ops.stop_gradient,
}


@pytest.mark.parametrize("name", CUTS)
@pytest.mark.parametrize("compiled", [False, True], ids=["plain", "tf.function"])
def test_the_op_that_cuts_is_named_with_its_place(name, compiled):
    network, cut = dense_network(), CUTS[name]

    def loss_fn():
        q = network(X)
        return ops.mean(cut(q))  # the cut

    report = explain_gradients(
        tf.function(loss_fn) if compiled else loss_fn, network.trainable_variables
    )
    assert only_cause(report) == "cut"
    assert not any(row.reached for row in report)
    reason = report.rows[0].reason
    assert name in reason
    place = line_of("the cut") if name in DIRECT else f"{__file__}:"
    assert place in reason
    assert len(reason.split("\n")) <= 3


DIRECT = {"round", "floor", "ceil", "sign", "stop_gradient"}


def test_the_cut_closest_to_the_variable_is_named():
    """One-hot of an argmax: the argmax is at fault, not what is done with it."""
    network = dense_network()

    def loss_fn():
        q = network(X)
        return ops.mean(ops.one_hot(ops.argmax(q, axis=1), 2) * Y)

    assert "argmax" in explain_gradients(loss_fn, network.variables).rows[0].reason


def test_a_stop_gradient_inside_of_a_normalisation_is_not_at_fault():
    """Keras' moments hold one; what cuts the path comes behind."""
    network = normalised()

    def loss_fn():
        return ops.mean(ops.round(network(X, training=True)))

    report = explain_gradients(loss_fn, network.trainable_variables)
    assert only_cause(report) == "cut"
    assert all("cut by round" in row.reason for row in report)


def test_a_cut_in_a_branch_and_in_a_loop_is_found():
    w = tf.Variable(0.7)

    def loss_fn():
        x = tf.cond(tf.reduce_sum(X) > 100, lambda: w * 1.0, lambda: tf.floor(w))
        return x * 2

    # The other branch is open in the graph, and not taken here.
    (row,) = explain_gradients(loss_fn, [w])
    assert (row.reached, row.cause) == (False, "unknown")

    @tf.function
    def loop():
        total = tf.constant(0.0)
        for _ in tf.range(3):
            total += tf.round(w)
        return total

    (row,) = explain_gradients(loop, [w])
    assert row.cause == "cut"
    assert "round" in row.reason


def test_python_control_flow_on_tensors_is_followed():
    w = tf.Variable(0.7)

    def loss_fn():
        if tf.reduce_sum(w) > 0:
            return tf.floor(w)
        return tf.floor(w) * 2

    (row,) = explain_gradients(loss_fn, [w])
    assert row.cause == "cut"
    assert "floor" in row.reason


def test_a_custom_gradient_of_none_is_a_cut():
    w = tf.Variable([1.0, 2.0])

    @tf.custom_gradient
    def blocked(x):
        return 2 * x, lambda dy: None

    (row,) = explain_gradients(lambda: tf.reduce_sum(blocked(w.read_value())), [w])
    assert (row.reached, row.cause) == (False, "cut")


def test_an_op_for_which_nobody_has_written_a_gradient_is_named():
    """Here `tape.gradient` raises, instead of giving `None`."""
    w = tf.Variable(np.eye(2, dtype="complex64"), name="w")

    def loss_fn():
        return tf.math.real(tf.reduce_sum(tf.linalg.logm(w)))  # logm

    (row,) = explain_gradients(loss_fn, [w])
    assert (row.reached, row.cause) == (False, "cut")
    assert f"MatrixLogarithm`, {line_of('logm')}" in row.reason


def test_an_integer_loss_is_a_cut():
    w = tf.Variable(3.0)
    (row,) = explain_gradients(lambda: tf.cast(w, tf.int64), [w])
    assert row.cause == "cut"
    assert "int64" in row.reason


# --------------------------------------------------------- leaving the graph


@pytest.mark.parametrize("compiled", [False, True], ids=["plain", "tf.function"])
def test_numpy_in_the_middle_is_placed(compiled):
    network = dense_network()

    def loss_fn():
        q = network(X)
        best = q.numpy().max(axis=1)  # to NumPy
        return ops.mean(ops.square(best - 1.0))

    report = explain_gradients(
        tf.function(loss_fn) if compiled else loss_fn, network.trainable_variables
    )
    assert only_cause(report) == "numpy"
    assert not any(row.reached for row in report)
    assert line_of("to NumPy") in report.rows[0].reason
    assert "keras.ops" in report.rows[0].reason
    assert (report.loss is None) == compiled


@pytest.mark.parametrize(
    "leave",
    [
        lambda network: np.mean(network(X)),
        lambda network: float(ops.mean(network(X))),
        lambda network: network.predict(X, verbose=0).mean(),
        lambda network: tf.reduce_mean(ops.convert_to_numpy(network(X))),
        lambda network: tf.constant(network.get_weights()[0].sum()),
    ],
    ids=["np.mean", "float", "predict", "convert_to_numpy", "get_weights"],
)
def test_all_ways_to_numpy_are_explained(leave):
    network = dense_network()
    report = explain_gradients(lambda: leave(network), network.trainable_variables[:1])
    assert report.rows[0].cause == "numpy", report
    assert isinstance(report.loss, float)


def test_numpy_for_a_log_is_no_fault():
    network = dense_network()

    def loss_fn():
        loss = mean_square(network(X))
        assert loss.numpy() > 0
        return loss

    assert explain_gradients(loss_fn, network.trainable_variables).ok


@pytest.mark.parametrize("name", ["py_function", "numpy_function"])
def test_functions_in_python_are_named(name):
    network = dense_network()

    def loss_fn():
        q = network(X)
        y = getattr(tf, name)(lambda x: np.square(x), [q], tf.float32)  # Python
        return tf.reduce_mean(y)

    report = explain_gradients(loss_fn, network.trainable_variables)
    assert only_cause(report) == "numpy"
    assert name in report.rows[0].reason
    assert line_of("Python") in report.rows[0].reason


def test_a_differentiable_py_function_is_no_fault():
    w = tf.Variable(3.0)
    report = explain_gradients(lambda: tf.py_function(tf.square, [w], tf.float32), [w])
    assert report.ok
    assert report.rows[0].gradient_norm == pytest.approx(6)


def test_a_loss_computed_before_is_a_constant():
    network = dense_network()
    q = network(X)
    report = explain_gradients(lambda: mean_square(q), network.trainable_variables)
    assert only_cause(report) == "constant"
    assert "may once have been a tensor" in str(report).replace("\n  ", " ")
    assert report.loss == pytest.approx(float(mean_square(q)))


# ------------------------------------------------- other networks, none, frozen


def test_a_loss_of_another_network_lists_what_it_reads():
    used, unused = dense_network("used"), dense_network("unused", units=7)
    report = explain_gradients(
        lambda: mean_square(used(X)), unused.trainable_variables[2:]
    )
    assert only_cause(report) == "unread"
    for variable in used.trainable_variables:
        assert variable.path in report.rows[0].reason


def test_a_loss_without_the_output_of_the_network():
    """The question with Huber of states and actions: the network is not even called,
    or called and its output forgotten."""
    network, states = dense_network(), tf.constant(X)

    def forgotten():
        network(states)
        return mean_square(states - 1.0)

    report = explain_gradients(forgotten, network.trainable_variables)
    assert only_cause(report) == "unused"
    report = explain_gradients(
        lambda: mean_square(states - 1.0), network.trainable_variables
    )
    assert only_cause(report) == "constant"


@pytest.mark.parametrize("compiled", [False, True], ids=["plain", "tf.function"])
def test_a_network_built_at_every_call(compiled):
    network = dense_network("given")

    def loss_fn():
        return mean_square(dense_network("anew")(X))

    report = explain_gradients(
        tf.function(loss_fn) if compiled else loss_fn, network.trainable_variables
    )
    assert only_cause(report) == "rebuilt"
    assert "anew at every call" in report.rows[0].reason
    assert compiled or "anew/dense" in report.rows[0].reason


def test_a_network_replaced_since_its_variables_were_listed():
    """`net_init` that creates the network again: same shapes, other variables."""
    network = dense_network("first")
    variables = network.trainable_variables
    network = dense_network("second")
    report = explain_gradients(lambda: mean_square(network(X)), variables)
    assert only_cause(report) == "rebuilt"
    for row, new in zip(report, network.trainable_variables, strict=True):
        assert new.path in row.reason


def test_a_part_that_is_built_on_its_first_call_is_not_rebuilt():
    network, lazy = dense_network(), keras.Sequential([keras.layers.Dense(2)])
    report = explain_gradients(
        lambda: mean_square(network(X) + lazy(X)), network.trainable_variables
    )
    assert report.ok


@pytest.mark.parametrize("reads", [True, False])
def test_a_frozen_layer(reads):
    network = dense_network()
    network.layers[0].trainable = False
    report = explain_gradients(
        (lambda: mean_square(network(X))) if reads else (lambda: tf.constant(1.0)),
        network.variables,
    )
    assert [row.cause == "frozen" for row in report] == [True, True, False, False]
    assert not report.rows[0].reached
    assert report.rows[2].reached == reads


def test_frozen_and_integer_variables_of_tensorflow():
    still = tf.Variable(1.0, trainable=False, name="still")
    count = tf.Variable(1, name="count")
    report = explain_gradients(
        lambda: still * tf.cast(count, tf.float32), [still, count]
    )
    assert [row.cause for row in report] == ["frozen", "integer"]


def test_a_dead_unit_is_reached_with_a_gradient_of_zero():
    w = tf.Variable(-1.0)
    (row,) = explain_gradients(lambda: tf.nn.relu(w), [w])
    assert (row.reached, row.gradient_norm, row.cause) == (True, 0.0, "zero")


def test_a_gradient_that_is_not_finite_is_told():
    w = tf.Variable(0.0)
    (row,) = explain_gradients(lambda: tf.sqrt(w), [w])
    assert (row.reached, row.cause) == (True, "not finite")


def test_causes_are_told_apart_within_one_loss():
    """And a `None` in the middle shifts pairs, for whoever drops it."""
    a, b, c, d = (tf.Variable(float(i), name=f"v{i}") for i in range(1, 5))
    report = explain_gradients(
        lambda: a * 2 + tf.round(b) + 0 * tf.stop_gradient(d) + d, [a, b, c, d]
    )
    assert [row.cause for row in report] == [None, "cut", "unread", None]
    assert [row.name for row in report.unreached] == ["v2", "v3"]
    (note,) = report.notes
    assert "gradient of v2 is None" in note
    assert "gradient of v4" in note
    assert "if g is not None" in note


# ------------------------------------------------------------- optimizers


@pytest.mark.parametrize("wrapped", [False, True], ids=["Adam", "loss scaled"])
def test_an_optimizer_of_other_variables(wrapped):
    network, old = dense_network(), dense_network("old")
    optimizer = keras.optimizers.Adam()
    if wrapped:
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    variables = network.trainable_variables

    def explain():
        return explain_gradients(lambda: mean_square(network(X)), variables, optimizer)

    assert explain().ok  # not built yet
    optimizer.build(old.trainable_variables)
    report = explain()
    assert only_cause(report) == "optimizer"
    assert all(row.reached for row in report)
    assert "old/dense" in report.notes[0]
    assert not report.ok


def test_an_optimizer_of_more_variables_or_of_another_order():
    network, optimizer = dense_network(), keras.optimizers.SGD()
    variables = network.trainable_variables
    optimizer.build(variables)

    def notes(listed):
        return explain_gradients(
            lambda: mean_square(network(X)), listed, optimizer
        ).notes

    assert notes(variables) == ()
    assert "another order" in notes(variables[::-1])[0]
    assert f"also holds {variables[0].path}" in notes(variables[1:])[0]


# ------------------------------------------------------------ no side effects


@pytest.mark.parametrize("traced", [True, False])
def test_nothing_is_changed(traced):
    network, other = normalised(), normalised()
    optimizer = keras.optimizers.Adam()
    optimizer.build(network.trainable_variables)
    mean, generator = keras.metrics.Mean(), tf.random.Generator.from_seed(1)
    keras.utils.set_random_seed(3)

    def loss_fn():
        x = X + generator.normal(X.shape) + np.random.normal() + random.random()
        loss = mean_square(network(x, training=True))
        if not traced:
            loss.numpy()
        other(x, training=True)
        mean.update_state(loss)
        optimizer.apply(
            [ops.ones_like(v) for v in network.trainable_variables],
            network.trainable_variables,
        )
        return loss

    def state():
        variables = (*network.variables, *other.variables, *optimizer.variables)
        values = [np.array(v) for v in (*variables, *mean.variables, generator.state)]
        return [*values, np.random.get_state()[1], np.array(random.getstate()[1])]

    before = state()
    assert not explain_gradients(loss_fn, network.trainable_variables).unreached
    for old, new in zip(before, state(), strict=True):
        np.testing.assert_array_equal(old, new)
    loss_fn()
    changes = [np.any(a != b) for a, b in zip(before, state(), strict=True)]
    assert sum(changes) > 20, "this loss changes what it should not have changed"


def test_an_error_of_the_loss_is_raised_and_nothing_is_changed():
    w = tf.Variable(1.0)

    def loss_fn():
        w.assign_add(1.0)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        explain_gradients(loss_fn, [w])
    assert float(w) == 1


# -------------------------------------------------------------- bad input

W = tf.Variable([1.0, 2.0])


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((1.0, [W]), TypeError, "callable without arguments.*Received: 1.0"),
        ((tf.constant(1.0), [W]), TypeError, "pass the function"),
        ((lambda: 1.0, []), ValueError, "`variables` is empty.*built"),
        ((lambda: 1.0, W), TypeError, "must be a list of variables"),
        ((lambda: 1.0, dense_network()), TypeError, "model.trainable_variables"),
        ((lambda: 1.0, [W, np.ones(2)]), TypeError, "index 1: ndarray.*get_weights"),
        ((lambda: W * 2, [W]), ValueError, r"scalar.*shape \(2,\).*keras.ops.mean"),
        ((lambda: None, [W]), TypeError, "Received: None.*`return` missing"),
        ((lambda: (W[0], 1), [W]), TypeError, "Received a tuple"),
        ((lambda: keras.Input(()), [W]), TypeError, "KerasTensor"),
        ((lambda: W[0], [W], "adam"), TypeError, "keras.optimizers.Optimizer.*str"),
    ],
)
def test_bad_input_is_refused_with_a_remedy(arguments, error, message):
    with pytest.raises(error, match=message):
        explain_gradients(*arguments)


def test_a_call_inside_of_a_tf_function_is_refused():
    call = tf.function(lambda: explain_gradients(lambda: W[0], [W]), autograph=False)
    with pytest.raises(RuntimeError, match="outside of any `tf.function`"):
        call()


def test_it_is_there_after_the_import_of_the_package():
    assert keras_rl2x.diagnostics.explain_gradients is explain_gradients
