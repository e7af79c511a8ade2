import numpy as np
import pytest
import tensorflow as tf

from keras_rl2x import ops


def test_soft_updates_after_one_and_after_100_steps(run):
    def repeated(target, online):
        for _ in range(100):
            target = ops.polyak_average(target, online, 0.005)
        return target

    once = run(lambda t, o: ops.polyak_average(t, o, 0.005), [0.0], [1.0])
    np.testing.assert_allclose(once, [0.005], rtol=1e-6)
    np.testing.assert_allclose(run(repeated, [0.0], [1.0]), [0.394230], rtol=1e-5)


def test_tau_one_copies(run):
    online = np.array([[1.5, -2.25], [0.0, 1e-3]], np.float32)
    copied = run(lambda t, o: ops.polyak_average(t, o, 1.0), tf.zeros((2, 2)), online)
    np.testing.assert_array_equal(copied, online)


def test_tau_one_is_no_alias():
    target, online = tf.Variable([0.0]), tf.Variable([1.0])
    target.assign(ops.polyak_average(target, online, 1.0))
    online.assign([7.0])
    assert float(target[0]) == 1.0


def test_tau_may_be_a_tensor_that_changes():
    tau = tf.Variable(0.5)
    step = tf.function(lambda t: ops.polyak_average(t, tf.constant([1.0]), tau))
    assert float(step(tf.constant([0.0]))[0]) == 0.5
    tau.assign(0.25)
    assert float(step(tf.constant([0.0]))[0]) == 0.25


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_weights_keep_their_dtype(dtype):
    new = ops.polyak_average(tf.zeros(2, dtype), tf.ones(2, dtype), 0.5)
    assert new.dtype == dtype
    np.testing.assert_array_equal(new, [0.5, 0.5])
