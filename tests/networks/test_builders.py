import keras
import numpy as np
import pytest
from gymnasium import spaces

from keras_rl2x import networks

FRAMES = spaces.Box(0, 255, (4, 84, 84), np.uint8)
OBSERVATIONS = {
    "vector": spaces.Box(-1, 1, (3,), np.float32),
    "float64": spaces.Box(-np.inf, np.inf, (3,), np.float64),
    "float16": spaces.Box(-1, 1, (3,), np.float16),
    "scalar": spaces.Box(-1, 1, (), np.float32),
    "matrix": spaces.Box(-1, 1, (2, 3), np.float32),
    "integers": spaces.Box(-5, 5, (2,), np.int32),
    "discrete": spaces.Discrete(5, start=-2),
    "multi_discrete": spaces.MultiDiscrete([3, 2], start=[1, -1]),
    "one_multi_discrete": spaces.MultiDiscrete([4]),
    "multi_binary": spaces.MultiBinary(4),
    "binary_matrix": spaces.MultiBinary((2, 2)),
    "pixel_row": spaces.Box(0, 255, (6,), np.uint8),
    "small_image": spaces.Box(0, 255, (10, 10, 3), np.uint8),
    "small_image_first": spaces.Box(0, 255, (3, 10, 10), np.uint8),
    "image": spaces.Box(0, 255, (84, 84, 4), np.uint8),
    "image_first": FRAMES,
    "dict": spaces.Dict(
        pixels=spaces.Box(0, 255, (12, 12, 1), np.uint8),
        place=spaces.Box(-1, 1, (2,), np.float64),
        level=spaces.Discrete(3, start=1),
        time=spaces.Box(0, 1, (), np.float32),
    ),
}


def batch_of(space, count=3, seed=0):
    space.seed(seed)
    samples = [space.sample() for _ in range(count)]
    if isinstance(space, spaces.Dict):
        return {name: np.stack([s[name] for s in samples]) for name in samples[0]}
    return np.stack(samples)


def flat_weights(network):
    return np.concatenate([np.ravel(weight) for weight in network.weights])


@pytest.mark.parametrize("name", OBSERVATIONS)
def test_every_space_gives_one_value_per_action(name):
    space = OBSERVATIONS[name]
    network = networks.q_network(space, np.int64(4), hidden=(16,), seed=1)
    q_values = network(batch_of(space))
    assert q_values.shape == (3, 4)
    assert q_values.dtype == "float32"
    assert np.isfinite(q_values).all()
    assert np.ptp(q_values, axis=0).min() > 0  # what is observed arrives


@pytest.mark.parametrize("name", ["vector", "scalar", "discrete", "dict"])
def test_every_space_gives_an_actor_and_a_critic(name):
    space, actions = OBSERVATIONS[name], spaces.Box(-2, 2, (2, 3), np.float32)
    observation = batch_of(space)
    actor = networks.actor(space, actions, hidden=(16,), seed=1)
    action = actor(observation).numpy()
    assert action.shape == (3, 6)
    critic = networks.critic(space, actions, hidden=(16,), seed=1)
    assert critic([observation, action]).shape == (3, 1)
    assert critic.input_shape[-1] == (None, 6)


def test_widths_are_those_of_the_arguments_or_the_defaults():
    def widths(network):
        layers = [x for x in network.layers if isinstance(x, keras.layers.Dense)]
        return [layer.units for layer in layers]

    assert widths(networks.q_network(OBSERVATIONS["vector"], 2)) == [256, 256, 2]
    assert widths(networks.q_network(OBSERVATIONS["vector"], 2, (8, 4))) == [8, 4, 2]
    assert widths(networks.q_network(OBSERVATIONS["vector"], 2, ())) == [2]
    assert widths(networks.q_network(FRAMES, 6)) == [512, 6]


@pytest.mark.parametrize("name", ["image", "image_first"])
def test_the_nature_network_has_its_size(name):
    """As Mnih et al. count it, with 6 actions: 1 687 206 parameters."""
    network = networks.q_network(OBSERVATIONS[name], 6)
    assert network.count_params() == 1_687_206


def test_both_layouts_of_an_image_say_the_same():
    rng = np.random.default_rng(0)
    for first, last in (("image_first", "image"), ("small_image_first", "small_image")):
        image = rng.integers(0, 256, (2, *OBSERVATIONS[last].shape), dtype=np.uint8)
        one = networks.q_network(OBSERVATIONS[last], 3, (8,), seed=1)
        other = networks.q_network(OBSERVATIONS[first], 3, (8,), seed=1)
        np.testing.assert_allclose(
            one(image), other(image.transpose(0, 3, 1, 2)), rtol=1e-4, atol=1e-5
        )


