"""Two questions that people who port DDQN and DDPG to TensorFlow ask again and again.

One: "No gradients provided for any variable" from a Double DQN with convolutions. Two:
a DDPG whose actor gets gradients of 1e-5 and never moves. There is a test for each
point that comes up in the questions and in the usual answers: what the wrong version
gives, and what this package does.
"""

import inspect
import warnings

import gymnasium as gym
import keras
import numpy as np
import pytest
import tensorflow as tf
from gymnasium.vector import AutoresetMode
from gymnasium.vector import SyncVectorEnv

from keras_rl2x import DDPG
from keras_rl2x import DQN
from keras_rl2x import Agent
from keras_rl2x import ReplayMemory
from keras_rl2x import ops
from keras_rl2x.callbacks import TargetUpdate
from keras_rl2x.exploration import EpsilonGreedy
from keras_rl2x.types import Transition
from tests.helpers import ScriptedEnv

# ---------------------------------------------------------------- small agents


@pytest.fixture(autouse=True)
def _seeded():
    keras.utils.set_random_seed(0)


class SpacesOnly(gym.Env):
    def __init__(self, observation_space, action_space):
        self.observation_space, self.action_space = observation_space, action_space


def box(size, bound=9.0):
    return gym.spaces.Box(-bound, bound, (size,), np.float32)


def dqn(network, observation_space, num_actions, cls=DQN, gamma=0.9, double=True):
    agent = cls(network, double=double, gamma=gamma)
    agent.bind(observation_space, gym.spaces.Discrete(num_actions))
    return agent


def small_dqn(cls=DQN, **settings):
    """Three numbers to two actions, through one hidden layer."""
    network = mlp(3, 2, "relu")
    return dqn(network, box(3), 2, cls, **settings)


def mlp(inputs, outputs, activation, layers=1, units=16):
    hidden = [keras.layers.Dense(units, activation=activation) for _ in range(layers)]
    return keras.Sequential(
        [keras.Input((inputs,)), *hidden, keras.layers.Dense(outputs)]
    )


def ddpg(actor, critic, observation_size=3, low=(-2.0,), high=(2.0,), gamma=0.9):
    agent = DDPG(actor, critic, gamma=gamma)
    low, high = np.array(low, np.float32), np.array(high, np.float32)
    with warnings.catch_warnings():
        # Without tanh an actor can say any number, which a test needs.
        warnings.filterwarnings("ignore", "`actor` ends in linear")
        agent.bind(box(observation_size), gym.spaces.Box(low, high))
    return agent


def small_ddpg(seed=0):
    env = SpacesOnly(box(3), gym.spaces.Box(-2.0, 2.0, (1,)))
    return DDPG.from_env(env, hidden=(16,), seed=seed, gamma=0.9)


def constant(values, inputs=1):
    """A network that says the same whatever it sees: its last layer's bias."""
    values = np.array(values, np.float32)
    dense = keras.layers.Dense(len(values), kernel_initializer="zeros")
    network = keras.Sequential([keras.Input((inputs,)), dense])
    dense.bias.assign(values)
    return network


def transitions(size=16, inputs=3, actions=2, seed=0, **fields):
    """A made-up batch; `actions` is a number of actions, or `None` for `[-2, 2]`."""
    rng = np.random.default_rng(seed)
    action = rng.uniform(-2, 2, (size, 1)).astype(np.float32)
    if actions is not None:
        action = rng.integers(actions, size=size)
    batch = Transition(
        observation=rng.normal(size=(size, inputs)).astype(np.float32),
        action=action,
        reward=rng.normal(size=size).astype(np.float32),
        discount=np.full(size, 0.9, np.float32),
        next_observation=rng.normal(size=(size, inputs)).astype(np.float32),
    )
    return batch._replace(**fields)


def one_transition(action=0, reward=1.0, discount=0.9, inputs=1):
    return Transition(
        observation=np.ones((1, inputs), np.float32),
        action=np.array([action]),
        reward=np.array([reward], np.float32),
        discount=np.array([discount], np.float32),
        next_observation=np.ones((1, inputs), np.float32),
    )


def weights_of(*networks):
    return [weight.copy() for network in networks for weight in network.get_weights()]


def moved(before, *networks):
    """Largest change of each array."""
    pairs = zip(before, weights_of(*networks), strict=True)
    return [float(np.abs(a - b).max()) for a, b in pairs]


EAGERLY = {"run_eagerly": True, "jit_compile": False}


# ===========================================================================
# The first question: Double DQN with convolutions, "No gradients provided"
# ===========================================================================

# ------------------------------------------------------ networks, made only once


def test_a_network_that_is_made_anew_in_each_step_keeps_nothing():
    def one_weight():
        return keras.Sequential(
            [keras.Input((1,)), keras.layers.Dense(1, use_bias=False)]
        )

    x = tf.ones((1, 1))
    for _ in range(10):
        network = one_weight()  # `net_init` in every call
        network.set_weights([np.zeros((1, 1))])
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((network(x) - 1.0) ** 2)
        keras.optimizers.SGD(0.1).apply(
            tape.gradient(loss, network.trainable_variables),
            network.trainable_variables,
        )
    assert network(x).numpy() == pytest.approx(0.2)  # after ten steps as after one

    network = one_weight()
    network.set_weights([np.zeros((1, 1))])
    agent = dqn(network, box(1), 1)
    agent.compile(keras.optimizers.SGD(0.1), loss="mse", **EAGERLY)
    for _ in range(10):
        agent.train_on_batch(one_transition(reward=1.0, discount=0.0))
    assert agent.network is network
    assert agent(x).numpy() == pytest.approx(1 - 0.8**10)


def test_fit_evaluate_and_a_second_compile_keep_the_same_variables():
    env = ScriptedEnv()
    agent = DQN.from_env(env, hidden=(8,), seed=0)
    agent.compile(warmup_steps=32, **EAGERLY)
    before = [
        id(v) for v in (*agent.network.variables, *agent.target_network.variables)
    ]
    agent.fit(env, steps_per_epoch=4, batch_size=4, verbose=0)
    agent.evaluate(ScriptedEnv(), episodes=1)
    agent.compile(warmup_steps=32, **EAGERLY)
    after = [id(v) for v in (*agent.network.variables, *agent.target_network.variables)]
    assert before == after


def test_the_target_network_begins_as_a_copy_and_not_with_weights_of_its_own():
    """The question makes both networks alike and never copies the weights."""
    first, second = mlp(3, 2, "relu"), mlp(3, 2, "relu")
    x = np.ones((1, 3), np.float32)
    assert np.abs(first(x) - second(x)).max() > 0.01

    layers = [keras.layers.Dense(8), keras.layers.BatchNormalization()]
    network = keras.Sequential([keras.Input((3,)), *layers, keras.layers.Dense(2)])
    layers[1].moving_mean.assign(np.arange(8.0))
    agent = dqn(network, box(3), 2)
    assert max(moved(weights_of(network), agent.target_network)) == 0.0
    assert agent.target_network.trainable_variables == []


