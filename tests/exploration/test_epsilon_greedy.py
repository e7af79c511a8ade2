import numpy as np
import pytest
from keras.optimizers import schedules

from keras_rl2x.exploration import EpsilonGreedy
from keras_rl2x.exploration.epsilon_greedy import greedy_actions

Q_VALUES = np.array([[1.0, 3.0]], np.float32)


class Policy:
    """Q-values that know their shape, as an agent's do, and count forward passes."""

    def __init__(self, q_values):
        self.q_values, self.shape, self.calls = q_values, q_values.shape, 0

    def __call__(self):
        self.calls += 1
        return self.q_values


def choose(rule, q_values=Q_VALUES, times=1, step=0, mask=None, seed=0):
    policy = Policy(np.repeat(q_values, times, axis=0))
    mask = None if mask is None else np.repeat(mask, times, axis=0)
    return rule(policy, step, np.random.default_rng(seed), mask), policy.calls


def test_a_linear_schedule_counts_env_steps():
    rule = EpsilonGreedy(schedules.PolynomialDecay(1.0, 1_000, 0.1))
    got = [rule.values(step)["epsilon"] for step in (0, 500, 1_000, 5_000, 500)]
    assert got == pytest.approx([1.0, 0.55, 0.1, 0.1, 0.55], rel=1e-6)


def test_a_random_action_may_be_the_greedy_one():
    actions, _ = choose(EpsilonGreedy(0.2), times=100_000)
    # epsilon / 2 of two actions; four standard deviations are 0.0038.
    assert np.mean(actions == 0) == pytest.approx(0.1, abs=0.004)


@pytest.mark.parametrize("size", [2, 5])
def test_epsilon_one_is_uniform(size):
    actions, _ = choose(EpsilonGreedy(1.0), np.arange(size)[None], times=50_000)
    share = np.bincount(actions, minlength=size) / 50_000
    np.testing.assert_allclose(share, np.full(size, 1 / size), atol=0.009)


def test_epsilon_zero_is_never_random():
    actions, _ = choose(EpsilonGreedy(0.0), times=10_000)
    assert (actions == 1).all()


def test_environments_choose_independently():
    actions, _ = choose(EpsilonGreedy(0.5), np.arange(10.0)[None], times=1_000)
    assert 0.4 < np.mean(actions == 9) < 0.7
    assert len(set(actions)) == 10


def test_a_random_action_costs_no_forward_pass():
    assert choose(EpsilonGreedy(1.0), times=8)[1] == 0
    assert choose(EpsilonGreedy(0.0), times=8)[1] == 1
    assert choose(EpsilonGreedy(0.5), times=64)[1] == 1


def test_forbidden_actions_are_never_taken():
    mask = np.array([[True, False, True, False]])
    q_values = np.array([[-5.0, 9.0, -7.0, 9.0]])
    random, calls = choose(EpsilonGreedy(1.0), q_values, 10_000, mask=mask)
    assert calls == 0
    assert np.mean(random == 0) == pytest.approx(0.5, abs=0.02)
    assert set(random) == {0, 2}
    greedy, _ = choose(EpsilonGreedy(0.0), q_values, mask=mask)
    assert greedy.tolist() == [0]
    both, _ = choose(EpsilonGreedy(0.5), q_values, 10_000, mask=mask)
    assert set(both) == {0, 2}
    assert np.mean(both == 0) == pytest.approx(0.75, abs=0.02)


def test_a_policy_without_a_shape_works_too():
    actions = EpsilonGreedy(1.0)(lambda: Q_VALUES, 0, np.random.default_rng(0))
    assert actions.shape == (1,)


def test_same_rng_same_actions():
    one, two, other = (
        choose(EpsilonGreedy(0.5), times=50, seed=seed)[0] for seed in (1, 1, 2)
    )
    assert one.tolist() == two.tolist() != other.tolist()


def test_ties_go_to_the_lowest_index():
    assert greedy_actions(np.array([[2.0, 2.0], [1.0, 2.0]]), None).tolist() == [0, 1]


@pytest.mark.parametrize("epsilon", [-0.1, 1.1, float("nan")])
def test_no_probability_is_refused(epsilon):
    with pytest.raises(ValueError, match=r"`epsilon` must lie in \[0, 1\].*Received"):
        EpsilonGreedy(epsilon)


@pytest.mark.parametrize("epsilon", ["0.1", None, True, [0.1], lambda step: 0.1])
def test_no_number_is_refused(epsilon):
    with pytest.raises(TypeError, match="`epsilon` must be a number or a schedule"):
        EpsilonGreedy(epsilon)


def test_a_schedule_that_starts_above_one_is_refused():
    with pytest.raises(ValueError, match="`epsilon` must lie in .*Received: 2"):
        EpsilonGreedy(schedules.PolynomialDecay(2.0, 10, 0.1))
