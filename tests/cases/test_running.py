"""Exploration, control, `fit` and the process around it: sections E to H."""

import gymnasium as gym
import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_rl2x import DDPG
from keras_rl2x import DQN
from keras_rl2x.exploration import EpsilonGreedy
from keras_rl2x.exploration import GaussianNoise
from keras_rl2x.exploration import OrnsteinUhlenbeckNoise
from tests.agents.walk import Walk
from tests.cases.tools import SpaceEnv
from tests.cases.tools import compiled
from tests.cases.tools import fit
from tests.cases.tools import made
from tests.cases.tools import rows
from tests.helpers import CounterEnv

VECTOR = gym.spaces.Box(-1.0, 1.0, (3,), np.float32)
BOUNDS = gym.spaces.Box(np.float32([-1, 0]), np.float32([1, 1]))


def test_epsilon_follows_its_schedule_over_env_steps_and_is_logged():  # B061
    decay = keras.optimizers.schedules.PolynomialDecay(1.0, 1_000, 0.1)
    rule = EpsilonGreedy(decay)
    for step, epsilon in ((0, 1.0), (500, 0.55), (1_000, 0.1), (5_000, 0.1)):
        assert rule.values(step)["epsilon"] == pytest.approx(epsilon, abs=1e-6)
    agent = made(Walk(), exploration=rule, warmup_steps=100, updates_per_step=0.002)
    history = fit(agent, Walk(), steps=200, epochs=6).history
    # The warm-up's 100 steps count: 300, 500, … 1 300.
    expected = [1 - 0.9 * min(step, 1_000) / 1_000 for step in range(300, 1_301, 200)]
    assert history["epsilon"] == pytest.approx(expected, abs=1e-6)


def test_the_share_of_random_actions_falls_with_epsilon():  # B061
    """What is logged is what is done: random actions differ from greedy ones."""
    decay = keras.optimizers.schedules.PiecewiseConstantDecay([299], [1.0, 0.0])
    env = Walk()
    agent = made(
        env, exploration=EpsilonGreedy(decay), rate=0.0, updates_per_step=0.002
    )
    fit(agent, env, steps=592)
    greedy = agent.act(np.array(env.seen))
    same = np.array(env.taken) == greedy
    assert same[300:].all()
    assert same[:300].mean() == pytest.approx(1 / 3, abs=0.1)


def test_loaded_agents_fill_their_memory_by_what_they_know_and_say_so(
    tmp_path, capsys
):  # B062
    agent = made(Walk(), rate=0.1, exploration=EpsilonGreedy(0.0))
    fit(agent, Walk(), steps=40)
    agent.save(tmp_path / "agent.keras")
    loaded, env = keras.saving.load_model(tmp_path / "agent.keras"), Walk()
    greedy = keras.saving.load_model(tmp_path / "agent.keras")
    fit(loaded, env, verbose=2)
    assert "Filling the memory with 8 exploring steps" in capsys.readouterr().out
    assert np.array_equal(env.taken[:8], greedy.act(np.array(env.seen[:8])))


@pytest.mark.parametrize(
    "noise", [GaussianNoise(5.0), OrnsteinUhlenbeckNoise(20.0), GaussianNoise(0.0)]
)
def test_noisy_actions_stay_in_an_uneven_box_and_reach_its_ends(noise):  # B072
    env = SpaceEnv(VECTOR, BOUNDS)  # raises for an action outside
    agent = made(env, exploration=noise, rate=0.0, updates_per_step=0.02)
    fit(agent, env, steps=100)
    taken = np.array(env.taken[8:])
    assert taken.dtype == np.float32
    if noise.values(0)["noise_stddev"] == 0:
        # A new actor stays near the middle, which is not zero everywhere.
        np.testing.assert_allclose(taken, np.tile([0.0, 0.5], (100, 1)), atol=0.2)
    else:
        assert np.array_equal(taken.min(axis=0), BOUNDS.low)
        assert np.array_equal(taken.max(axis=0), BOUNDS.high)