def test_the_target_network_takes_the_shape_of_the_network():
    """The question writes (c, h, w) in one network and (4, 84, 84) in the other."""
    agent = DQN.from_env(SpacesOnly(box(7), gym.spaces.Discrete(5)), hidden=(4,))
    assert agent.target_network.input_shape == agent.network.input_shape == (None, 7)
    other = DQN(mlp(7, 5, "relu"), target_network=mlp(6, 5, "relu"))
    with pytest.raises(ValueError, match="target_network"):
        other.bind(box(7), gym.spaces.Discrete(5))


# ------------------------------------- a loss that depends on the online network


class LossOfStatesAndActions(DQN):
    """The question's train step: Huber between what came in, and no network."""

    def train_step(self, batch):
        with tf.GradientTape() as tape:
            states = tf.reduce_mean(batch.observation, axis=1, keepdims=True)
            actions = tf.cast(batch.action, tf.float32)[:, None]
            loss = self.compute_loss(y=actions, y_pred=states)
        self.apply_gradients(tape, loss, self.network)
        return self.track(loss=loss)


def test_a_loss_of_states_and_actions_has_no_gradient():
    network = mlp(3, 2, "relu")
    variables = network.trainable_variables
    batch = transitions()
    with tf.GradientTape() as tape:
        states = tf.reduce_mean(batch.observation, axis=1)
        loss = keras.losses.huber(states, tf.cast(batch.action, tf.float32))
    gradients = tape.gradient(loss, variables)
    assert gradients == [None, None, None, None]
    with pytest.raises(ValueError, match="No gradients provided for any variable"):
        keras.optimizers.Adam().apply_gradients(zip(gradients, variables, strict=True))

    agent = small_dqn(LossOfStatesAndActions)
    agent.compile(jit_compile=False)
    before = weights_of(agent.network, agent.target_network)
    with pytest.raises(ValueError, match="No gradient reaches any variable") as error:
        agent.train_on_batch(batch)
    for variable in agent.network.trainable_variables:
        assert variable.path in str(error.value)
    assert max(moved(before, agent.network, agent.target_network)) == 0.0
    assert agent.gradient_steps == 0


def test_every_trainable_variable_of_the_convolutions_gets_a_gradient_and_moves():
    images = gym.spaces.Box(0, 255, (4, 84, 84), np.uint8)
    env = SpacesOnly(images, gym.spaces.Discrete(6))
    agent = DQN.from_env(env, hidden=(32,), dueling=False, seed=0)
    agent.compile(**EAGERLY)
    rng = np.random.default_rng(0)
    batch = transitions(
        size=8,
        action=np.arange(8) % 6,
        observation=rng.integers(256, size=(8, 4, 84, 84), dtype=np.uint8),
        next_observation=rng.integers(256, size=(8, 4, 84, 84), dtype=np.uint8),
    )
    norms = agent.gradient_norms(batch)
    paths = [f"network/{v.path}" for v in agent.network.trainable_variables]
    assert list(norms) == paths
    assert len(paths) == 10  # three convolutions and two dense layers
    assert min(norms.values()) > 1e-3
    before = weights_of(agent.network)
    agent.train_on_batch(batch)
    assert min(moved(before, agent.network)) > 1e-5
    assert int(agent.optimizer.iterations) == 1


def test_a_forward_pass_outside_of_the_tape_is_named():
    class Outside(DQN):
        def train_step(self, batch):
            values = ops.select(self.network(batch.observation), batch.action)
            with tf.GradientTape() as tape:
                loss = self.compute_loss(
                    y=batch.reward[:, None], y_pred=values[:, None]
                )
            self.apply_gradients(tape, loss, self.network)
            return self.track(loss=loss)

    agent = small_dqn(Outside)
    agent.compile(jit_compile=False)
    with pytest.raises(ValueError, match="was computed outside the `Grad"):
        agent.train_on_batch(transitions())


# ------------------------------------------------- no NumPy in the compiled step


def test_numpy_cuts_the_gradient_and_the_error_says_so():
    network = mlp(3, 2, "relu")
    x = tf.ones((2, 3))
    with tf.GradientTape() as tape:
        values = network(x).numpy()  # `.numpy()` leaves the graph
        loss = tf.reduce_mean((tf.constant(values) - 1.0) ** 2)
    assert tape.gradient(loss, network.trainable_variables) == [None] * 4

    class WithNumpy(DQN):
        def train_step(self, batch):
            with tf.GradientTape() as tape:
                q_values = np.asarray(self.network(batch.observation))
                values = ops.select(q_values, batch.action)
                loss = self.compute_loss(
                    y=batch.reward[:, None], y_pred=values[:, None]
                )
            self.apply_gradients(tape, loss, self.network)
            return self.track(loss=loss)

    agent = small_dqn(WithNumpy)
    agent.compile(jit_compile=False)
    with pytest.raises(ValueError, match="NumPy"):
        agent.train_on_batch(transitions())


def test_numpy_and_predict_do_not_work_in_a_compiled_function():
    network = mlp(3, 2, "relu")

    @tf.function
    def mean_as_numpy(x):
        return network(x).numpy().mean()

    @tf.function
    def targets_by_predict(x):
        return network.predict(x, verbose=0)

    for function in (mean_as_numpy, targets_by_predict):
        with pytest.raises(AttributeError, match="numpy"):
            function(tf.ones((2, 3)))


