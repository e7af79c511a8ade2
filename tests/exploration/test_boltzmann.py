import numpy as np
import pytest
from keras.optimizers import schedules

from keras_rl2x.exploration import Boltzmann


def share(rule, q_values, times=100_000, step=0, mask=None):
    """How often each action is taken."""
    q_values = np.array([q_values])
    mask = None if mask is None else np.repeat([mask], times, axis=0)
    actions = rule(
        lambda: np.repeat(q_values, times, axis=0),
        step,
        np.random.default_rng(0),
        mask,
    )
    return np.bincount(actions, minlength=q_values.shape[1]) / times


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_actions_follow_the_softmax(temperature):
    q_values = np.array([0.0, 1.0, 2.0])
    expected = np.exp(q_values / temperature)
    expected /= expected.sum()
    got = share(Boltzmann(temperature), q_values)
    np.testing.assert_allclose(got, expected, atol=0.007)


def test_huge_values_do_not_overflow():
    got = share(Boltzmann(1.0), [1e5, 1e5 + 1, -1e5])
    np.testing.assert_allclose(got, [0.26894, 0.73106, 0.0], atol=0.007)
    assert share(Boltzmann(1e-3), np.float32([-1e5, 1e5]))[1] == 1.0


def test_a_high_temperature_is_uniform_and_a_low_one_greedy():
    np.testing.assert_allclose(share(Boltzmann(1e6), [0, 1, 2]), 1 / 3, atol=0.007)
    assert share(Boltzmann(1e-6), [0.0, 0.1, 0.05])[1] == 1.0


def test_forbidden_actions_are_never_taken():
    got = share(Boltzmann(1.0), [0.0, 50.0, 1.0], mask=[True, False, True])
    np.testing.assert_allclose(got, [0.26894, 0.0, 0.73106], atol=0.007)


def test_the_temperature_follows_its_schedule():
    rule = Boltzmann(schedules.ExponentialDecay(2.0, 100, 0.5))
    assert rule.values(0) == {"temperature": pytest.approx(2.0)}
    assert rule.values(100) == {"temperature": pytest.approx(1.0)}
    got = share(rule, [0.0, 1.0], step=100)
    assert got[1] == pytest.approx(0.73106, abs=0.007)


def test_a_schedule_that_ends_at_zero_ends_greedy():
    rule = Boltzmann(schedules.PolynomialDecay(1.0, 10, 0.0))
    assert share(rule, [0.0, -1.0, 1.0], step=10, times=100)[2] == 1.0
    assert share(rule, [0.0, 0.0, -1.0], step=10, times=100)[2] == 0.0


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan")])
def test_no_positive_temperature_is_refused(temperature):
    with pytest.raises(ValueError, match="`temperature` must lie in"):
        Boltzmann(temperature)


def test_no_number_is_refused():
    with pytest.raises(TypeError, match="`temperature` must be a number or a schedule"):
        Boltzmann("hot")
