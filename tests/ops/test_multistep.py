import numpy as np
import pytest

from keras_rl2x import ops


def returns(rewards, ended=(), terminated=(), gamma=0.9, available=None):
    """One row of rewards; `ended` and `terminated` are positions."""
    flags = np.zeros((2, len(rewards)), bool)
    flags[0, list(ended) + list(terminated)] = True
    flags[1, list(terminated)] = True
    if available is not None:
        available = np.array([available])
    reward, discount, length = ops.n_step_return(
        np.array([rewards]), flags[:1], flags[1:], gamma, available
    )
    return float(reward[0]), float(discount[0]), int(length[0])


def test_rewards_and_discount_of_three_steps():
    assert returns([1.0, 2.0, 3.0]) == pytest.approx((5.23, 0.729, 3))


def test_one_step():
    assert returns([2.0]) == pytest.approx((2.0, 0.9, 1))


def test_a_termination_stops_the_sum_and_the_bootstrap():
    assert returns([1.0, 2.0, 3.0], terminated=[1]) == pytest.approx((2.8, 0.0, 2))
    assert returns([1.0, 2.0, 3.0], terminated=[0]) == pytest.approx((1.0, 0.0, 1))


def test_a_truncation_stops_the_sum_and_bootstraps_with_what_was_summed():
    # gamma ** 3 here, or no bootstrap at all, are the common mistakes.
    assert returns([1.0, 2.0, 3.0], ended=[1]) == pytest.approx((2.8, 0.81, 2))
    assert returns([1.0, 2.0, 3.0], ended=[2]) == pytest.approx((5.23, 0.729, 3))


def test_what_follows_an_end_does_not_count_even_if_it_terminates():
    got = returns([1.0, 2.0, 3.0], ended=[0], terminated=[2])
    assert got == pytest.approx((1.0, 0.9, 1))


def test_rows_that_do_not_exist_are_left_out():
    got = returns([1.0, 2.0, 3.0], available=[True, True, False])
    assert got == pytest.approx((2.8, 0.81, 2))
    got = returns([1.0, 2.0, 3.0], terminated=[2], available=[True, False, True])
    assert got == pytest.approx((1.0, 0.9, 1))


@pytest.mark.parametrize("gamma", [0.0, 1.0])
def test_extreme_discounts(gamma):
    got = returns([1.0, 2.0, 3.0], gamma=gamma)
    assert got == ((1.0, 0.0, 3) if gamma == 0.0 else (6.0, 1.0, 3))


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_the_values_of_a_chain_do_not_depend_on_n(n):
    """States with rewards 1, 2, 3, 4, gamma 0.5: V = 3.25, 4.5, 5, 4 for every n."""
    rewards = np.array([1.0, 2.0, 3.0, 4.0, 9.0, 9.0, 9.0, 9.0])  # 9: next episode
    ended = np.arange(8) == 3
    windows = np.arange(4)[:, None] + np.arange(n)
    reward, discount, length = ops.n_step_return(
        rewards[windows], ended[windows], ended[windows], 0.5
    )
    values = np.zeros(9)
    for _ in range(10):
        values[:4] = reward + discount * values[np.arange(4) + length]
    np.testing.assert_allclose(values[:4], [3.25, 4.5, 5.0, 4.0], rtol=1e-6)


def test_rows_are_independent_and_float32():
    rewards = np.array([[1.0, 1.0], [2.0, 2.0]])
    ended = np.array([[True, False], [False, False]])
    reward, discount, length = ops.n_step_return(rewards, ended, ended, 0.5)
    np.testing.assert_array_equal(reward, [1.0, 3.0])
    np.testing.assert_array_equal(discount, [0.0, 0.25])
    np.testing.assert_array_equal(length, [1, 2])
    assert reward.dtype == discount.dtype == np.float32