class Watched(DQN):
    """Notes for each Python call of `train_step` whether it runs eagerly."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.calls = []

    def train_step(self, batch):
        self.calls.append(tf.executing_eagerly())
        return super().train_step(batch)


def test_the_train_step_is_compiled_once_whatever_the_number_of_steps():
    agent = small_dqn(Watched)
    agent.compile(jit_compile=False)
    agent.train_on_batch(transitions())
    traced = agent.calls.count(False)
    assert traced >= 1
    assert agent.calls.count(True) == 1  # one rehearsal, which finds mistakes early
    losses = [agent.train_on_batch(transitions(seed=seed)) for seed in range(5)]
    assert agent.calls.count(False) == traced
    assert agent.calls.count(True) == 1
    assert len({log["loss"] for log in losses}) == 5


def test_fit_runs_the_agents_own_train_step():
    """The answer advises against `fit`; here `fit` is the custom loop."""
    env = ScriptedEnv()
    agent = DQN.from_env(env, hidden=(8,), seed=0)
    agent.compile(warmup_steps=32, jit_compile=False)
    calls = []
    own = agent.train_step
    agent.train_step = lambda batch: calls.append(batch) or own(batch)
    history = agent.fit(env, steps_per_epoch=20, batch_size=4, verbose=0)
    assert 2 <= len(calls) <= 4  # a rehearsal and tracing, for 20 gradient steps
    assert all(isinstance(batch, Transition) for batch in calls)
    assert agent.gradient_steps == 20
    assert np.isfinite(history.history["loss"]).all()


def test_a_mean_q_value_is_logged_as_it_is():
    """The question logs `int(q.numpy().mean())`."""
    agent = dqn(constant([0.75, 0.75]), box(1), 2)
    agent.compile(**EAGERLY)
    assert int(0.75) == 0
    assert agent.train_on_batch(one_transition())["q_value"] == pytest.approx(0.75)


# ------------------------------------------------------------- Double-DQN target


@pytest.mark.parametrize(
    ("double", "discount", "target"),
    [(True, 0.9, 1.45), (False, 0.9, 5.5), (True, 0, 1)],
)
def test_the_double_dqn_target_is_the_target_networks_value_at_the_online_argmax(
    double, discount, target
):
    """1.9 with the roles swapped, 3.7 with the online network only."""
    online, other = np.array([1.0, 3.0, 2.0]), np.array([5.0, 0.5, 4.0])
    assert 1 + 0.9 * other[online.argmax()] == pytest.approx(1.45)
    assert 1 + 0.9 * online[other.argmax()] == pytest.approx(1.9)
    assert 1 + 0.9 * online.max() == pytest.approx(3.7)

    agent = dqn(constant(online), box(1), 3, double=double)
    agent.target_network.set_weights(constant(other).get_weights())
    agent.compile(keras.optimizers.SGD(0.0), loss="mse", **EAGERLY)
    logs = agent.train_on_batch(one_transition(action=1, discount=discount))
    assert logs["loss"] == pytest.approx((target - 3.0) ** 2, rel=1e-5)


def test_the_online_network_chooses_without_a_gradient():
    agent = small_dqn()
    batch = transitions()
    with tf.GradientTape() as tape:
        values = agent.next_values(batch.next_observation, None)
        targets = ops.td_target(batch.reward, batch.discount, values)
    variables = agent.network.trainable_variables
    assert tape.gradient(targets, variables) == [None] * len(variables)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_actions_are_picked_by_index_for_either_integer_type(dtype):
    """`tf.stack([tf.range(n), tf.argmax(q)])` mixes int32 and int64."""
    q_values = tf.constant([[1.0, 2.0], [3.0, 4.0]])
    best = tf.argmax(q_values, axis=1)
    with pytest.raises(tf.errors.InvalidArgumentError, match="int64"):
        tf.stack([tf.range(tf.shape(best)[0]), best], axis=1)

    action = np.array([1, 0], dtype)
    np.testing.assert_array_equal(ops.select(q_values, action), [2.0, 3.0])
    agent = small_dqn()
    agent.compile(keras.optimizers.SGD(0.0), **EAGERLY)
    batch = transitions()
    losses = [
        agent.train_on_batch(batch._replace(action=batch.action.astype(kind)))["loss"]
        for kind in (dtype, np.int64)
    ]
    assert losses[0] == losses[1]


def test_an_index_selects_what_a_one_hot_mask_does_and_only_that_learns():
    q_values = tf.Variable([[1.0, 2.0], [3.0, 4.0]])
    action = np.array([0, 1])
    masked = tf.reduce_sum(q_values * tf.one_hot(action, 2), axis=1)
    with tf.GradientTape() as tape:
        selected = ops.select(tf.convert_to_tensor(q_values), action)
        loss = keras.losses.mean_squared_error([2.0, 2.0], selected)
    np.testing.assert_array_equal(selected, masked)
    assert loss.numpy() == pytest.approx(2.5)
    np.testing.assert_allclose(tape.gradient(loss, q_values), [[-1, 0], [0, 2]])


def test_columns_and_rows_do_not_broadcast_to_a_square():
    """(B,) against (B, 1) is a mean over all pairs: 5.5 in place of 1."""
    values, targets = np.array([1.0, 4.0]), np.array([2.0, 5.0])
    assert np.mean((values - targets) ** 2) == 1.0
    assert np.mean((values - targets[:, None]) ** 2) == 5.5

    agent = dqn(constant([1.0, 4.0]), box(1), 2)
    agent.compile(keras.optimizers.SGD(0.0), loss="mse", **EAGERLY)
    batch = transitions(
        2, 1, action=np.array([0, 1]), reward=targets, discount=np.zeros(2)
    )
    assert agent.train_on_batch(batch)["loss"] == pytest.approx(1.0)
    with pytest.raises(ValueError, match=r"`next_value` must have shape \[B\]"):
        ops.td_target(targets, np.zeros(2), values[:, None])


def test_one_minus_done_is_a_discount_that_knows_terminated_from_truncated():
    """`1 - done` fails for bools, and makes an end of every time limit."""
    with pytest.raises((TypeError, ValueError), match="bool"):
        1 - tf.constant([True])

    memory = ReplayMemory(10)
    for terminated in (True, False):
        memory.add_episode(np.zeros((2, 1)), np.zeros(1, int), np.ones(1), terminated)
    batch = memory.sample(64, gamma=0.9)
    assert set(np.unique(batch.discount)) == {np.float32(0.0), np.float32(0.9)}


def test_rewards_of_any_float_type_are_learned_from():
    """Gymnasium's rewards are float64; TensorFlow adds no double to a float."""
    with pytest.raises(tf.errors.InvalidArgumentError, match="double"):
        tf.constant(np.ones(2)) + tf.ones(2)
    agent = small_dqn()
    agent.compile(keras.optimizers.SGD(0.0), **EAGERLY)
    batch = transitions()
    double = batch._replace(reward=batch.reward.astype(np.float64))
    assert agent.train_on_batch(double) == agent.train_on_batch(batch)


# ------------------------------------------------------------------------- loss


def test_huber_of_columns_keeps_the_sample_weights():
    """With `[B]` targets Keras averages before it weighs: 0.1875 in place of 0."""
    error, weight = np.array([0.0, 0.0, 0.0, 3.0]), np.array([1.0, 1.0, 1.0, 0.0])
    zeros, loss = np.zeros(4), keras.losses.Huber()
    assert float(loss(zeros, error, weight)) != 0.0
    assert float(loss(zeros[:, None], error[:, None], weight)) == 0.0

    agent = dqn(constant([0.0, 0.0]), box(1), 2)
    agent.compile(keras.optimizers.SGD(0.0), **EAGERLY)
    batch = transitions(
        4, 1, reward=error, discount=np.zeros(4), weight=weight.astype(np.float32)
    )
    assert agent.train_on_batch(batch)["loss"] == 0.0
    batch = batch._replace(weight=np.ones(4, np.float32))
    assert agent.train_on_batch(batch)["loss"] == pytest.approx(2.5 / 4)


# --------------------------------------------- gradients stay with their variables


