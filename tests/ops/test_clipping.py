"""What the two ways of Keras to clip do to the gradients of an agent's network."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces

from keras_rl2x import DQN


def change(optimizer):
    """Change of kernel and bias for the gradients (3, 0) and (0, 4)."""
    network = keras.Sequential(
        [keras.Input((1,)), keras.layers.Dense(2, kernel_initializer="zeros")]
    )
    agent = DQN(network)
    agent.bind(spaces.Box(-1, 1, (1,)), spaces.Discrete(2))
    agent.compile(optimizer=optimizer)
    kernel, bias = network.trainable_variables
    before = [np.ravel(variable.numpy()) for variable in (kernel, bias)]
    with tf.GradientTape() as tape:
        loss = 3.0 * tf.convert_to_tensor(kernel)[0, 0] + 4.0 * bias[1]
    agent.apply_gradients(tape, loss, network)
    return [np.ravel(v.numpy()) - b for v, b in zip((kernel, bias), before)]


@pytest.mark.parametrize(
    ("clipping", "expected"),
    [
        ({}, [(-3.0, 0.0), (0.0, -4.0)]),
        ({"clipnorm": 1.0}, [(-1.0, 0.0), (0.0, -1.0)]),  # each variable
        ({"global_clipnorm": 1.0}, [(-0.6, 0.0), (0.0, -0.8)]),  # all together
        ({"clipvalue": 3.5}, [(-3.0, 0.0), (0.0, -3.5)]),
    ],
)
def test_gradients_are_clipped_as_the_optimizer_says(clipping, expected):
    got = change(keras.optimizers.SGD(1.0, **clipping))
    np.testing.assert_allclose(got, expected, atol=1e-6)


def test_first_step_of_adam():
    # With epsilon 1 the step is lr / (1 + 1 / sqrt(0.001)) for a gradient of 1.
    got = change(keras.optimizers.Adam(1e-3, epsilon=1.0, clipvalue=1.0))
    expected = -1e-3 / (1.0 + 1.0 / np.sqrt(0.001))
    np.testing.assert_allclose(
        got, [(expected, 0.0), (0.0, expected)], rtol=1e-3, atol=1e-9
    )
    got = change(keras.optimizers.Adam(1e-3, clipvalue=1.0))
    np.testing.assert_allclose(got, [(-1e-3, 0.0), (0.0, -1e-3)], atol=1e-7)
