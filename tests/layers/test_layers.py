import json

import keras
import numpy as np
import pytest

from keras_rl2x.layers import ActionRescaling
from keras_rl2x.layers import DuelingHead
from keras_rl2x.layers import GreedyAction
from keras_rl2x.layers import OneHot
from keras_rl2x.layers import SpaceToDepth


def reloaded(layer):
    """The layer that a saved file would give back, without `custom_objects`."""
    config = json.loads(json.dumps(keras.saving.serialize_keras_object(layer)))
    return keras.saving.deserialize_keras_object(config)


# --------------------------------------------------------------------- DuelingHead


def with_streams(value, advantage):
    """A head whose streams put out fixed numbers."""
    head = DuelingHead(len(advantage))
    head.build((None, 1))
    for stream, bias in ((head.value, [value]), (head.advantage, advantage)):
        kernel, b = stream.trainable_variables
        kernel.assign(np.zeros(kernel.shape))
        b.assign(bias)
    return head


def test_dueling_head_subtracts_the_mean_advantage():
    # Subtracting the maximum would give (-4, -3, 1).
    q_values = with_streams(1.0, [1.0, 2.0, 6.0])(np.zeros((2, 1), np.float32))
    np.testing.assert_allclose(q_values, [[-1.0, 0.0, 4.0]] * 2, rtol=1e-6)


def test_only_differences_between_advantages_matter():
    x = np.zeros((1, 1), np.float32)
    one = with_streams(1.0, [1.0, 2.0, 6.0])(x)
    np.testing.assert_allclose(with_streams(1.0, [11.0, 12.0, 16.0])(x), one, rtol=1e-5)


@pytest.mark.parametrize("units", [None, 8])
def test_dueling_head_comes_back_from_a_file(units, tmp_path):
    layers = [keras.Input((4,)), DuelingHead(3, units=units)]
    network = keras.Sequential(layers)
    network.save(tmp_path / "network.keras")
    loaded = keras.saving.load_model(tmp_path / "network.keras")
    x = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    np.testing.assert_array_equal(network(x), loaded(x))
    assert loaded.layers[-1].units == units
    assert network.count_params() == (
        4 * 4 + 4 if units is None else 2 * (4 * 8 + 8) + 8 * 1 + 1 + 8 * 3 + 3
    )


@pytest.mark.parametrize("initializer", ["he_uniform", keras.initializers.HeUniform(3)])
@pytest.mark.parametrize("units", [None, 8])
def test_the_two_streams_start_different(units, initializer):
    # One action: the streams have equal shapes.
    head = DuelingHead(1, units=units, kernel_initializer=initializer)
    head.build((None, 4))
    value, advantage = head.value.weights, head.advantage.weights
    assert value[0].shape == advantage[0].shape
    assert np.abs(value[0].numpy() - advantage[0].numpy()).min() > 1e-6
    if units:
        assert np.abs(value[2].numpy() - advantage[2].numpy()).min() > 1e-6


def test_a_seeded_initializer_repeats():
    def kernels():
        head = DuelingHead(2, 4, kernel_initializer=keras.initializers.HeUniform(3))
        head.build((None, 4))
        return np.concatenate([np.ravel(w) for w in head.weights])

    np.testing.assert_array_equal(kernels(), kernels())


def test_no_action_is_refused():
    with pytest.raises(ValueError, match="`num_actions` must be at least 1.*0"):
        DuelingHead(0)


# ------------------------------------------------------------------ ActionRescaling


def test_actions_fill_asymmetric_bounds():
    layer = ActionRescaling([2.0, -1.0], [6.0, 0.0])
    x = np.array([[-1, -1], [0, 0], [1, 1], [0.5, -0.5]], np.float32)
    expected = [[2, -1], [4, -0.5], [6, 0], [5, -0.75]]
    np.testing.assert_allclose(layer(x), expected, rtol=1e-6)


def test_actions_never_leave_the_bounds():
    rng = np.random.default_rng(0)
    # `low + (high - low)` is not `high` for many of these.
    low = rng.uniform(-3, -0.01, 50).astype(np.float32)
    high = rng.uniform(0.01, 3, 50).astype(np.float32)
    layer = ActionRescaling(low, high)
    x = rng.uniform(-3, 3, (1_000, 50)).astype(np.float32)
    x[0], x[1] = 1, -1
    action = layer(x).numpy()
    assert (action >= low).all()
    assert (action <= high).all()
    np.testing.assert_allclose(action[:2], [high, low], rtol=1e-6)


