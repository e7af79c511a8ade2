import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_rl2x import ops

ONLINE = np.array([[1.0, 3.0, 2.0]], np.float32)
TARGET = np.array([[5.0, 0.5, 4.0]], np.float32)


def one_step(value, discount):
    return ops.td_target(tf.constant([1.0]), tf.constant([discount]), value)


def test_q_learning_target_takes_the_maximum_of_the_target_network(run):
    y = run(lambda q: one_step(ops.q_learning_value(q), 0.9), TARGET)
    np.testing.assert_allclose(y, [5.5], rtol=1e-6)


def test_double_q_learning_selects_online_and_values_with_the_target(run):
    # 1.9 has the roles swapped, 3.7 uses the online network only.
    def target(q, selector):
        return one_step(ops.double_q_learning_value(q, selector), 0.9)

    np.testing.assert_allclose(run(target, TARGET, ONLINE), [1.45], rtol=1e-6)


def test_ties_go_to_the_lowest_index(run):
    value = run(ops.double_q_learning_value, [[1.0, 9.0]], [[2.0, 2.0]])
    np.testing.assert_array_equal(value, [1.0])


def test_nothing_is_learned_beyond_a_termination(run):
    for value in (ops.q_learning_value(TARGET), tf.constant([3e38])):
        np.testing.assert_array_equal(run(lambda v: one_step(v, 0.0), value), [1.0])


def test_td_target_of_a_batch(run):
    y = run(ops.td_target, [1.0, -2.0, 0.0], [0.9, 0.0, 0.81], [10.0, 10.0, -10.0])
    np.testing.assert_allclose(y, [10.0, -2.0, -8.1], rtol=1e-6)
    assert y.dtype == np.float32


def test_td_target_is_float32_whatever_comes_in():
    for dtype in ("float16", "bfloat16", "float64"):
        y = ops.td_target(*(tf.constant([0.5], dtype) for _ in range(3)))
        assert y.dtype == tf.float32
        assert float(y[0]) == 0.75


def test_no_gradient_flows_through_a_target():
    parts = [tf.Variable([v]) for v in (1.0, 0.9, 2.0)]
    with tf.GradientTape() as tape:
        y = ops.td_target(*parts)
    assert tape.gradient(y, parts) == [None, None, None]


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_select_takes_the_value_of_each_rows_action(run, dtype):
    q_values = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], np.float32)
    taken = run(ops.select, q_values, np.array([0, 1, 0], dtype))
    np.testing.assert_array_equal(taken, [1.0, 4.0, 5.0])


def test_only_the_entries_taken_get_a_gradient():
    q_values = tf.constant([[1.0, 2.0], [3.0, 4.0]])
    with tf.GradientTape() as tape:
        tape.watch(q_values)
        taken = ops.select(q_values, tf.constant([0, 1]))
        loss = keras.losses.MeanSquaredError()(
            tf.constant([[2.0], [2.0]]), taken[:, None]
        )
    np.testing.assert_allclose(tape.gradient(loss, q_values), [[-1.0, 0.0], [0.0, 2.0]])


@pytest.mark.parametrize(
    ("loss", "targets", "expected"),
    [
        (keras.losses.MeanSquaredError(), [2.0, 2.0], 2.5),
        # Of all pairs, as [B] against [B, 1] would give: 5.5.
        (keras.losses.MeanSquaredError(), [2.0, 5.0], 1.0),
        (keras.losses.Huber(), [2.0, 2.0], 1.0),
    ],
)
def test_keras_losses_of_the_values_taken(run, loss, targets, expected):
    def value(q_values, action, y):
        return loss(y[:, None], ops.select(q_values, action)[:, None])

    got = run(value, [[1.0, 2.0], [3.0, 4.0]], [0, 1], targets)
    np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_forbidden_actions_are_never_the_best(run):
    mask = np.array([[False, True, True]])
    assert run(ops.q_learning_value, TARGET, mask) == [4.0]
    # Online prefers action 1 of the two allowed ones, of which the target says 0.5.
    assert run(ops.double_q_learning_value, TARGET, ONLINE, mask) == [0.5]
    mask = np.array([[True, False, True]])
    assert run(ops.double_q_learning_value, TARGET, ONLINE, mask) == [4.0]


def test_forbidden_actions_stay_below_very_low_values(run):
    q_values = np.array([[-1e30, 0.0]], np.float32)
    value = run(ops.q_learning_value, q_values, np.array([[True, False]]))
    np.testing.assert_array_equal(value, np.float32([-1e30]))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_masked_values_are_finite_so_that_a_zero_discount_stays_zero(dtype):
    values = ops.mask_values(tf.zeros((1, 2), dtype), [[False, False]])
    assert values.dtype == dtype
    target = ops.td_target([1.0], [0.0], ops.q_learning_value(values))
    np.testing.assert_array_equal(target, [1.0])


def test_masks_of_integers_count_as_bools():
    values = ops.mask_values(tf.constant([[1.0, 2.0]]), np.array([[1, 0]], np.int8))
    assert float(values[0, 0]) == 1.0
    assert float(values[0, 1]) < -1e37


def test_without_a_mask_values_stay_as_they_are():
    np.testing.assert_array_equal(ops.mask_values(TARGET, None), TARGET)


def test_wrong_shapes_are_named():
    one, two, column = tf.zeros(1), tf.zeros(2), tf.zeros((2, 1))
    table = tf.zeros((2, 3))
    with pytest.raises(ValueError, match=r"`next_value` must have shape \[B\].*2, 1"):
        ops.td_target(two, two, column)
    with pytest.raises(ValueError, match="`discount` and `reward` disagree.*1.*2"):
        ops.td_target(two, one, two)
    with pytest.raises(ValueError, match=r"`action` must have shape \[B\].*2, 1"):
        ops.select(table, tf.zeros((2, 1), tf.int32))
    with pytest.raises(ValueError, match=r"`values` must have shape \[B, A\]"):
        ops.select(two, tf.zeros(2, tf.int32))
    with pytest.raises(ValueError, match="disagree on axis B"):
        ops.select(table, tf.zeros(3, tf.int32))
    with pytest.raises(ValueError, match=r"`next_q_values` must have shape \[B, A\]"):
        ops.q_learning_value(two)
    with pytest.raises(ValueError, match="disagree on axis A"):
        ops.double_q_learning_value(table, tf.zeros((2, 4)))
    with pytest.raises(ValueError, match="`action_mask` and `values` disagree"):
        ops.q_learning_value(table, tf.ones((2, 2), bool))


def test_wrong_shapes_are_named_while_a_graph_is_traced():
    spec = tf.TensorSpec((None, 1)), tf.TensorSpec((None,)), tf.TensorSpec((None,))
    with pytest.raises(ValueError, match=r"`reward` must have shape \[B\]"):
        tf.function(ops.td_target).get_concrete_function(*spec)