@pytest.mark.parametrize(
    "name", ["image", "image_first", "small_image", "small_image_first", "pixel_row"]
)
def test_pixels_are_divided_by_255_exactly_once(name):
    """Features of white and half-white images: a second division would show."""
    space = OBSERVATIONS[name]
    network = networks.q_network(space, 2, hidden=(4,), seed=1)
    scaling = next(x for x in network.layers if isinstance(x, keras.layers.Rescaling))
    scaled = keras.Model(network.input, scaling.output)
    values = np.unique(scaled(np.full((1, *space.shape), 255, np.uint8)))
    np.testing.assert_allclose(values, [1.0], rtol=1e-6)
    values = np.unique(scaled(np.full((1, *space.shape), 51, np.uint8)))
    np.testing.assert_allclose(values, [0.2], rtol=1e-6)
    assert sum(isinstance(x, keras.layers.Rescaling) for x in network.layers) == 1


def test_integers_that_are_no_pixels_are_not_scaled():
    space = spaces.Box(0, 9, (2,), np.uint8)
    network = networks.q_network(space, 1, hidden=(), seed=1)
    kernel = network.layers[-1].kernel.numpy()
    x = np.array([[3, 9]], np.uint8)
    np.testing.assert_allclose(network(x), x @ kernel, rtol=1e-5)


def test_discrete_observations_count_from_their_start():
    network = networks.q_network(OBSERVATIONS["discrete"], 2, hidden=(), seed=1)
    kernel, bias = network.layers[-1].weights
    got = network(np.array([-2, 2]))
    np.testing.assert_allclose(got, kernel.numpy()[[0, 4]] + bias, rtol=1e-6)


def test_multi_discrete_observations_are_one_hot_per_component():
    network = networks.q_network(OBSERVATIONS["multi_discrete"], 2, hidden=(), seed=1)
    kernel = network.layers[-1].kernel.numpy()
    assert kernel.shape == (5, 2)
    got = network(np.array([[1, 0], [3, -1]]))
    np.testing.assert_allclose(
        got, [kernel[0] + kernel[4], kernel[2] + kernel[3]], rtol=1e-5
    )


def test_parts_of_a_dict_go_to_the_input_of_their_name():
    space = OBSERVATIONS["dict"]
    network = networks.q_network(space, 2, hidden=(16,), seed=1)
    assert set(network.input) == set(space.spaces)
    assert all(network.input[name].name == name for name in space.spaces)
    observation = batch_of(space)
    backwards = dict(reversed(observation.items()))
    np.testing.assert_array_equal(network(observation), network(backwards))
    for name, part in observation.items():
        part = np.roll(part, 1, axis=0)
        other = network({**observation, name: part})
        assert np.abs(other - network(observation)).max() > 0, name


def test_parts_of_one_shape_in_a_dict_are_not_mixed_up():
    box = spaces.Box(-1, 1, (1,), np.float32)
    space = spaces.Dict(dict.fromkeys(("z", "a", "m"), box))
    network = networks.q_network(space, 1, hidden=(), seed=1)
    zero = {name: np.zeros((1, 1), np.float32) for name in space.spaces}
    effects = [
        float(network({**zero, name: np.ones((1, 1), np.float32)})[0, 0])
        for name in space.spaces
    ]
    np.testing.assert_allclose(
        effects, network.layers[-1].kernel.numpy()[:, 0], rtol=1e-6
    )


@pytest.mark.parametrize("dueling", [False, True])
def test_a_seed_fixes_the_weights(dueling):
    def weights(seed):
        space = OBSERVATIONS["vector"]
        return flat_weights(networks.q_network(space, 3, (8, 8), dueling, seed=seed))

    keras.utils.set_random_seed(0)
    first = weights(1)
    keras.utils.set_random_seed(5)  # the global randomness has no say in it
    np.testing.assert_array_equal(first, weights(1))
    assert (first[first != 0] != weights(2)[first != 0]).all()


def test_without_a_seed_the_global_one_counts():
    def weights(seed):
        keras.utils.set_random_seed(seed)
        return flat_weights(networks.q_network(OBSERVATIONS["vector"], 3, (8,)))

    np.testing.assert_array_equal(weights(0), weights(0))
    assert (weights(0) != weights(1)).any()
    keras.utils.set_random_seed(0)


def test_equal_layers_start_different():
    network = networks.q_network(OBSERVATIONS["vector"], 3, (3, 3, 3), seed=1)
    kernels = [layer.kernel.numpy() for layer in network.layers[1:]]
    for i, one in enumerate(kernels):
        for other in kernels[:i]:
            assert (one != other).all()


