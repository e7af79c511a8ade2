"""Spaces and input shapes: what people reported about them (section B)."""

import re

import gymnasium as gym
import keras
import numpy as np
import pytest
from gymnasium import spaces

from keras_rl2x import DDPG
from keras_rl2x import DQN
from tests.cases.tools import SpaceEnv
from tests.cases.tools import compiled
from tests.cases.tools import fit
from tests.cases.tools import made
from tests.helpers import FixedEnv

VECTOR = spaces.Box(-1.0, 1.0, (3,), np.float32)
CHOICE = spaces.Discrete(2)
TORQUE = spaces.Box(-2.0, 2.0, (1,), np.float32)
CONTINUOUS, DISCRETE = (
    "DDPG needs a Box action space, got Discrete",
    "DQN needs a Discrete action space, got Box",
)


def dense(outputs, activation=None):
    return keras.Sequential([keras.layers.Dense(outputs, activation)])


def q_network(*layers):
    return keras.Sequential([keras.Input((3,)), *layers])


def refuse(agent, name, message):
    """Refused by `from_env`, and by `fit` of an agent made from networks."""
    env = gym.make(name)
    with pytest.raises(ValueError, match=message):
        type(agent).from_env(env)
    agent.compile()
    with pytest.raises(ValueError, match=message):
        agent.fit(env)
    env.close()


def test_ddpg_on_discrete_actions_points_to_dqn():  # B014
    agent = DDPG(dense(1, "tanh"), dense(1))
    refuse(agent, "CartPole-v1", rf"{CONTINUOUS}\(2\).*`DQN`")


def test_dqn_on_continuous_actions_points_to_ddpg():  # B015
    refuse(DQN(dense(2)), "Pendulum-v1", rf"{DISCRETE}.*`DDPG`")


def test_observations_that_are_one_integer_are_one_hot():  # B019
    env = gym.make("FrozenLake-v1")
    agent = made(env, hidden=())
    history = fit(agent, env, steps=40).history
    assert np.isfinite(history["loss"]).all()
    # Without a hidden layer: every state has a row of its own, so that changing
    # one leaves the others alone.
    before = agent.predict(np.arange(16), verbose=0)
    assert before.shape == (16, 4)
    batch = agent.memory.sample(8, rng=np.random.default_rng(0))
    batch = batch._replace(observation=np.full((1, 8), 3), discount=np.zeros((1, 8)))
    agent.train_on_batch(batch._replace(reward=np.full((1, 8), 9.0, np.float32)))
    moved = (agent.predict(np.arange(16), verbose=0) != before).any(axis=1)
    assert moved[3]
    env.close()


