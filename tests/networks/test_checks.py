import warnings

import keras
import numpy as np
import pytest

from keras_rl2x.networks import checks


def convolutions(*formats):
    """A network with a convolution of each `data_format`."""
    x = image = keras.Input((8, 8, 8))
    for data_format in formats:
        x = keras.layers.Conv2D(8, 1, data_format=data_format)(x)
    return keras.Model(image, keras.layers.Flatten()(x))


def ending_in(*layers):
    return keras.Sequential([keras.Input((3,)), *layers])


class Subclassed(keras.Model):
    """A network without a config of its own."""

    def __init__(self, units):
        super().__init__()
        self.hidden = keras.layers.Dense(units)

    def call(self, x):
        return self.hidden(x)


@keras.saving.register_keras_serializable(package="tests")
class Configured(Subclassed):
    """The same with a config."""

    def get_config(self):
        return {"units": self.hidden.units}


# --------------------------------------------------------------------- check_model


def test_a_keras_model_passes_as_it_is():
    network = ending_in(keras.layers.Dense(2))
    assert checks.check_model(network, "network") is network


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (keras.layers.Dense(2), r"`critic` must be.*Dense.*keras.Sequential\(\[layer"),
        (keras.Sequential, "`critic` must be.*Pass an object, not the class"),
        (None, "`critic` must be a `keras.Model`.*NoneType"),
        ("mlp", r"`critic` must be a `keras.Model`.*builtins\.str"),
        (lambda x: x, "`critic` must be.*function"),
    ],
)
def test_anything_else_is_refused(wrong, message):
    with pytest.raises(TypeError, match=message):
        checks.check_model(wrong, "critic")


def test_a_keras_2_model_is_told_apart():
    old = type("Sequential", (), {"__module__": "tf_keras.src.engine.sequential"})
    with pytest.raises(TypeError, match=r"`network` is a Keras 2 model \(tf_keras"):
        checks.check_model(old(), "network")


# -------------------------------------------------------------------- check_layout


def test_mixed_layouts_are_refused_with_the_layers_names():
    network = convolutions("channels_last", "channels_first", "channels_last")
    _, one, two, *_ = [layer.name for layer in network.layers]
    with pytest.raises(ValueError, match=f"{two}' is channels_first.*{one}' is channe"):
        checks.check_layout(network, "network")


def test_a_pooling_layer_of_another_layout_is_found_in_a_nested_model():
    inner = keras.Sequential([keras.layers.MaxPooling2D(data_format="channels_first")])
    outer = keras.Sequential([keras.layers.Conv2D(4, 3), inner])
    with pytest.raises(ValueError, match="`network` mixes image layouts"):
        checks.check_layout(outer, "network")


def test_channels_first_needs_a_gpu(monkeypatch):
    network = convolutions("channels_first")
    monkeypatch.setattr(checks.tf.config, "list_physical_devices", lambda kind=None: [])
    with pytest.raises(ValueError, match=r"not on every CPU.*Permute\(\(2, 3, 1"):
        checks.check_layout(network, "network")
    monkeypatch.setattr(
        checks.tf.config, "list_physical_devices", lambda kind=None: ["a GPU"]
    )
    checks.check_layout(network, "network")


def test_one_layout_for_all_passes():
    checks.check_layout(convolutions("channels_last", "channels_last"), "network")
    checks.check_layout(ending_in(keras.layers.Dense(2)), "network")
    # A Flatten that says nothing about convolutions.
    checks.check_layout(ending_in(keras.layers.Flatten()), "network")


# ----------------------------------------------------------------- check_stateless


@pytest.mark.parametrize(
    "layer",
    [
        keras.layers.LSTM(4, stateful=True, name="memory"),
        keras.layers.RNN(keras.layers.GRUCell(4), stateful=True, name="memory"),
        keras.layers.Bidirectional(keras.layers.GRU(4, stateful=True), name="memory"),
    ],
    ids=["lstm", "rnn", "bidirectional"],
)
def test_a_stateful_layer_is_refused(layer):
    network = keras.Sequential([keras.Sequential([layer])])
    with pytest.raises(ValueError, match="'memory' of `network` is stateful.*Stack"):
        checks.check_stateless(network, "network")