def test_noise_is_in_units_of_the_half_range():  # B072
    wide = gym.spaces.Box(np.float32([-10, 0]), np.float32([10, 1]))
    env = SpaceEnv(VECTOR, wide)
    agent = made(env, exploration=GaussianNoise(0.1), rate=0.0, updates_per_step=0.002)
    fit(agent, env, steps=500, verbose=0)
    deviation = np.array(env.taken[8:]).std(axis=0)
    np.testing.assert_allclose(deviation, [1.0, 0.05], rtol=0.15)


def test_a_new_actor_is_not_saturated_by_large_observations():  # B075
    space = gym.spaces.Box(-30.0, 30.0, (3,), np.float32)
    agent = DDPG.from_env(SpaceEnv(space, BOUNDS), seed=1)
    space.seed(1)
    actions = agent.actor(np.array([space.sample() for _ in range(200)])).numpy()
    assert np.abs(actions).max() < 0.9
    assert actions.std(axis=0).min() > 1e-4


def test_every_weight_of_the_actor_gets_a_gradient():  # B076
    env = gym.make("Pendulum-v1")
    agent = made(env, hidden=(16, 16))
    fit(agent, env)
    norms = agent.gradient_norms(agent.memory.sample(16))
    actor = [norm for path, norm in norms.items() if path.startswith("actor/")]
    assert len(actor) == 6
    assert min(actor) > 0
    env.close()


# --------------------------------------------------------------- fit and callbacks


def test_the_best_model_is_saved_though_an_epoch_ends_no_episode(tmp_path):  # B084
    path = tmp_path / "best.keras"
    best = keras.callbacks.ModelCheckpoint(
        path, monitor="episode_return", mode="max", save_best_only=True
    )
    agent = made(CounterEnv(length=20), warmup_steps=8)
    # Episodes end at 20, 40 and 60 steps; epochs at 24, 40, 56 and 72.
    history = fit(agent, CounterEnv(length=20), epochs=4, callbacks=[best]).history
    assert len(history["episode_return"]) == 4
    loaded = keras.saving.load_model(path)
    # The return grows from episode to episode; in the third epoch none ends.
    assert history["episode_return"][1] == history["episode_return"][2]
    assert loaded.env_steps == 72


@pytest.mark.parametrize("num_envs", [1, 4])
def test_acting_is_traced_once_per_number_of_envs(num_envs):  # B089
    traces = []

    class Noted(DQN):
        def policy(self, observation, training=False):
            traces.append(tuple(observation.shape))
            return super().policy(observation, training)

    agent = compiled(
        Noted.from_env(Walk(), hidden=(), seed=1),
        exploration=EpsilonGreedy(0.0),
        run_eagerly=False,
        jit_compile=False,
    )
    env = Walk()
    if num_envs > 1:
        env = gym.vector.SyncVectorEnv([Walk] * num_envs)
    fit(agent, env, steps=20)
    first = list(traces)
    assert first.count((num_envs, 3)) == 1
    fit(agent, env, epochs=3, steps=20, validation_data=env and Walk())
    agent.evaluate(Walk(), episodes=2)
    agent.evaluate(Walk(), episodes=2)
    # Symbols of unknown batch size are a look at the network and no trace.
    new = [shape for shape in traces[len(first) :] if shape[0] is not None]
    # Validation acts in a single env: one function more where there were several.
    assert new == ([] if num_envs == 1 else [(1, 3)])