class UnusedLayer(keras.Model):
    """`unused` has the shapes of `used`, so a shifted pair fits."""

    def __init__(self):
        super().__init__()
        self.unused = keras.layers.Dense(2)
        self.used = keras.layers.Dense(2)

    def build(self, input_shape):
        self.unused.build(input_shape)
        self.used.build(input_shape)

    def call(self, x):
        return self.used(x)

    def get_config(self):
        return {}


def test_dropping_missing_gradients_before_zip_moves_the_wrong_layer():
    network = UnusedLayer()
    network.build((None, 3))
    variables = network.trainable_variables
    before = weights_of(network)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(network(tf.ones((1, 3))))
    gradients = tape.gradient(loss, variables)
    assert [gradient is None for gradient in gradients] == [True, True, False, False]
    clipped = [tf.clip_by_norm(g, 10.0) for g in gradients if g is not None]
    pairs = zip(clipped, variables, strict=False)
    keras.optimizers.SGD(1.0).apply_gradients(pairs)
    # The layer that the loss does not contain has moved, and the other one has not.
    np.testing.assert_allclose(moved(before, network), [1.0, 1.0, 0.0, 0.0], rtol=1e-6)


def test_a_variable_without_gradient_is_named_before_anything_changes():
    network = UnusedLayer()
    agent = dqn(network, box(3), 2)
    agent.compile(keras.optimizers.SGD(1.0), jit_compile=False)
    before = weights_of(network, agent.target_network)
    with pytest.raises(
        ValueError, match="No gradient reaches these variables"
    ) as error:
        agent.train_on_batch(transitions())
    first = str(error.value).splitlines()[0]
    assert network.unused.kernel.path in first
    assert network.used.kernel.path not in first
    assert max(moved(before, network, agent.target_network)) == 0.0


def test_a_frozen_layer_takes_no_gradient_from_its_neighbour():
    network = UnusedLayer()
    network.unused.trainable = False
    agent = dqn(network, box(3), 2)
    agent.compile(keras.optimizers.SGD(1.0), loss="mse", **EAGERLY)
    before, batch = weights_of(network), transitions()
    norms = agent.gradient_norms(batch)
    used = [f"network/{v.path}" for v in network.used.trainable_variables]
    assert list(norms) == used
    agent.train_on_batch(batch)
    after = weights_of(network)
    steps = [np.linalg.norm(a - b) for a, b in zip(before, after, strict=True)]
    np.testing.assert_allclose(steps, [0.0, 0.0, *norms.values()], rtol=1e-4)


def test_clipnorm_of_ten_clips_each_variable_by_itself():
    """As `tf.clip_by_norm(gradient, 10)`; `global_clipnorm` clips all as one."""

    def steps(**clipping):
        agent = dqn(constant([0.0, 0.0]), box(1), 2)
        agent.compile(keras.optimizers.SGD(1.0, **clipping), loss="mse", **EAGERLY)
        before = weights_of(agent.network)
        batch = one_transition(action=0, reward=15.0, discount=0.0)
        batch = batch._replace(observation=np.full((1, 1), 4 / 3, np.float32))
        agent.train_on_batch(batch)
        after = weights_of(agent.network)
        return [np.linalg.norm(a - b) for a, b in zip(before, after, strict=True)]

    np.testing.assert_allclose(steps(), [40.0, 30.0], rtol=1e-5)
    np.testing.assert_allclose(steps(clipnorm=10.0), [10.0, 10.0], rtol=1e-5)
    np.testing.assert_allclose(steps(global_clipnorm=10.0), [8.0, 6.0], rtol=1e-5)


# ----------------------------------------------------------------- image layouts


def nature_network(shape, formats):
    conv = keras.layers.Conv2D
    return keras.Sequential(
        [
            keras.Input(shape),
            conv(32, 8, 4, activation="relu", data_format=formats[0]),
            conv(64, 4, 2, activation="relu", data_format=formats[1]),
            conv(64, 3, 1, activation="relu", data_format=formats[2]),
            keras.layers.Flatten(),
            keras.layers.Dense(512, activation="relu"),
            keras.layers.Dense(6),
        ]
    )


def test_data_format_on_the_first_layer_only_is_refused():
    """The other layers take 32 channels and 20 rows for rows and columns."""
    frames = gym.spaces.Box(0, 255, (4, 84, 84), np.uint8)
    network = nature_network(frames.shape, ["channels_first", None, None])
    shapes = [layer.output.shape[1:] for layer in network.layers[:3]]
    assert shapes == [(32, 20, 20), (15, 9, 64), (13, 7, 64)]
    assert network.count_params() == 3_051_174
    right = nature_network((84, 84, 4), [None, None, None])
    assert right.layers[2].output.shape[1:] == (7, 7, 64)
    assert right.count_params() == 1_687_206

    with pytest.raises(
        ValueError, match="`data_format` must be the same in all"
    ) as error:
        dqn(network, frames, 6)
    assert network.layers[0].name in str(error.value)
    assert network.layers[1].name in str(error.value)


@pytest.mark.skipif(
    bool(tf.config.list_physical_devices("GPU")), reason="a GPU convolves either layout"
)
def test_channels_first_convolutions_are_refused_on_a_cpu():
    frames = gym.spaces.Box(0, 255, (4, 36, 36), np.uint8)
    network = nature_network((4, 84, 84), ["channels_first"] * 3)
    with pytest.raises(ValueError, match="not on every CPU.*Permute"):
        dqn(network, frames, 6)


def test_channels_first_frames_are_learned_from_on_a_cpu():
    frames = gym.spaces.Box(0, 255, (4, 84, 84), np.uint8)
    agent = DQN.from_env(
        SpacesOnly(frames, gym.spaces.Discrete(6)), dueling=False, seed=0
    )
    assert agent.network.count_params() == 1_687_206
    frame = np.zeros((4, 84, 84), np.uint8)
    frame[2, 30:40] = 255
    last = frame.transpose(1, 2, 0)
    turned = DQN.from_env(
        SpacesOnly(
            gym.spaces.Box(0, 255, (84, 84, 4), np.uint8), gym.spaces.Discrete(6)
        ),
        dueling=False,
        seed=0,
    )
    np.testing.assert_allclose(agent(frame[None]), turned(last[None]), atol=1e-5)


# ------------------------------------------------------------------------- names


def test_an_attribute_named_predict_is_refused():
    class Plain(keras.Model):
        def __init__(self):
            super().__init__()
            self.predict = keras.layers.Dense(2)

    assert not isinstance(Plain().predict(np.zeros((3, 4))), np.ndarray)  # no `predict`

    class Shadowing(DQN):
        def __init__(self, network):
            super().__init__(network)
            self.predict = network

    with pytest.raises(AttributeError, match="would shadow the Keras method `predict`"):
        Shadowing(mlp(3, 2, "relu"))
    agent = small_dqn()
    for name in ("predict", "fit", "evaluate", "save"):
        with pytest.raises(AttributeError, match=name):
            setattr(agent, name, agent.network)
    values = agent.predict(np.zeros((3, 3), np.float32), verbose=0)
    assert isinstance(values, np.ndarray)
    assert values.shape == (3, 2)


