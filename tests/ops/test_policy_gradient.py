import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_rl2x import ops


def test_one_step_of_the_actor_climbs_the_critic():
    """mu = w * s, s = 1, w = 0.5, q = -(a - 2)^2, SGD 0.1: w becomes 0.8."""
    w, peak = tf.Variable(0.5), tf.Variable(2.0)
    with tf.GradientTape() as tape:
        action = w * tf.constant([1.0])
        loss = tf.reduce_mean(ops.deterministic_policy_loss(-((action - peak) ** 2)))
    keras.optimizers.SGD(0.1).apply([tape.gradient(loss, w)], [w])
    assert float(w) == pytest.approx(0.8, rel=1e-6)
    assert float(peak) == 2.0


def test_loss_is_the_negative_value_of_each_sample(run):
    loss = run(ops.deterministic_policy_loss, [1.0, -2.0])
    np.testing.assert_array_equal(loss, [-1.0, 2.0])


def test_loss_is_float32_under_mixed_precision():
    loss = ops.deterministic_policy_loss(tf.constant([1.0], tf.float16))
    assert loss.dtype == tf.float32


def test_a_column_of_values_is_refused():
    with pytest.raises(ValueError, match=r"`value` must have shape \[B\].*\(4, 1\)"):
        ops.deterministic_policy_loss(tf.zeros((4, 1)))