def test_rescaling_keeps_any_shape_and_float32():
    layer = ActionRescaling(np.full((2, 3), -4.0), np.full((2, 3), 4.0))
    action = layer(np.ones((5, 2, 3), np.float16))
    assert action.shape == (5, 2, 3)
    assert action.dtype == "float32"
    scalar = ActionRescaling(np.array(0.0), np.array(2.0))(np.zeros(3, np.float32))
    np.testing.assert_array_equal(scalar, np.ones(3))


# --------------------------------------------------------------- GreedyAction, OneHot


def test_greedy_action_counts_from_the_spaces_start():
    q_values = np.array([[1.0, 3.0, 2.0], [4.0, 3.0, 2.0]], np.float32)
    action = GreedyAction(start=5)(q_values)
    assert action.dtype == "int64"
    np.testing.assert_array_equal(action, [6, 5])


@pytest.mark.parametrize("dtype", [bool, np.int8])
def test_greedy_action_obeys_the_mask(dtype):
    q_values = np.array([[1.0, 3.0, 2.0], [-4.0, 3.0, 2.0]], np.float32)
    mask = np.array([[1, 0, 1], [1, 0, 0]], dtype)
    np.testing.assert_array_equal(GreedyAction()(q_values, mask), [2, 0])


def test_one_hot_of_one_and_of_several_components():
    rows = OneHot([3], [5])(np.array([5, 7], np.int64))
    np.testing.assert_array_equal(rows, [[1, 0, 0], [0, 0, 1]])
    rows = OneHot([2, 3])(np.array([[1, 2], [0, 1]]))
    np.testing.assert_array_equal(rows, [[0, 1, 0, 0, 1], [1, 0, 0, 1, 0]])


def test_one_hot_takes_arrays_as_spaces_give_them():
    layer = OneHot(np.array([2, 3]), np.array([1, -1]))
    np.testing.assert_array_equal(layer(np.array([[2, 0]])), [[0, 1, 0, 1, 0]])


# -------------------------------------------------------------------- SpaceToDepth


@pytest.mark.parametrize("size", [(12, 16), (14, 19)])
@pytest.mark.parametrize("channels_first", [False, True])
def test_patches_and_a_small_kernel_equal_a_strided_convolution(channels_first, size):
    """Kernel 8×8 with stride 4 over pixels is 2×2 over patches of 4×4."""
    rng = np.random.default_rng(0)
    image = rng.normal(size=(2, *size, 3)).astype(np.float32)
    kernel = rng.normal(size=(8, 8, 3, 5)).astype(np.float32)
    expected = keras.ops.conv(image, kernel, strides=4, padding="valid")
    patches = SpaceToDepth(4, channels_first)(
        image.transpose(0, 3, 1, 2) if channels_first else image
    )
    assert patches.shape == (2, size[0] // 4, size[1] // 4, 48)
    small = kernel.reshape(2, 4, 2, 4, 3, 5).transpose(0, 2, 1, 3, 4, 5)
    got = keras.ops.conv(patches, small.reshape(2, 2, 48, 5), padding="valid")
    np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-4)


def test_patches_keep_bytes():
    image = np.arange(2 * 4 * 4, dtype=np.uint8).reshape(2, 4, 4, 1)
    patches = SpaceToDepth(2, dtype="uint8")(image)
    assert patches.dtype == "uint8"
    np.testing.assert_array_equal(patches[0, 0, 0], [0, 1, 4, 5])


@pytest.mark.parametrize(
    "layer",
    [
        DuelingHead(3, units=7, kernel_initializer="he_normal", name="head"),
        ActionRescaling([0.1, -2.0], [1.0, 3.0]),
        GreedyAction(start=-2),
        OneHot([2, 3], [1, 0]),
        SpaceToDepth(4, channels_first=True, dtype="uint8"),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_layers_come_back_with_their_arguments(layer):
    copy = reloaded(layer)
    assert type(copy) is type(layer)
    assert copy.get_config() == layer.get_config()