# ===========================================================================
# The second question: DDPG, an actor whose gradients are tiny
# ===========================================================================

# ----------------------------------------------------------- tanh, then the scale


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [([-2.0], [2.0], [-2.0, 0.0, 2.0]), ([2.0], [6.0], [2.0, 4.0, 6.0])],
)
def test_tanh_comes_first_and_then_the_scale_and_shift_of_the_box(low, high, expected):
    """Scaled before tanh, 2 is out of reach; without a shift [2, 6] is [-6, 6]."""
    z = np.linspace(-20, 20, 101)
    assert np.abs(np.tanh(2.0 * z)).max() <= 1.0  # of 2.0
    assert np.tanh(z).min() * 6.0 == pytest.approx(-6.0)  # far below 2

    for output, action in zip((-1.0, 0.0, 1.0), expected, strict=True):
        agent = ddpg(constant([output], 3), mlp_critic(), low=low, high=high)
        observation = np.zeros(3, np.float32)
        assert agent.act(observation) == pytest.approx([action])
        assert agent(observation[None]).numpy()[0] == pytest.approx([action])


def mlp_critic(inputs=3, actions=1):
    observation, action = keras.Input((inputs,)), keras.Input((actions,))
    x = keras.layers.Concatenate()([observation, action])
    x = keras.layers.Dense(16, activation="relu")(x)
    return keras.Model([observation, action], keras.layers.Dense(1)(x))


class ActionCritic(keras.Model):
    """`q(s, a) = slope * a`."""

    def __init__(self, slope=1.0):
        super().__init__()
        self.slope = self.add_weight(
            shape=(), initializer=keras.initializers.Constant(slope), name="slope"
        )

    def call(self, observation, action):
        return self.slope * action

    def get_config(self):
        return {}


def test_the_critic_receives_actions_between_minus_one_and_one():
    agent = ddpg(constant([0.0], 3), ActionCritic(1.0), low=[2.0], high=[6.0])
    agent.compile(keras.optimizers.SGD(0.0), keras.optimizers.SGD(0.0), **EAGERLY)
    for action, seen in ((2.0, -1.0), (5.0, 0.5), (6.0, 1.0)):
        batch = transitions(1, action=np.array([[action]], np.float32))
        assert agent.train_on_batch(batch)["q_value"] == pytest.approx(seen)


def test_a_saturated_tanh_gives_the_gradient_of_1e_5_and_the_default_starts_apart():
    """The slope of tanh is 1e-5 at an output of 6 before it, and 1 at 0."""
    batch = transitions(actions=None)

    def actor_norm(agent):
        agent.compile(**EAGERLY)
        norms = agent.gradient_norms(batch)
        return norms[f"actor/{agent.actor.layers[-1].bias.path}"]

    def tanh_actor(bias):
        dense = keras.layers.Dense(1, activation="tanh", kernel_initializer="zeros")
        actor = keras.Sequential([keras.Input((3,)), dense])
        dense.bias.assign([bias])
        return actor

    norm = actor_norm(ddpg(tanh_actor(0.0), ActionCritic(1.0)))
    saturated = actor_norm(ddpg(tanh_actor(6.0), ActionCritic(1.0)))
    assert saturated / norm == pytest.approx(1 - np.tanh(6.0) ** 2, rel=0.01)
    assert saturated < 3e-5

    agent = small_ddpg()
    outputs = agent.actor(np.random.default_rng(0).normal(size=(100, 3), scale=5.0))
    assert np.abs(outputs).max() < 0.2
    assert (1 - np.square(outputs)).min() > 0.95


# ----------------------------------------------------- learning rates and clipping


def test_the_default_learning_rates_and_clipping_are_in_a_sane_range():
    """1e-5 for the actor, or a clipping norm below 1e-3, is what starves it."""
    agent = small_ddpg()
    agent.compile()
    for optimizer in (agent.optimizer, agent.actor_optimizer):
        assert 5e-5 <= float(optimizer.learning_rate) <= 5e-3
        for norm in (optimizer.clipnorm, optimizer.global_clipnorm):
            assert norm is None or norm >= 0.1
    assert float(agent.actor_optimizer.learning_rate) <= float(
        agent.optimizer.learning_rate
    )


def test_a_clipping_norm_of_1e_4_stops_the_actor():
    def step(**clipping):
        agent = small_ddpg()
        agent.compile(
            keras.optimizers.SGD(0.0), keras.optimizers.SGD(0.1, **clipping), **EAGERLY
        )
        before = weights_of(agent.actor)
        agent.train_on_batch(transitions(actions=None))
        return max(moved(before, agent.actor))

    assert step(clipnorm=1e-4) <= 0.1 * 1e-4
    assert step(clipnorm=1.0) == step() > 5 * 0.1 * 1e-4


def test_adam_moves_the_actor_by_its_rate_however_small_the_gradient():
    """So a gradient of 1e-5 is no fault by itself. With SGD the step is 1e-9."""

    def step(slope, optimizer):
        agent = ddpg(constant([0.0], 3), ActionCritic(slope))
        agent.compile(keras.optimizers.SGD(0.0), optimizer, **EAGERLY)
        before = weights_of(agent.actor)
        agent.train_on_batch(transitions(actions=None))
        return moved(before, agent.actor)[1]  # the bias

    for slope, share in ((1.0, 1.0), (1e-5, 0.76)):  # 0.76: the epsilon of 1e-7
        moved_by = step(slope, keras.optimizers.Adam(1e-4))
        assert moved_by == pytest.approx(share * 1e-4, rel=0.01)
    assert step(1e-5, keras.optimizers.SGD(1e-4)) == pytest.approx(1e-9, rel=0.02)


# ------------------------------------------------------------ soft target updates


def test_targets_follow_softly_and_are_never_replaced():
    """With tau = 0.001 a target is 9.5 % of the way after 100 updates, not there."""
    agent = ddpg(constant([1.0], 3), ActionCritic(1.0))
    agent.compile(
        keras.optimizers.SGD(0.0), keras.optimizers.SGD(0.0), jit_compile=False
    )
    agent.target_update = TargetUpdate(tau=0.001)
    agent.target_actor.set_weights([np.zeros((3, 1)), np.zeros(1)])
    agent.target_critic.set_weights([np.zeros(())])
    batch = transitions(4, actions=None)
    agent.train_on_batch(batch)
    assert float(agent.target_critic.slope) == pytest.approx(0.001)
    for _ in range(99):
        agent.train_on_batch(batch)
    expected = 1 - 0.999**100
    assert expected == pytest.approx(0.0952, abs=1e-4)
    assert float(agent.target_critic.slope) == pytest.approx(expected, rel=1e-4)
    assert agent.target_actor.get_weights()[1] == pytest.approx([expected], rel=1e-4)