def test_a_dueling_network_has_two_streams_that_start_different():
    network = networks.q_network(OBSERVATIONS["vector"], 1, (4,), True, seed=1)
    head = network.layers[-1]
    assert (head.value.weights[0].numpy() != head.advantage.weights[0].numpy()).all()
    plain = networks.q_network(OBSERVATIONS["vector"], 1, (4,), False, seed=1)
    assert network.count_params() == plain.count_params() + 5


def test_actor_and_critic_start_with_a_small_last_layer():
    space, actions = OBSERVATIONS["vector"], spaces.Box(-1, 1, (2,), np.float32)
    for network in (networks.actor(space, actions), networks.critic(space, actions)):
        kernel, bias = network.layers[-1].weights
        assert 2e-3 < np.abs(kernel).max() <= 3e-3
        assert not np.any(bias)
    observation = batch_of(space, 100)
    assert np.abs(networks.actor(space, actions)(observation)).max() < 0.1


def test_an_actor_stays_in_range():
    space, actions = OBSERVATIONS["vector"], spaces.Box(2, 6, (2,), np.float32)
    action = networks.actor(space, actions, (4,), seed=1)(1e9 * batch_of(space, 50))
    assert np.abs(action).max() <= 1.0


def test_values_stay_float32_under_mixed_precision():
    space, actions = OBSERVATIONS["vector"], spaces.Box(2, 6, (2,), np.float32)
    keras.mixed_precision.set_global_policy("mixed_bfloat16")
    try:
        built = [
            networks.q_network(space, 3, (4,), dueling=True),
            networks.q_network(space, 3, (4,)),
            networks.actor(space, actions, (4,)),
            networks.critic(space, actions, (4,)),
        ]
    finally:
        keras.mixed_precision.set_global_policy("float32")
    assert [network.output.dtype for network in built] == ["float32"] * 4
    assert built[0].layers[1].compute_dtype == "bfloat16"


@pytest.mark.parametrize("name", ["dict", "small_image_first", "multi_discrete"])
def test_a_network_comes_back_from_a_file(name, tmp_path):
    space = OBSERVATIONS[name]
    network = networks.q_network(space, 2, (8,), dueling=True, seed=1)
    network.save(tmp_path / "network.keras")
    loaded = keras.saving.load_model(tmp_path / "network.keras")
    observation = batch_of(space)
    np.testing.assert_array_equal(network(observation), loaded(observation))


def test_a_space_that_no_network_reads_is_refused():
    with pytest.raises(ValueError, match="must be Box, Discrete.*FlattenObservation"):
        networks.q_network(spaces.Tuple([spaces.Discrete(2)]), 2)


@pytest.mark.parametrize(
    ("low", "high", "observation", "features"),
    [
        ([-1.2, -0.07], [0.6, 0.07], [-0.3, 0.07], [0.0, 1.0]),
        ([-4.8, -np.inf], [4.8, np.inf], [-2.4, 7.0], [-0.5, 7.0]),
        ([0.0, -3e38], [1000.0, 3e38], [250.0, -7.0], [-0.5, -7.0]),
        ([0.0, 0.0], [5000.0, np.inf], [250.0, 7.0], [250.0, 7.0]),
        ([3.0, -1.0], [3.0, 1.0], [3.0, 0.25], [3.0, 0.25]),
    ],
    ids=["uneven", "half-bounded", "the-floats-range", "too-wide", "one-value"],
)
def test_bounded_floats_are_scaled_to_plus_minus_one(low, high, observation, features):
    space = spaces.Box(np.float32(low), np.float32(high))
    network = networks.q_network(space, 2, hidden=(), seed=1)
    network.set_weights([np.eye(2, dtype=np.float32), np.zeros(2, np.float32)])
    seen = network(np.float32([observation]))
    np.testing.assert_allclose(seen, [features], rtol=1e-6, atol=1e-6)


def test_dimensions_within_plus_minus_one_need_no_layer():
    network = networks.q_network(OBSERVATIONS["vector"], 2, hidden=(), seed=1)
    assert not any(isinstance(x, keras.layers.Rescaling) for x in network.layers)


def test_each_dense_layer_is_normalised_before_its_relu():
    space = OBSERVATIONS["vector"]
    network = networks.q_network(space, 2, (16, 8), layer_norm=True, seed=1)
    relus = [x for x in network.layers if isinstance(x, keras.layers.Activation)]
    observation = np.random.default_rng(0).uniform(-1, 1, (5, 3)).astype(np.float32)
    hidden = keras.Model(network.input, [relu.input for relu in relus])(observation)
    assert [x.shape[1] for x in hidden] == [16, 8]
    for x in hidden:
        np.testing.assert_allclose(np.mean(x, axis=1), 0.0, atol=1e-5)
        np.testing.assert_allclose(np.std(x, axis=1), 1.0, atol=0.05)