def small_cnn():
    return keras.Sequential(
        [
            keras.Input((8, 8, 2), dtype="uint8"),
            keras.layers.Rescaling(1 / 255),
            keras.layers.Conv2D(2, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(2),
        ]
    )


def lstm():
    return keras.Sequential(
        [keras.Input((4, 3)), keras.layers.LSTM(4), keras.layers.Dense(2)]
    )


NETWORKS = {
    "cnn": (small_cnn, gym.spaces.Box(0, 255, (8, 8, 2), np.uint8)),
    "lstm": (lstm, gym.spaces.Box(-1.0, 1.0, (4, 3), np.float32)),
}


@pytest.mark.parametrize(
    ("name", "jit_compile"), [("cnn", True), ("cnn", "auto"), ("lstm", "auto")]
)
def test_networks_of_every_kind_compile(name, jit_compile):  # B091, B024
    """XLA on a CPU refuses what it refuses on a GPU."""
    network, space = NETWORKS[name]
    env = SpaceEnv(space, gym.spaces.Discrete(2))
    agent = compiled(DQN(network()), jit_compile=jit_compile, run_eagerly=False)
    history = fit(agent, env, steps=8, batch_size=4).history
    assert np.isfinite(history["loss"]).all()


# ------------------------------------------------------------- around the process


def keras_2_model():
    class Functional:
        pass

    Functional.__module__ = "tf_keras.src.engine.functional"
    return Functional()


@pytest.mark.parametrize("cls", [DQN, DDPG])
def test_a_keras_2_model_is_told_from_a_keras_3_one(cls):  # B096
    arguments = [keras_2_model()] * (1 if cls is DQN else 2)
    with pytest.raises(TypeError, match="Keras 2 model.*`keras` 3"):
        cls(*arguments)


@pytest.mark.parametrize(
    "optimizer", [tf.compat.v1.train.AdamOptimizer(), object(), keras.optimizers.Adam]
)
def test_an_optimizer_of_another_library_is_refused_at_compile(optimizer):  # B097
    agent = DQN.from_env(Walk(), hidden=())
    with pytest.raises((TypeError, ValueError), match="optimizer"):
        agent.compile(optimizer=optimizer)
    assert not agent.compiled


def test_more_steps_than_16_bits_hold_are_counted_exactly():  # B100
    env = CounterEnv(length=100)
    agent = made(
        env, hidden=(), exploration=EpsilonGreedy(1.0), updates_per_step=0.001,
        steps_per_execution=1_000, warmup_steps=0,
    )  # fmt: skip
    history = fit(agent, env, epochs=4, steps=8_500, batch_size=4).history
    assert agent.env_steps == 34_004
    assert agent.gradient_steps == 34
    assert env.total == 34_004 + len(range(0, 34_004, 100))
    assert history["episode_length"] == [100.0] * 4


def test_an_environment_of_ones_own_needs_no_registration():  # B012
    env = CounterEnv()
    history = fit(made(env), env, validation_data=CounterEnv()).history
    assert "val_episode_return" in history


# ------------------------------------------------------------------------- images


def float_images():
    """As `AtariPreprocessing(scale_obs=True)` gives them."""
    return SpaceEnv(
        gym.spaces.Box(0.0, 1.0, (8, 8, 4), np.float32), gym.spaces.Discrete(2)
    )


def test_float_images_are_left_as_they_are():  # B105
    agent = made(float_images(), hidden=())
    kinds = [type(layer).__name__ for layer in agent.network.layers]
    assert "Rescaling" not in kinds
    fit(agent, float_images())
    assert rows(agent).observation.dtype == np.float32
    # Twice the input is twice the output, bar the bias: nothing is clipped or scaled.
    x = np.random.default_rng(0).random((3, 8, 8, 4)).astype(np.float32)
    zero = agent(0 * x).numpy()
    np.testing.assert_allclose(
        agent(2 * x).numpy() - zero, 2 * (agent(x).numpy() - zero), rtol=1e-3, atol=1e-5
    )


def test_raw_pixels_are_exported_and_the_default_cnn_loads_safely(tmp_path):
    # B104, B105
    pixels = gym.spaces.Box(0, 255, (4, 12, 12), np.uint8)
    agent = made(SpaceEnv(pixels, gym.spaces.Discrete(2)))
    agent.save(tmp_path / "agent.keras")
    loaded = keras.saving.load_model(tmp_path / "agent.keras")  # safe mode
    pixels.seed(0)
    batch = np.stack([pixels.sample() for _ in range(5)])
    np.testing.assert_array_equal(loaded(batch), agent(batch))
    agent.export(tmp_path / "policy")
    function = tf.saved_model.load(tmp_path / "policy").signatures["serving_default"]
    np.testing.assert_allclose(
        function(observation=tf.constant(batch))["q_values"], agent(batch), rtol=1e-4
    )