def test_the_defaults_of_both_agents_are_no_hard_update_in_every_step():
    agents = {"dqn": small_dqn(), "ddpg": small_ddpg()}
    for agent in agents.values():
        agent.compile()
        rule = agent.target_update
        assert rule.period is None or rule.period > 100
        assert rule.tau is None or rule.tau <= 0.05


def test_actor_and_critic_targets_each_follow_their_own_network():
    agent = ddpg(constant([1.0], 3), ActionCritic(3.0))
    agent.compile(keras.optimizers.SGD(0.0), keras.optimizers.SGD(0.0), **EAGERLY)
    agent.target_actor.set_weights([np.zeros((3, 1)), np.zeros(1)])
    agent.target_critic.set_weights([np.zeros(())])
    agent.target_update = TargetUpdate(tau=0.5)
    agent.train_on_batch(transitions(4, actions=None))
    assert agent.target_actor.get_weights()[1] == pytest.approx([0.5])
    assert float(agent.target_critic.slope) == pytest.approx(1.5)
    # Mixed up, the weights do not even fit.
    with pytest.raises(ValueError):
        agent.target_actor.set_weights(agent.critic.get_weights())


class Averaged(TargetUpdate):
    """The answer's formula with NumPy arrays."""

    def blend(self, target, online):
        pairs = zip(online.get_weights(), target.get_weights(), strict=True)
        target.set_weights([self.tau * w + (1 - self.tau) * t for w, t in pairs])


class AveragedVariables(TargetUpdate):
    """The same with variables, which a compiled step needs."""

    def blend(self, target, online):
        for t, w in zip(target.variables, online.variables, strict=True):
            t.assign(self.tau * w + (1 - self.tau) * t)


@pytest.mark.parametrize(
    ("rule", "eagerly"), [(Averaged, True), (AveragedVariables, False)]
)
def test_a_subclassed_rule_gives_the_numbers_of_the_built_in_one(rule, eagerly):
    targets = []
    for cls in (TargetUpdate, rule):
        keras.utils.set_random_seed(1)
        agent = small_dqn()
        agent.compile(keras.optimizers.SGD(0.1), run_eagerly=eagerly, jit_compile=False)
        agent.target_update = cls(tau=0.3)
        for seed in range(3):
            agent.train_on_batch(transitions(seed=seed))
        targets.append(weights_of(agent.target_network))
    for built_in, own in zip(*targets, strict=True):
        np.testing.assert_allclose(own, built_in, atol=1e-6)


def test_get_weights_in_a_compiled_rule_is_refused_with_advice():
    agent = small_dqn()
    agent.compile(jit_compile=False)
    agent.target_update = Averaged(tau=0.3)
    with pytest.raises(ValueError, match=r"blend.*variables|variables.*blend"):
        agent.train_on_batch(transitions())


# ---------------------------------------------------------------- replay memory


