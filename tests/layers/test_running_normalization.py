import gymnasium as gym
import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_rl2x import DQN
from keras_rl2x.layers import RunningNormalization
from tests.layers.test_layers import reloaded


def statistics(layer):
    return [float(value) for value in (layer.mean[0], layer.variance[0], layer.count)]


def test_statistics_are_those_of_all_rows_so_far():
    layer = RunningNormalization()
    layer(np.array([[1.0], [3.0]], np.float32), training=True)
    assert statistics(layer) == [2.0, 1.0, 2.0]
    y = layer(np.array([[5.0], [5.0]], np.float32), training=True)
    # 1, 3, 5, 5: mean 3.5, squares 6.25 + 0.25 + 2.25 + 2.25.
    assert statistics(layer) == pytest.approx([3.5, 2.75, 4.0], rel=1e-6)
    np.testing.assert_allclose(y, [[1.5 / 2.75**0.5]] * 2, rtol=1e-6)


@pytest.mark.parametrize("mode", ["eager", "graph", "xla"])
def test_many_minibatches_are_as_one(mode):
    rng = np.random.default_rng(0)
    rows = (rng.normal(size=(600, 3)) * [1e-2, 1.0, 1e3] + [0, 5, -1e4]).astype("f4")
    layer = RunningNormalization()
    layer.build((None, 3))

    def call(x):
        return layer(x, training=True)

    if mode != "eager":
        call = tf.function(call, jit_compile=mode == "xla")
    for part in np.split(rows, [1, 100, 101, 350]):
        last = call(part)
    wide = rows.astype(np.float64)
    np.testing.assert_allclose(layer.mean, wide.mean(0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(layer.variance, wide.var(0), rtol=1e-4)
    expected = (wide[350:] - wide.mean(0)) / wide.std(0)
    np.testing.assert_allclose(last, expected, atol=2e-3)


def test_only_training_moves_the_statistics_and_the_others_do_not_matter():
    layer = RunningNormalization()
    x = np.array([[4.0, 1.0], [2.0, 2.0]], np.float32)
    np.testing.assert_allclose(layer(x), x, rtol=1e-6)  # nothing seen yet
    layer(x, training=True)
    before = layer.get_weights()
    alone, together = layer(x[:1]), layer(x)[:1]
    np.testing.assert_array_equal(alone, together)
    np.testing.assert_allclose(alone, [[1.0, -1.0]], rtol=1e-5)
    for old, new in zip(before, layer.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)
    assert layer.trainable_variables == []


def test_outliers_are_clipped_and_what_never_changes_is_zero():
    layer = RunningNormalization(clip=1.5)
    x = np.zeros((16, 2), np.float32)
    x[0] = [100.0, 7.0]
    x[:, 1] = 7.0
    y = layer(x, training=True)
    assert float(y[0, 0]) == 1.5
    np.testing.assert_array_equal(y[:, 1], np.zeros(16))


def test_beyond_the_window_old_rows_fade():
    layer = RunningNormalization(window=8)
    for value in (0.0, 1.0):
        for _ in range(4):
            layer(np.full((4, 1), value, np.float32), training=True)
    # Each later minibatch takes a third of what is left, after one that takes half
    # of nothing: 1 - (2/3)^4.
    assert statistics(layer)[::2] == pytest.approx([1 - (2 / 3) ** 4, 8.0], rel=1e-6)


def test_a_blend_with_one_that_has_seen_nothing_keeps_the_moments():
    online, target = RunningNormalization(), RunningNormalization()
    online(np.array([[5e-4], [3e-4]], np.float32), training=True)
    target.build((None, 1))
    blended = zip(target.get_weights(), online.get_weights(), strict=True)
    target.set_weights([0.99 * old + 0.01 * new for old, new in blended])
    np.testing.assert_allclose(target.mean, [4e-4], rtol=1e-5)
    np.testing.assert_allclose(target.variance, [1e-8], rtol=1e-4)


def test_integers_and_half_precision_are_counted_in_float32():
    layer = RunningNormalization(dtype="mixed_bfloat16")
    y = layer(np.array([[250], [254]], np.uint8), training=True)
    assert statistics(layer) == [252.0, 4.0, 2.0]
    assert y.dtype == tf.bfloat16
    np.testing.assert_allclose(tf.cast(y, tf.float32), [[-1.0], [1.0]], rtol=1e-2)


def test_settings_come_back_from_a_file_and_wrong_ones_are_refused():
    again = reloaded(RunningNormalization(clip=3.0, window=50, epsilon=1e-4))
    assert (again.clip, again.window, again.epsilon) == (3.0, 50, 1e-4)
    for wrong in ({"clip": 0}, {"window": 0.5}, {"epsilon": -1.0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            RunningNormalization(**wrong)


class Gauge(gym.Env):
    """Which of two actions is right is read off a number of 1e-3 beside one of 1e4."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,))
    action_space = gym.spaces.Discrete(2)

    def observe(self):
        self.right = int(self.np_random.integers(2))
        noise = 1e4 * self.np_random.normal()
        return np.array([1e-3 * self.right, noise], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observe(), {}

    def step(self, action):
        reward = float(action == self.right)
        return self.observe(), reward, True, False, {}


def gauge_agent(*first):
    keras.utils.set_random_seed(1)
    layers = [keras.layers.Dense(32, "relu"), keras.layers.Dense(2)]
    agent = DQN(keras.Sequential([keras.Input((2,)), *first, *layers]))
    agent.compile(optimizer=keras.optimizers.Adam(1e-2), warmup_steps=200)
    return agent


def test_an_agent_learns_from_entries_of_any_scale(tmp_path):
    env, fit = Gauge(), {"steps_per_epoch": 600, "seed": 1, "verbose": 0}
    without = gauge_agent()
    without.fit(env, **fit)
    agent = gauge_agent(RunningNormalization())
    agent.fit(env, **fit)
    scores = [one.evaluate(Gauge(), episodes=50) for one in (agent, without)]
    assert scores[0]["episode_return"] == 1.0
    assert scores[1]["episode_return"] < 0.8, "it would learn without"
    # Acting left the statistics alone, and so they go wherever the network goes.
    layer = agent.network.layers[0]
    before = layer.get_weights()
    assert float(layer.count) == 600 * 64
    x = np.array([[1e-3, -3e4], [0.0, 2e4]], np.float32)
    values = agent.predict(x, verbose=0)
    agent.act(x)
    for old, new in zip(before, layer.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)
    agent.export(tmp_path / "policy")
    served = tf.saved_model.load(tmp_path / "policy").signatures["serving_default"]
    np.testing.assert_allclose(
        served(observation=tf.constant(x))["q_values"], values, rtol=1e-5
    )
    # Targets see the next observations through statistics that follow.
    target = agent.target_network.layers[0]
    np.testing.assert_allclose(target.variance, layer.variance, rtol=0.1)