def test_a_recurrent_layer_without_a_state_passes():
    checks.check_stateless(keras.Sequential([keras.layers.LSTM(4)]), "network")


# ---------------------------------------------------------------- warn_if_squashed


@pytest.mark.parametrize(
    ("layers", "kind"),
    [
        ([keras.layers.Dense(2, activation="softmax")], "softmax"),
        ([keras.layers.Dense(2, activation="sigmoid")], "sigmoid"),
        ([keras.layers.Dense(2), keras.layers.Softmax()], "softmax"),
        ([keras.layers.Dense(2), keras.layers.Activation("sigmoid")], "sigmoid"),
        ([keras.Sequential([keras.layers.Dense(2, "softmax")])], "softmax"),
    ],
)
def test_a_squashed_output_warns(layers, kind):
    with pytest.warns(UserWarning, match=f"`network` ends in {kind}.*between 0 and 1"):
        checks.warn_if_squashed(ending_in(*layers), "network")


@pytest.mark.parametrize("last", ["linear", "elu", None])
def test_an_open_output_does_not_warn(last):
    network = ending_in(
        keras.layers.Dense(4, "sigmoid"), keras.layers.Dense(2, activation=last)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        checks.warn_if_squashed(network, "network")
        checks.warn_if_squashed(Configured(3), "network")


# -------------------------------------------------------------------------- critics


def test_a_critic_is_called_as_it_is_written():
    class Two(keras.Model):
        def call(self, observation, action, training=False):
            return observation - action

    class Pair(keras.Model):
        def call(self, inputs, training=False):
            return inputs[0] - inputs[1]

    observation, action = keras.Input((1,)), keras.Input((1,))
    functional = keras.Model(
        [observation, action], keras.layers.Subtract()([observation, action])
    )
    x, y = np.array([[5.0]], np.float32), np.array([[2.0]], np.float32)
    for critic in (Two(), Pair(), functional):
        value = checks.call_critic(critic, x, y, training=True)
        assert float(value[0, 0]) == 3.0


# -------------------------------------------------------------------------- copies


@pytest.mark.parametrize(
    "network",
    [
        ending_in(keras.layers.Dense(2)),
        ending_in(keras.layers.Dense(4), keras.layers.BatchNormalization()),
        Configured(2),
    ],
    ids=["dense", "batch_norm", "subclassed"],
)
def test_a_copy_has_weights_of_its_own(network):
    x = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    network(x)
    target = checks.clone(network, "network")
    target(x)
    for weight in network.weights:
        weight.assign(np.random.default_rng(1).normal(size=weight.shape))
    checks.copy_weights(network, target, "network")
    assert target.name == "target_network"
    assert type(target) is type(network)
    for new, old in zip(target.weights, network.weights, strict=True):
        np.testing.assert_array_equal(new, old)
        assert new is not old
        old.assign(old + 1.0)
        assert np.abs(new.numpy() - old.numpy()).min() > 0.5


def test_a_target_of_another_architecture_is_refused():
    network, other = (ending_in(keras.layers.Dense(n)) for n in (2, 3))
    with pytest.raises(
        ValueError, match=r"`target_critic` must have.*\(3, 2\).*\(3, 3\)"
    ):
        checks.copy_weights(network, other, "critic")
    assert not np.any(other.weights[1])


def test_a_network_that_cannot_be_copied_says_what_to_do():
    network = Subclassed(2)
    network(np.zeros((1, 3), np.float32))
    with pytest.raises(
        ValueError, match=r"`critic` \(Subclassed\) cannot be copied.*`get_config\(\)`"
    ) as error:
        checks.clone(network, "critic")
    assert "pass `target_critic=`" in str(error.value)


def test_layers_of_nested_networks_come_in_order():
    inner = keras.Sequential([keras.layers.Dense(2, name="b")], name="inner")
    network = ending_in(keras.layers.Dense(2, name="a"), inner)
    names = [layer.name for layer in checks.layers_of(network)]
    assert [name for name in names if name in "ab"] == ["a", "b"]


def test_output_shapes_are_plain_numbers():
    assert checks.output_shape(keras.KerasTensor((None, 2))) == (None, 2)