class FirstBatch(DQN):
    """Notes how much the memory held when it first learned, and from what."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.seen = []

    def train_step(self, batch):
        if tf.executing_eagerly():
            self.seen.append((len(self.memory), np.array(batch.observation)))
        return super().train_step(batch)


def test_learning_starts_only_when_the_memory_holds_the_warm_up():
    env = ScriptedEnv(lengths=(50,))
    agent = FirstBatch.from_env(env, hidden=(4,), seed=0)
    agent.compile(warmup_steps=500, steps_per_execution=1, jit_compile=False)
    agent.fit(env, steps_per_epoch=1, batch_size=64, verbose=0, seed=0)
    held, observations = agent.seen[0]
    assert held == 501
    assert agent.env_steps == 501
    assert agent.gradient_steps == 1
    assert len(np.unique(observations, axis=0)) > 50

    # From the first step on, a batch is copies of the few first transitions.
    memory = ReplayMemory(500)
    memory.add_episode(np.zeros((2, 3)), np.zeros(1, int), np.zeros(1), False)
    batch = memory.sample(64)
    assert len(np.unique(batch.observation.reshape(64, 3), axis=0)) == 1


@pytest.mark.parametrize(("agent", "least"), [("dqn", 500), ("ddpg", 750)])
def test_the_default_warm_up_is_several_batches(agent, least):
    """Ten thousand steps, as the answer says, is for images and a million of steps.

    For a vector of numbers that would be half of the training of CartPole; some hundred
    different steps keep a batch from being copies of each other.
    """
    actions = {"dqn": gym.spaces.Discrete(2), "ddpg": gym.spaces.Box(-1, 1, (1,))}
    cls = {"dqn": DQN, "ddpg": DDPG}[agent]
    env = Endless(box(3), actions[agent])
    agent = cls.from_env(env, hidden=(4,), seed=0)
    agent.compile(run_eagerly=True, steps_per_execution=1)
    agent.fit(env, steps_per_epoch=1, verbose=0, seed=0)
    warm_up = agent.env_steps - 1
    assert least <= warm_up <= 25_000


def test_the_default_warm_up_for_images_is_the_answers_ten_thousand(capsys):
    env = Endless(gym.spaces.Box(0, 255, (8, 8, 1), np.uint8), gym.spaces.Discrete(2))
    agent = DQN.from_env(env, hidden=(4,), seed=0)
    agent.compile(run_eagerly=True, steps_per_execution=1)
    agent.fit(env, steps_per_epoch=1, verbose=2, seed=0)
    assert agent.env_steps == 10_001
    assert "10,000" in capsys.readouterr().out


class Endless(gym.Env):
    """One observation for ever."""

    def __init__(self, observation_space, action_space):
        self.observation_space, self.action_space = observation_space, action_space
        shape, dtype = observation_space.shape, observation_space.dtype
        self.observation = np.zeros(shape, dtype)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation, {}

    def step(self, action):
        return self.observation, 0.0, False, False, {}


@pytest.mark.parametrize(
    "mode", [None, AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP]
)
def test_the_fields_of_a_transition_belong_together(mode):
    """An observation is (env, episode, t); the reward tells these and the action.

    With the next observation in place of the observation the reward is off by one, with
    another row's action by an eighth.
    """
    env = ScriptedEnv(7)
    if mode is not None:
        env = SyncVectorEnv(
            [lambda number=number: ScriptedEnv(number) for number in range(3)],
            autoreset_mode=mode,
        )
    agent = DQN.from_env(env, hidden=(4,), seed=0)
    agent.compile(
        exploration=EpsilonGreedy(1.0),
        updates_per_step=0.02,
        warmup_steps=100,
        **EAGERLY,
    )
    agent.fit(env, steps_per_epoch=100, batch_size=4, verbose=0, seed=0)
    batch = agent.memory.sample(500, gamma=0.9)
    before, after = np.array(batch.observation[0]), np.array(batch.next_observation[0])
    number, episode, t = before.T
    told = 100 * number + 10 * episode + (t + 1) + 0.125 * batch.action[0]
    np.testing.assert_allclose(batch.reward[0], told, atol=1e-3)
    np.testing.assert_array_equal(after, before + [0, 0, 1])
    assert len(np.unique(batch.action[0])) == 3
    # Every second ending of the script in three is a mere truncation.
    lengths, truncated = np.array([1, 2, 3, 7]), episode % 3 == 1
    last = t + 1 == lengths[episode.astype(int) % 4]
    np.testing.assert_array_equal(batch.discount[0] == 0, last & ~truncated)


# --------------------------------------------------------------- the critic's target


def test_the_target_uses_the_target_actor_and_stops_at_the_end():
    """-3.5 and 1; with the current actor 5.5, and -3.5 for both without `1 - done`."""
    agent = ddpg(constant([0.5], 3), ActionCritic(0.0))
    agent.compile(keras.optimizers.SGD(0.0), keras.optimizers.SGD(0.0), **EAGERLY)

    def target(discount):
        agent.target_actor.set_weights([np.zeros((3, 1)), np.full(1, -0.5)])
        agent.target_critic.set_weights([np.array(10.0)])
        agent.target_update = TargetUpdate(tau=1e-9)
        batch = transitions(4, actions=None, reward=np.ones(4, np.float32))
        batch = batch._replace(discount=np.full(4, discount, np.float32))
        return agent.train_on_batch(batch)["loss"]  # the critic itself says 0

    assert target(0.9) == pytest.approx((1 + 0.9 * 10 * -0.5) ** 2)
    assert target(0.9) != pytest.approx((1 + 0.9 * 10 * 0.5) ** 2)
    assert target(0.0) == pytest.approx(1.0)


def test_rewards_and_a_critics_column_do_not_make_a_square():
    """`rewards + gamma * critic.predict(...)` is [B] + [B, 1]."""
    rewards, column = np.array([1.0, 2.0]), np.array([[10.0], [20.0]])
    assert (rewards + 0.9 * column).shape == (2, 2)
    with pytest.raises(ValueError, match=r"Received shape: \(2, 1\)"):
        ops.td_target(rewards, np.full(2, 0.9), column)
    np.testing.assert_allclose(
        ops.td_target(rewards, np.full(2, 0.9), column[:, 0]), [10.0, 20.0]
    )


def test_a_critic_is_called_with_a_pair_or_with_two_arguments():
    class Pair(keras.Model):
        def call(self, inputs):
            observation, action = inputs
            return 2.0 * action + 0.0 * observation[:, :1] * self.w

        def build(self, input_shape):
            self.w = self.add_weight(shape=(), initializer="ones")

        def get_config(self):
            return {}

    losses = []
    for critic in (Pair(), ActionCritic(2.0)):
        agent = ddpg(constant([0.5], 3), critic)
        agent.compile(keras.optimizers.SGD(0.0), keras.optimizers.SGD(0.0), **EAGERLY)
        losses.append(agent.train_on_batch(transitions(4, actions=None))["loss"])
    assert losses[0] == pytest.approx(losses[1])


# ------------------------------------------ actor and critic do not touch each other


class Hill(keras.Model):
    """`q(s, a) = -(a - top)^2`, with a trainable top."""

    def __init__(self):
        super().__init__()
        self.top = self.add_weight(
            shape=(), initializer=keras.initializers.Constant(2.0), name="top"
        )

    def call(self, observation, action):
        return -((action - self.top) ** 2)

    def get_config(self):
        return {}


def hill_agent(critic_rate, actor_rate):
    dense = keras.layers.Dense(1, use_bias=False)
    actor = keras.Sequential([keras.Input((1,)), dense])
    actor.set_weights([np.array([[0.5]])])
    agent = ddpg(actor, Hill(), observation_size=1)
    agent.compile(
        keras.optimizers.SGD(critic_rate), keras.optimizers.SGD(actor_rate), **EAGERLY
    )
    return agent


def test_the_actors_step_climbs_the_critic_and_leaves_it_alone():
    """0.8 and 2; with the wrong sign 0.2, with one optimizer for both top is 1.7."""
    agent = hill_agent(0.0, 0.1)
    with tf.GradientTape() as tape:
        x = tf.ones((1, 1))
        loss = -tf.reduce_mean(agent.critic(x, agent.actor(x)))
    for_both = tape.gradient(loss, [*agent.actor.variables, *agent.critic.variables])
    assert 2.0 - 0.1 * float(for_both[1]) == pytest.approx(1.7)

    agent.train_on_batch(one_transition()._replace(action=np.zeros((1, 1))))
    assert agent.actor.get_weights()[0] == pytest.approx(np.array([[0.8]]))
    assert float(agent.critic.top) == 2.0


def test_the_critics_step_leaves_the_actor_alone():
    agent = hill_agent(0.1, 0.0)
    agent.train_on_batch(one_transition()._replace(action=np.zeros((1, 1))))
    assert float(agent.critic.top) != 2.0
    assert agent.actor.get_weights()[0] == pytest.approx(np.array([[0.5]]))


def test_nothing_toggles_trainable_in_the_compiled_step():
    """A toggle in a compiled function runs once, while it is traced, and then never."""
    layer, toggles = keras.layers.Dense(1), []
    layer.build((None, 1))

    @tf.function
    def frozen_for_a_moment(x):
        layer.trainable = False
        toggles.append(layer.trainable)
        y = layer(x)
        layer.trainable = True
        return y

    for _ in range(3):
        frozen_for_a_moment(tf.ones((1, 1)))
    assert len(toggles) == 1

    for cls in (Agent, DQN, DDPG):
        for name in ("train_step", "apply_gradients", "update_targets"):
            assert "trainable =" not in inspect.getsource(getattr(cls, name))
    agent = small_ddpg()
    agent.compile(**EAGERLY)
    flags = [
        layer.trainable for net in (agent.actor, agent.critic) for layer in net.layers
    ]
    agent.train_on_batch(transitions(actions=None))
    assert all(flags)
    assert flags == [
        layer.trainable for net in (agent.actor, agent.critic) for layer in net.layers
    ]


def test_a_critic_that_ignores_the_action_is_named_as_the_reason():
    observation, action = keras.Input((3,)), keras.Input((1,))
    critic = keras.Model([observation, action], keras.layers.Dense(1)(observation))
    agent = ddpg(constant([0.0], 3), critic)
    agent.compile(**EAGERLY)
    with pytest.raises(ValueError, match="`actor`.*does not depend on the action"):
        agent.train_on_batch(transitions(actions=None))


# ----------------------------------------------------------------- training flags


class Flag(keras.layers.Layer):
    """Passes on what it gets and notes `training`."""

    def __init__(self, log, who):
        super().__init__()
        # Keras would copy a list that is an attribute.
        self.note = lambda training: log.append((who, bool(training)))

    def call(self, x, training=None):
        self.note(training)
        return x


class Flagged(keras.Model):
    """A network with a `Flag`, of one or of two inputs."""

    def __init__(self, log, who, outputs):
        super().__init__()
        self.flag, self.dense = Flag(log, who), keras.layers.Dense(outputs)

    def call(self, inputs, training=None):
        x = inputs if not isinstance(inputs, list) else tf.concat(inputs, axis=1)
        return self.flag(self.dense(x), training=training)


def test_training_is_true_in_the_learning_pass_of_dqn_and_nowhere_else():
    log = []
    network, target = Flagged(log, "online", 2), Flagged(log, "target", 2)
    agent = DQN(network, target_network=target)
    agent.bind(box(3), gym.spaces.Discrete(2))
    agent.compile(**EAGERLY)
    agent.gradient_norms(transitions())
    log.clear()
    agent.gradient_norms(transitions())
    assert sorted(log) == [("online", False), ("online", True), ("target", False)]
    log.clear()
    agent.act(np.zeros(3, np.float32))
    assert log == [("online", False)]


def test_training_is_true_for_the_network_that_learns_in_ddpg():
    """The answer also passes `training=True` to the critic in the actor's step, where a
    BatchNormalization of the critic would then count the actor's own actions twice."""
    log = []
    agent = DDPG(
        Flagged(log, "actor", 1),
        Flagged(log, "critic", 1),
        target_actor=Flagged(log, "target actor", 1),
        target_critic=Flagged(log, "target critic", 1),
    )
    agent.bind(box(3), gym.spaces.Box(-1.0, 1.0, (1,)))
    agent.compile(**EAGERLY)
    agent.gradient_norms(transitions(actions=None))
    log.clear()
    agent.gradient_norms(transitions(actions=None))
    assert log == [
        ("target actor", False),
        ("target critic", False),
        ("critic", True),
        ("actor", True),
        ("critic", False),
    ]


