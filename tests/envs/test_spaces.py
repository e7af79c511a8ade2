import json
import re

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from keras_rl2x.envs import spaces as checks
from tests.helpers import CounterEnv

SPACES = [
    spaces.Box(-1.0, 1.0, (3,), np.float32),
    spaces.Box(0, 255, (4, 84, 84), np.uint8),
    spaces.Box(-np.inf, np.inf, (2, 2), np.float64),
    spaces.Box(np.float32([0.1, -np.inf, 3]), np.float32([0.7, 5, np.inf])),
    spaces.Box(np.float32([[0.1], [-0.3]]), np.float32([[1.1], [7.0]])),
    spaces.Box(-5, np.int8([1, 2]), (2,), np.int8),
    spaces.Box(0, 2**63, (1,), np.uint64),
    spaces.Box(-1, 1, (), np.float16),
    spaces.Discrete(4),
    spaces.Discrete(3, start=-5, dtype=np.int32),
    spaces.MultiDiscrete([3, 2]),
    spaces.MultiDiscrete([3, 2], start=[1, -1], dtype=np.int32),
    spaces.MultiBinary(5),
    spaces.MultiBinary((2, 3)),
    spaces.Dict(z=spaces.Box(0, 1, (2,), np.float64), a=spaces.Discrete(3, start=1)),
]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_spaces_come_back_equal(space):
    config = json.loads(json.dumps(checks.to_config(space), allow_nan=False))
    copy = checks.from_config(config)
    assert copy == space
    assert copy.dtype == space.dtype
    assert type(copy) is type(space)
    assert checks.describe_difference(space, copy) is None


def test_a_large_space_with_one_bound_takes_little_room():
    assert len(json.dumps(checks.to_config(SPACES[1]))) < 200


def test_a_space_that_cannot_be_saved_is_named():
    with pytest.raises(ValueError, match="Cannot save the space Text"):
        checks.to_config(spaces.Text(5))
    with pytest.raises(ValueError, match="Unknown kind of space.*'Graph'"):
        checks.from_config({"type": "Graph"})


# --------------------------------------------------------------------- observations


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_observations_that_a_network_can_read(space):
    checks.check_observation_space(space)


TUPLE = spaces.Tuple([spaces.Discrete(2), spaces.Discrete(3)])


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (TUPLE, "Received: Tuple.*FlattenObservation"),
        (spaces.Text(5), "Received: Text"),
        (spaces.Sequence(spaces.Discrete(2)), "Received: Sequence"),
        (spaces.Graph(spaces.Box(0, 1, (2,)), None), "Received: Graph"),
        (spaces.Dict(a=spaces.Dict(b=spaces.Discrete(2))), "in the part 'a' of a Dict"),
        (spaces.Dict(a=spaces.Sequence(spaces.Discrete(2))), "Sequence.*part 'a'"),
        (spaces.Dict(), "empty Dict"),
        (
            spaces.MultiDiscrete([[2, 3], [4, 5]]),
            "(?s)need one axis.*FlattenObservation",
        ),
        (spaces.Box(0, 1, (0,)), "holds no number"),
        (spaces.Dict(a=spaces.Box(0, 1, (3, 0))), "holds no number"),
    ],
    ids=lambda x: type(x).__name__,
)
def test_observations_that_no_network_reads_are_refused(space, message):
    with pytest.raises(ValueError, match=message):
        checks.check_observation_space(space)


# -------------------------------------------------------------------------- actions


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.Box(-1, 1, (2,)), "DQN needs a Discrete.*such as `DDPG`"),
        (spaces.MultiDiscrete([2, 3]), r"number the 6 combinations.*Discrete\(6\)"),
        (spaces.MultiBinary(4), r"number the 16 combinations.*Discrete\(16\)"),
        (spaces.MultiBinary((2, 2)), "number the 16 combinations"),
        (TUPLE, "takes one Discrete action"),
        (spaces.Dict(a=spaces.Discrete(2)), "takes one Discrete action"),
    ],
    ids=lambda x: type(x).__name__,
)
def test_actions_that_are_not_discrete_are_refused(space, message):
    with pytest.raises(ValueError, match=message):
        checks.check_discrete_actions(space, "DQN")


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.Discrete(3), "DDPG needs a Box action space.*such as `DQN`"),
        (spaces.Box(-np.inf, np.inf, (2,)), "bounded actions.*RescaleAction"),
        (spaces.Box(np.float32([-1, -1]), np.float32([1, np.inf])), "bounded actions"),
        (spaces.Box(0, 5, (2,), np.int32), "Box of floats.*int32.*TransformAction"),
        (spaces.Box(np.float32([0, 1]), np.float32([1, 1])), "`low < high` in each"),
        (spaces.Box(-1, 1, (0,)), "holds no number"),
    ],
    ids=str,
)
def test_actions_that_are_not_bounded_floats_are_refused(space, message):
    with pytest.raises(ValueError, match=message):
        checks.check_continuous_actions(space, "DDPG")


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_bounded_boxes_and_discrete_actions_pass(dtype):
    low, high = np.array([2, -1], dtype), np.array([6, 0], dtype)
    checks.check_continuous_actions(spaces.Box(low, high, dtype=dtype), "DDPG")
    checks.check_continuous_actions(spaces.Box(-1, 1, (), dtype), "DDPG")
    checks.check_discrete_actions(spaces.Discrete(3, start=5), "DQN")


