import json

import numpy as np
import pytest
from keras.optimizers import schedules

from keras_rl2x.exploration import GaussianNoise
from keras_rl2x.exploration import OrnsteinUhlenbeckNoise


def act(rule, action, step=0, seed=0):
    return rule(lambda: np.asarray(action), step, np.random.default_rng(seed))


def series(rule, steps, action, rng):
    return np.array([rule(lambda: action, t, rng) for t in range(steps)])


# ------------------------------------------------------------------------- Gaussian


def test_gaussian_noise_has_the_spread_it_says():
    noise = act(GaussianNoise(0.1), np.zeros((50_000, 2)))
    np.testing.assert_allclose(noise.std(axis=0), 0.1, rtol=0.02)
    np.testing.assert_allclose(noise.mean(axis=0), 0.0, atol=0.002)
    assert abs(np.corrcoef(noise.T)[0, 1]) < 0.02


def test_gaussian_noise_keeps_actions_in_range():
    action = act(GaussianNoise(1.0), np.full((1_000, 1), 0.9))
    assert action.max() == 1.0
    assert action.min() >= -1.0
    assert np.mean(action == 1.0) == pytest.approx(0.46, abs=0.05)


def test_no_noise_leaves_the_action_and_its_array_alone():
    action = np.array([[0.25, -1.0]])
    np.testing.assert_array_equal(act(GaussianNoise(0.0), action), action)
    act(GaussianNoise(0.5), action)
    np.testing.assert_array_equal(action, [[0.25, -1.0]])


def test_gaussian_noise_follows_its_schedule():
    rule = GaussianNoise(schedules.PolynomialDecay(0.4, 100, 0.0))
    assert rule.values(50) == {"noise_stddev": pytest.approx(0.2)}
    noise = act(rule, np.zeros((20_000, 1)), step=50)
    assert noise.std() == pytest.approx(0.2, rel=0.03)
    assert not act(rule, np.zeros((5, 1)), step=100).any()


@pytest.mark.parametrize("rule", [GaussianNoise, OrnsteinUhlenbeckNoise])
def test_a_negative_spread_and_no_number_are_refused(rule):
    with pytest.raises(ValueError, match="`stddev` must lie in"):
        rule(-0.1)
    with pytest.raises(TypeError, match="`stddev` must be a number or a schedule"):
        rule("0.1")


# --------------------------------------------------------------- Ornstein–Uhlenbeck


def test_stationary_spread():
    """theta 0.15, sigma 0.2, dt 0.01: 0.3653."""
    rule = OrnsteinUhlenbeckNoise(0.2, theta=0.15, dt=0.01)
    rng = np.random.default_rng(0)
    action = np.zeros((4_000, 1))
    for _ in range(2_500):  # exp(-0.0015 * 2 * 2 500) is left of the start
        noise = rule(lambda: action, 0, rng)
    assert noise.std() == pytest.approx(0.3653, rel=0.04)


def test_first_step_scales_with_the_root_of_dt():
    for dt in (0.01, 0.04):
        noise = act(OrnsteinUhlenbeckNoise(0.2, dt=dt), np.zeros((50_000, 1)))
        assert noise.std() == pytest.approx(0.2 * np.sqrt(dt), rel=0.02)


def test_noise_is_correlated_in_time_and_not_between_dimensions():
    rule = OrnsteinUhlenbeckNoise(0.3, theta=1.0, dt=0.1)
    noise = series(rule, 20_000, np.zeros((1, 2)), np.random.default_rng(0))[:, 0]
    lagged = np.corrcoef(noise[1:, 0], noise[:-1, 0])[0, 1]
    assert lagged == pytest.approx(0.9, abs=0.02)  # 1 - theta * dt
    assert abs(np.corrcoef(noise.T)[0, 1]) < 0.15


def test_a_new_episode_starts_without_noise():
    rule = OrnsteinUhlenbeckNoise(0.5, theta=1e-9, dt=1.0)
    rng = np.random.default_rng(0)
    before = rule(lambda: np.zeros((2, 3)), 0, rng)
    rule.reset(np.array([True, False]))
    rule.stddev.value = 0.0
    after = rule(lambda: np.zeros((2, 3)), 0, rng)
    np.testing.assert_array_equal(after[0], 0.0)
    np.testing.assert_allclose(after[1], before[1], rtol=1e-6)
    rule.reset(np.ones(2, bool))
    assert not rule(lambda: np.zeros((2, 3)), 0, rng).any()


def test_reset_before_the_first_action_does_nothing():
    OrnsteinUhlenbeckNoise().reset(np.ones(3, bool))


def test_the_state_continues_exactly():
    rule, rng = OrnsteinUhlenbeckNoise(0.5), np.random.default_rng(0)
    series(rule, 20, np.zeros((2, 3)), rng)
    state = json.loads(json.dumps(rule.get_state()))
    copy = OrnsteinUhlenbeckNoise(0.5)
    copy.set_state(state)
    ahead = [act(r, np.zeros((2, 3)), seed=7) for r in (rule, copy)]
    np.testing.assert_array_equal(*ahead)
    assert ahead[0].any()
    copy.set_state(OrnsteinUhlenbeckNoise(0.5).get_state())
    assert copy.get_state() == {}


def test_ornstein_uhlenbeck_noise_keeps_actions_in_range():
    rule = OrnsteinUhlenbeckNoise(5.0, dt=1.0)
    action = series(rule, 200, np.full((1, 1), 0.5), np.random.default_rng(0))
    assert action.max() == 1.0
    assert action.min() == -1.0


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf, "0.15", None])
@pytest.mark.parametrize("name", ["theta", "dt"])
def test_constants_out_of_range_are_refused(name, value):
    with pytest.raises(ValueError, match=f"`{name}` must be a finite number"):
        OrnsteinUhlenbeckNoise(**{name: value})