def test_batch_statistics_of_the_critic_come_from_its_own_step_only():
    observation, action = keras.Input((3,)), keras.Input((1,))
    norm = keras.layers.BatchNormalization(momentum=0.5)
    x = norm(keras.layers.Concatenate()([observation, action]))
    critic = keras.Model([observation, action], keras.layers.Dense(1)(x))
    agent = ddpg(constant([0.0], 3), critic)
    agent.compile(**EAGERLY)
    batch = transitions(actions=None, action=np.full((16, 1), 2.0, np.float32))
    agent.train_on_batch(batch)
    # Actions of 1 in the batch, 0 from the actor: 0.25 if the actor's counted too.
    assert norm.moving_mean[3].numpy() == pytest.approx(0.5)


# -------------------------------------------------- compile and loops of one's own


def test_a_tape_of_ones_own_and_the_compiled_step_do_not_disturb_each_other():
    """The answer fears a confused graph; both read and write the same variables."""

    def by_hand(agent, optimizer):
        batch = transitions(seed=7)
        with tf.GradientTape() as tape:
            values = ops.select(agent.network(batch.observation), batch.action)
            loss = tf.reduce_mean((values - batch.reward) ** 2)
        variables = agent.network.trainable_variables
        optimizer.apply(tape.gradient(loss, variables), variables)

    results = []
    for eagerly in (False, True):
        keras.utils.set_random_seed(1)
        agent = small_dqn()
        agent.compile(
            keras.optimizers.Adam(0.01), run_eagerly=eagerly, jit_compile=False
        )
        optimizer = keras.optimizers.SGD(0.1)
        before = weights_of(agent.network)
        for seed in range(3):
            agent.train_on_batch(transitions(seed=seed))
            by_hand(agent, optimizer)
        assert int(agent.optimizer.iterations) == 3
        assert int(optimizer.iterations) == 3
        assert min(moved(before, agent.network)) > 0
        results.append(weights_of(agent.network, agent.target_network))
    for compiled, eager in zip(*results, strict=True):
        np.testing.assert_allclose(compiled, eager, atol=1e-5)


def test_weights_that_are_set_by_hand_are_used_by_the_compiled_step_at_once():
    agent = dqn(constant([0.0, 0.0]), box(1), 2, cls=Watched)
    agent.compile(keras.optimizers.SGD(0.0), loss="mse", jit_compile=False)
    batch = one_transition(reward=1.0, discount=0.0)
    assert agent.train_on_batch(batch)["loss"] == pytest.approx(1.0)
    calls = len(agent.calls)
    agent.network.set_weights([np.zeros((1, 2)), np.array([3.0, 0.0])])
    assert agent.train_on_batch(batch)["loss"] == pytest.approx(4.0)
    assert len(agent.calls) == calls  # not traced again


# ------------------------------------------------------- where gradients disappear


def test_the_gradient_norm_of_each_layer_is_what_a_tape_finds():
    agent = small_ddpg()
    agent.compile(loss="mse", **EAGERLY)
    batch = transitions(actions=None)
    before = weights_of(agent.actor, agent.critic, agent.target_actor)
    norms = agent.gradient_norms(batch)
    with tf.GradientTape() as tape:
        action = agent.actor(batch.observation)
        observation = tf.constant(batch.observation)
        loss = -tf.reduce_mean(agent.critic([observation, action]))
    variables = agent.actor.trainable_variables
    for variable, gradient in zip(
        variables, tape.gradient(loss, variables), strict=True
    ):
        norm = norms[f"actor/{variable.path}"]
        assert norm == pytest.approx(float(tf.norm(gradient)), rel=1e-4)
    assert len(norms) == len(variables) + len(agent.critic.trainable_variables)
    after = weights_of(agent.actor, agent.critic, agent.target_actor)
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))
    assert agent.gradient_steps == int(agent.optimizer.iterations) == 0


@pytest.mark.parametrize(
    ("activation", "least", "most"),
    [("sigmoid", 0.0, 0.002), ("relu", 0.1, 10.0), ("leaky_relu", 0.1, 10.0)],
)
def test_sigmoids_lose_the_gradient_on_the_way_to_the_first_layer(
    activation, least, most
):
    """The slope of a sigmoid is at most 1/4, so four layers leave a thousandth."""
    agent = dqn(mlp(3, 2, activation, layers=4, units=32), box(3), 2)
    agent.compile(**EAGERLY)
    norms = list(agent.gradient_norms(transitions(64)).values())
    assert least < norms[0] / norms[-2] < most


def test_the_default_networks_have_no_sigmoid():
    agent = small_ddpg()
    layers = [*agent.actor.layers, *agent.critic.layers, *small_dqn().network.layers]
    names = [
        layer.activation.__name__ for layer in layers if hasattr(layer, "activation")
    ]
    assert set(names) == {"relu", "linear", "tanh"}
    assert agent.actor.layers[-1].activation.__name__ == "tanh"
