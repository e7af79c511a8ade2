import keras
import numpy as np
import pytest

from keras_rl2x.layers import DuelingHead
from keras_rl2x.layers import RunningNormalization
from keras_rl2x.networks.numpy_forward import NumpyForward
from keras_rl2x.networks.numpy_forward import Unsupported

L = keras.layers
SHAPE = (3,)


def functional(*layers, shape=SHAPE):
    x = observation = keras.Input(shape)
    for layer in layers:
        x = layer(x)
    return keras.Model(observation, x)


def subclassed():
    class Network(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = L.Dense(2)

        def call(self, x):
            return self.dense(x)

    return Network()


def branched():
    observation = keras.Input(SHAPE)
    a, b = L.Dense(4)(observation), L.Dense(4)(observation)
    return keras.Model(observation, L.Dense(2)(L.Add()([a, b])))


def shared():
    dense = L.Dense(3)
    return functional(dense, dense)


class Doubled(L.Dense):
    def call(self, x):
        return 2 * super().call(x)


KNOWN = {
    "mlp": lambda: functional(L.Dense(8, "relu"), L.Dense(5, "tanh"), L.Dense(2)),
    "no bias": lambda: functional(L.Dense(8, use_bias=False), L.Dense(2)),
    "sequential": lambda: keras.Sequential([L.Dense(8, "relu"), L.Dense(2)]),
    "normalized": lambda: functional(
        L.Rescaling([1.0, 2.0, 3.0], [0.5, 0.0, -0.5]),
        L.Dense(8),
        L.LayerNormalization(),
        L.Activation("relu"),
        L.Dense(2),
    ),
    "running": lambda: functional(RunningNormalization(clip=0.5), L.Dense(2)),
    "dueling": lambda: functional(L.Dense(8, "relu"), DuelingHead(4)),
    "matrix": lambda: functional(L.Flatten(), L.Dense(2), shape=(2, 3)),
}
SQUARES = ("count", "spread")  # never below 0
UNKNOWN = {
    "subclassed": subclassed,
    "branched": branched,
    "shared": shared,
    "nested": lambda: functional(functional(L.Dense(3, "relu")), L.Dense(2)),
    "own layer": lambda: functional(Doubled(2)),
    "softmax": lambda: functional(L.Dense(2, "softmax")),
    "dropout": lambda: functional(L.Dropout(0.5), L.Dense(2)),
    "deep dueling": lambda: functional(DuelingHead(4, units=3)),
    "half precision": lambda: functional(L.Dense(2, dtype="mixed_bfloat16")),
    "two outputs": lambda: keras.Model(
        x := keras.Input(SHAPE), [L.Dense(2)(x), L.Dense(2)(x)]
    ),
}


@pytest.fixture(autouse=True)
def seed():
    keras.utils.set_random_seed(3)


@pytest.mark.parametrize("name", KNOWN)
def test_equals_the_keras_network_and_follows_its_weights(name):
    network = KNOWN[name]()
    shape = network.input_shape[1:] if name != "sequential" else SHAPE
    forward = NumpyForward(network, shape)
    rng = np.random.default_rng(0)
    for _ in range(2):
        x = rng.normal(size=(5, *shape)).astype(np.float32)
        np.testing.assert_allclose(forward(x), network(x), rtol=1e-5, atol=1e-6)
        # All weights anew, so that none may be left out.
        for variable in network.variables:
            value = rng.normal(size=variable.shape).astype(np.float32)
            variable.assign(abs(value) if variable.name in SQUARES else value)
        assert not np.allclose(forward(x), network(x), rtol=1e-2)
        forward.refresh()


@pytest.mark.parametrize("name", UNKNOWN)
def test_other_networks_are_left_to_tensorflow(name):
    with pytest.raises(Unsupported):
        NumpyForward(UNKNOWN[name](), SHAPE)


def test_more_than_a_network_is_left_to_tensorflow():
    network = KNOWN["mlp"]()
    with pytest.raises(Unsupported):
        NumpyForward(lambda x: -network(x), SHAPE)
    with pytest.raises(Unsupported):
        NumpyForward(lambda x: network(x.numpy()), SHAPE)