# --------------------------------------------------------------------- small helpers


@pytest.mark.parametrize(
    ("space", "image"),
    [
        (spaces.Box(0, 255, (4, 84, 84), np.uint8), True),
        (spaces.Box(0, 255, (84, 84, 3), np.uint8), True),
        (spaces.Box(0, 255, (84, 84), np.uint8), False),
        (spaces.Box(0, 1, (84, 84, 3), np.uint8), False),
        (spaces.Box(0, 255, (84, 84, 3), np.float32), False),
        (spaces.Discrete(3), False),
    ],
)
def test_only_pixels_with_three_axes_are_an_image(space, image):
    assert checks.is_image(space) is image


def test_layout_is_read_from_the_smallest_axis():
    assert checks.is_channels_first((4, 84, 84))
    assert checks.is_channels_first((1, 10, 20))
    assert not checks.is_channels_first((84, 84, 4))
    assert not checks.is_channels_first((10, 20, 1))


def test_zeros_have_the_shapes_and_dtypes_of_the_space():
    batch = checks.zeros(SPACES[-1], 5)
    assert batch["z"].shape == (5, 2)
    assert batch["z"].dtype == np.float64
    assert batch["a"].shape == (5,)
    assert checks.zeros(SPACES[1], 2).dtype == np.uint8


@pytest.mark.parametrize(
    ("saved", "given", "difference"),
    [
        (SPACES[0], SPACES[8], "Box.*against Discrete"),
        (SPACES[0], spaces.Box(-1, 1, (4,)), "against"),
        (SPACES[0], spaces.Box(-1, 1, (3,), np.float64), "against"),
        (spaces.Discrete(4), spaces.Discrete(5), "against"),
        (spaces.Discrete(4), spaces.Discrete(4, start=1), "against"),
        (spaces.MultiDiscrete([3, 2]), spaces.MultiDiscrete([2, 3]), "against"),
        (
            spaces.MultiDiscrete([3, 2]),
            spaces.MultiDiscrete([3, 2], start=[0, 1]),
            "against",
        ),
        (SPACES[-1], spaces.Dict(a=spaces.Discrete(3)), r"parts \['a', 'z'\] against"),
        (
            SPACES[-1],
            spaces.Dict(z=SPACES[-1]["z"], a=spaces.Discrete(4, start=1)),
            "part 'a': ",
        ),
    ],
)
def test_what_keeps_spaces_apart_is_named(saved, given, difference):

    assert re.search(difference, checks.describe_difference(saved, given))


def test_bounds_of_observations_may_differ():
    """A wrapper that only knows its bounds better changes nothing for a network."""
    wide = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    assert checks.describe_difference(SPACES[0], wide) is None


# ---------------------------------------------------------------------- environments


def test_spaces_of_one_environment_are_read_from_single_and_vector_ones():
    env = CounterEnv()
    vector = gym.vector.SyncVectorEnv([CounterEnv] * 3)
    for candidate in (env, vector):
        observation_space, action_space = checks.single_spaces(candidate)
        assert observation_space == env.observation_space
        assert action_space == env.action_space


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("CartPole-v1", r"not its name: pass `gymnasium.make\('CartPole-v1'\)`"),
        (None, "`gymnasium.Env` or.*NoneType"),
        (CounterEnv, r"not its class: pass `CounterEnv\(\)`"),
        (type("Env", (), {"__module__": "gym.core"})(), r"gym\.core\.Env.*shimmy"),
    ],
    ids=["name", "none", "class", "old gym"],
)
def test_what_is_no_environment_is_refused(wrong, message):
    with pytest.raises(TypeError, match=message):
        checks.single_spaces(wrong)