def test_the_network_sees_a_batch_axis_and_the_observation_and_no_more():  # B021
    seen = []

    @keras.saving.register_keras_serializable(package="tests")
    class Looking(keras.layers.Layer):
        def call(self, x):
            seen.append(tuple(x.shape))
            return x

    network = keras.Sequential(
        [
            keras.Input((10, 12, 3), dtype="uint8"),
            Looking(),
            keras.layers.Rescaling(1 / 255),
            keras.layers.Conv2D(4, 3, 2, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(2),
        ]
    )
    env = SpaceEnv(spaces.Box(0, 255, (10, 12, 3), np.uint8), CHOICE)
    agent = compiled(DQN(network))
    fit(agent, env)
    assert {shape[1:] for shape in seen} == {(10, 12, 3)}
    assert {shape[0] for shape in seen} <= {None, 1, 8}


def test_a_vector_env_needs_no_other_network():  # B021
    network = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    env = gym.make_vec("CartPole-v1", 3, vectorization_mode="sync")
    agent = compiled(DQN(network))
    fit(agent, env, steps=24)
    assert agent.memory.sample(5).observation.shape == (1, 5, 4)
    env.close()


@pytest.mark.parametrize(
    ("network", "text"),
    [
        (
            q_network(keras.layers.Reshape((1, 3)), keras.layers.Dense(2)),
            r"expected shape \(None, 2\), received \(None, 1, 2\).*Flatten",
        ),
        (
            q_network(keras.layers.Dense(3)),
            r"expected shape \(None, 2\), received \(None, 3\).*Dense\(2\)",
        ),
    ],
    ids=["extra-axis", "three-values"],
)
def test_a_network_of_another_output_shape_is_described(network, text):  # B022
    with pytest.raises(ValueError, match=text):
        fit(compiled(DQN(network)), FixedEnv())


def test_a_network_of_the_right_output_shape_is_taken():  # B022
    fit(compiled(DQN(q_network(keras.layers.Dense(2)))), FixedEnv())


def test_uint8_images_are_stored_as_they_are_and_scaled_in_the_network():  # B029
    env = SpaceEnv(spaces.Box(0, 255, (84, 84, 4), np.uint8), CHOICE)
    agent = made(env, hidden=(8,))
    history = fit(agent, env, steps=8, batch_size=2).history
    assert np.isfinite(history["loss"]).all()
    assert agent.memory.sample(2).observation.dtype == np.uint8
    scaled = keras.Model(
        agent.network.inputs[0], agent.network.get_layer("scale_pixels").output
    )
    white = scaled(np.full((1, 84, 84, 4), 255, np.uint8)).numpy()
    np.testing.assert_allclose(white, 1.0, rtol=1e-6)


# ----------------------------------------------------------------------------
# Every kind of space, for actions and for observations: it works, or the error
# names the space before the env is touched.

GRAPH = spaces.Graph(spaces.Box(0, 1, (2,)), None)
WORKS, REFUSED = "works", "refused"
ACTIONS = {
    # name: space, with DQN, with DDPG
    "discrete": (spaces.Discrete(3), WORKS, REFUSED),
    "discrete-start": (spaces.Discrete(3, start=5), WORKS, REFUSED),
    "discrete-negative": (spaces.Discrete(2, start=-1), WORKS, REFUSED),
    "discrete-1": (spaces.Discrete(1), WORKS, REFUSED),
    "discrete-int8": (spaces.Discrete(3, start=120, dtype=np.int8), WORKS, REFUSED),
    "multi-discrete": (spaces.MultiDiscrete([2, 3]), REFUSED, REFUSED),
    "multi-discrete-2d": (spaces.MultiDiscrete([[2, 3], [2, 2]]), REFUSED, REFUSED),
    "multi-binary": (spaces.MultiBinary(4), REFUSED, REFUSED),
    "box": (spaces.Box(-1, 1, (2,)), REFUSED, WORKS),
    "box-2d": (spaces.Box(-1, 1, (2, 3)), REFUSED, WORKS),
    "box-scalar": (spaces.Box(-1, 1, ()), REFUSED, WORKS),
    "box-float64": (spaces.Box(-1, 1, (2,), np.float64), REFUSED, WORKS),
    "box-float16": (spaces.Box(-1, 1, (2,), np.float16), REFUSED, WORKS),
    "box-int": (spaces.Box(0, 9, (2,), np.int32), REFUSED, REFUSED),
    "box-unbounded": (spaces.Box(-np.inf, np.inf, (2,)), REFUSED, REFUSED),
    "box-half-bounded": (spaces.Box(0, np.inf, (2,)), REFUSED, REFUSED),
    "box-uneven": (
        spaces.Box(np.float32([-1, 0, 2]), np.float32([1, 1, 6])),
        REFUSED,
        WORKS,
    ),
    "box-flat": (spaces.Box(np.float32([-1, 2]), np.float32([1, 2])), REFUSED, REFUSED),
    "tuple": (spaces.Tuple([CHOICE, TORQUE]), REFUSED, REFUSED),
    "dict": (spaces.Dict(a=CHOICE), REFUSED, REFUSED),
    "sequence": (spaces.Sequence(CHOICE), REFUSED, REFUSED),
    "graph": (GRAPH, REFUSED, REFUSED),
    "text": (spaces.Text(5), REFUSED, REFUSED),
    "one-of": (spaces.OneOf([CHOICE, TORQUE]), REFUSED, REFUSED),
}
OBSERVATIONS = {
    "discrete": (spaces.Discrete(5), WORKS),
    "discrete-start": (spaces.Discrete(5, start=-2), WORKS),
    "discrete-1": (spaces.Discrete(1), WORKS),
    "multi-discrete": (spaces.MultiDiscrete([2, 3]), WORKS),
    "multi-discrete-2d": (spaces.MultiDiscrete([[2, 3], [2, 2]]), REFUSED),
    "multi-binary": (spaces.MultiBinary(4), WORKS),
    "multi-binary-2d": (spaces.MultiBinary([2, 3]), WORKS),
    "box-2d": (spaces.Box(-1, 1, (2, 3)), WORKS),
    "box-scalar": (spaces.Box(-1, 1, ()), WORKS),
    "box-float64": (spaces.Box(-1, 1, (3,), np.float64), WORKS),
    "box-float16": (spaces.Box(-1, 1, (3,), np.float16), WORKS),
    "box-int": (spaces.Box(-9, 9, (3,), np.int64), WORKS),
    "box-unbounded": (spaces.Box(-np.inf, np.inf, (3,)), WORKS),
    "box-flat": (spaces.Box(np.float32([-1, 2]), np.float32([1, 2])), WORKS),
    "image": (spaces.Box(0, 255, (12, 12, 3), np.uint8), WORKS),
    "image-first": (spaces.Box(0, 255, (4, 12, 12), np.uint8), WORKS),
    "no-image": (spaces.Box(-1, 1, (5, 1)), WORKS),
    "dict": (spaces.Dict(a=VECTOR, b=spaces.Discrete(3)), WORKS),
    "dict-nested": (spaces.Dict(a=spaces.Dict(b=VECTOR)), REFUSED),
    "tuple": (spaces.Tuple([VECTOR, CHOICE]), REFUSED),
    "sequence": (spaces.Sequence(VECTOR), REFUSED),
    "graph": (GRAPH, REFUSED),
    "text": (spaces.Text(5), REFUSED),
    "one-of": (spaces.OneOf([VECTOR, CHOICE]), REFUSED),
}
ACTION_CASES = [
    (name, cls, outcome)
    for name, (_, *outcomes) in ACTIONS.items()
    for cls, outcome in zip((DQN, DDPG), outcomes, strict=True)
]
OBSERVATION_CASES = [
    (name, cls, outcome)
    for name, (_, outcome) in OBSERVATIONS.items()
    for cls in (DQN, DDPG)
]


def light(cls):
    """Learns nothing, but everything passes through all networks once."""

    class Light(cls):
        def train_step(self, batch):
            said = keras.ops.mean(
                keras.ops.cast(self(batch.next_observation), "float32")
            )
            return self.track(loss=said + keras.ops.mean(batch.reward))

    return Light


def check(cls, outcome, observations, actions, named):
    env = SpaceEnv(observations, actions)
    if outcome is REFUSED:
        with pytest.raises((TypeError, ValueError)) as info:
            cls.from_env(env, hidden=())
        text = str(info.value)
        assert type(named).__name__ in text or f"low={named.low.tolist()}" in text
        assert re.search("[Ww]rap|use an agent|leave out|number the|convert", text)
        assert env.taken == []
        return
    agent = light(cls).from_env(env, hidden=(), seed=1)
    compiled(agent)
    env.action_space.seed(1)
    history = fit(agent, env, steps=8, batch_size=4).history
    assert np.isfinite(history["loss"]).all()
    agent.evaluate(SpaceEnv(observations, actions), episodes=1)
    observation = observations.sample()
    assert actions.contains(agent.act(observation))
    # What is stored is what was sent.
    stored = np.asarray(agent.memory.sample(8).action)
    assert stored.dtype == actions.dtype
    assert stored.shape[2:] == actions.shape


@pytest.mark.parametrize(
    ("name", "cls", "outcome"),
    ACTION_CASES,
    ids=[f"{name}-{cls.__name__}" for name, cls, _ in ACTION_CASES],
)
def test_actions_of_every_space_work_or_are_refused(name, cls, outcome):  # R60
    actions = ACTIONS[name][0]
    check(cls, outcome, VECTOR, actions, actions)


@pytest.mark.parametrize(
    ("name", "cls", "outcome"),
    OBSERVATION_CASES,
    ids=[f"{name}-{cls.__name__}" for name, cls, _ in OBSERVATION_CASES],
)
def test_observations_of_every_space_work_or_are_refused(name, cls, outcome):  # R60
    observations = OBSERVATIONS[name][0]
    check(cls, outcome, observations, CHOICE if cls is DQN else TORQUE, observations)


def test_unbounded_actions_name_the_wrapper_that_bounds_them():  # B074, C046, C047
    space = spaces.Box(-np.inf, np.inf, (2,))
    with pytest.raises(ValueError, match="RescaleAction"):
        DDPG.from_env(SpaceEnv(VECTOR, space))
    agent = compiled(DDPG(dense(2, "tanh"), dense(1)))
    with pytest.raises(ValueError, match="RescaleAction"):
        fit(agent, SpaceEnv(VECTOR, space))


def test_several_choices_at_once_are_told_how_to_become_one():  # B016
    with pytest.raises(ValueError, match=r"Discrete\(6\)"):
        DQN.from_env(SpaceEnv(VECTOR, spaces.MultiDiscrete([3, 2])))
    with pytest.raises(ValueError, match=r"Discrete\(8\)"):
        DQN.from_env(SpaceEnv(VECTOR, spaces.MultiBinary(3)))
