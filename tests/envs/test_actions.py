import numpy as np
import pytest
from gymnasium import spaces

from keras_rl2x.envs.actions import ActionUnits

ASYMMETRIC = spaces.Box(np.float32([2, -1]), np.float32([6, 0]))


def test_discrete_actions_are_counted_from_zero_for_networks():
    units = ActionUnits(spaces.Discrete(3, start=5))
    given = units.to_env(np.array([0, 2]))
    np.testing.assert_array_equal(given, [5, 7])
    assert given.dtype == np.int64
    back = units.to_network(np.array([[5, 7], [6, 6]]))
    np.testing.assert_array_equal(back, [[0, 2], [1, 1]])
    assert back.dtype == np.int32


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64])
def test_discrete_actions_have_the_spaces_dtype(dtype):
    space = spaces.Discrete(3, start=120, dtype=dtype)
    action = ActionUnits(space).to_env(np.array([2]))
    assert action.dtype == dtype
    assert space.contains(action[0])


def test_the_middle_and_the_ends_of_asymmetric_bounds():
    units = ActionUnits(ASYMMETRIC)
    got = units.to_env(np.array([[-1.0, 1.0], [0.0, 0.0], [0.5, -0.5]]))
    np.testing.assert_allclose(got, [[2, 0], [4, -0.5], [5, -0.75]], rtol=1e-6)
    assert units.size == 2


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_actions_never_leave_the_bounds_and_have_their_dtype(dtype):
    rng = np.random.default_rng(0)
    # `low + (high - low)` is not `high` for many of these.
    low = rng.uniform(-3, -0.01, 50).astype(dtype)
    high = rng.uniform(0.01, 3, 50).astype(dtype)
    space = spaces.Box(low, high, dtype=dtype)
    actions = ActionUnits(space).to_env(rng.uniform(-2, 2, (200, 50)))
    assert actions.dtype == dtype
    assert all(space.contains(action) for action in actions)
    ends = ActionUnits(space).to_env(np.array([[-1.0] * 50, [1.0] * 50]))
    assert all(space.contains(action) for action in ends)
    np.testing.assert_allclose(ends, [low, high], rtol=8 * np.finfo(dtype).eps)


def test_the_whole_range_of_float32_does_not_overflow():
    limit = np.finfo(np.float32).max
    units = ActionUnits(spaces.Box(-limit, limit, (1,), np.float32))
    np.testing.assert_array_equal(
        units.to_env(np.array([[-1.0], [0.0], [1.0]])),
        np.float32([[-limit], [0], [limit]]),
    )


def test_there_and_back():
    rng = np.random.default_rng(0)
    unit = rng.uniform(-1, 1, (20, 2)).astype(np.float32)
    units = ActionUnits(ASYMMETRIC)
    back = units.to_network(units.to_env(unit))
    assert back.dtype == np.float32
    np.testing.assert_allclose(back, unit, atol=1e-6)
    assert np.abs(back).max() <= 1.0


@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_networks_see_flat_actions(shape):
    units = ActionUnits(spaces.Box(-2, 2, shape, np.float32))
    size = int(np.prod(shape))
    given = units.to_env(np.full((5, size), 0.5))
    assert given.shape == (5, *shape)
    np.testing.assert_array_equal(given, np.ones((5, *shape)))
    back = units.to_network(np.ones((4, 5, *shape), np.float32))
    assert back.shape == (4, 5, size)
    np.testing.assert_array_equal(back, np.full((4, 5, size), 0.5))


def test_the_action_given_is_a_new_array():
    unit = np.zeros((1, 2))
    given = ActionUnits(ASYMMETRIC).to_env(unit)
    given[:] = 3
    assert not unit.any()
    discrete = np.array([1])
    ActionUnits(spaces.Discrete(3)).to_env(discrete)[:] = 2
    assert discrete[0] == 1


def test_random_actions_cover_the_range():
    units, rng = ActionUnits(ASYMMETRIC), np.random.default_rng(0)
    actions = units.to_env(units.uniform(5_000, rng, None))
    np.testing.assert_allclose(actions.mean(axis=0), [4, -0.5], atol=0.06)
    assert actions[:, 0].min() < 2.01
    assert actions[:, 0].max() > 5.99
    discrete = ActionUnits(spaces.Discrete(3, start=5))
    counts = np.bincount(discrete.to_env(discrete.uniform(6_000, rng, None)))
    np.testing.assert_allclose(counts[5:], 2_000, atol=150)
    assert counts[:5].sum() == 0


def test_random_actions_obey_the_mask():
    units, rng = ActionUnits(spaces.Discrete(4)), np.random.default_rng(0)
    mask = np.array([[True, False, True, False], [False, False, False, True]])
    actions = units.uniform(4_000, rng, np.repeat(mask, 2_000, axis=0))
    assert set(actions[:2_000]) == {0, 2}
    assert np.mean(actions[:2_000] == 0) == pytest.approx(0.5, abs=0.04)
    assert set(actions[2_000:]) == {3}
