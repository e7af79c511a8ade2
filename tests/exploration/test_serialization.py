import json

import keras
import numpy as np
import pytest
from keras.optimizers import schedules

from keras_rl2x.exploration import Boltzmann
from keras_rl2x.exploration import EpsilonGreedy
from keras_rl2x.exploration import Exploration
from keras_rl2x.exploration import GaussianNoise
from keras_rl2x.exploration import OrnsteinUhlenbeckNoise

SCHEDULES = [
    schedules.PolynomialDecay(1.0, 40, 0.1),
    schedules.PolynomialDecay(1.0, 40, 0.1, power=2.0, cycle=True),
    schedules.ExponentialDecay(1.0, 10, 0.5),
    schedules.ExponentialDecay(1.0, 10, 0.5, staircase=True),
    schedules.InverseTimeDecay(1.0, 10, 0.5),
    schedules.PiecewiseConstantDecay([10, 20], [1.0, 0.5, 0.1]),
    schedules.CosineDecay(1.0, 40, alpha=0.1),
    schedules.CosineDecay(0.1, 40, warmup_target=1.0, warmup_steps=10),
    schedules.CosineDecayRestarts(1.0, 20),
]


class OneNumberAtATime(schedules.LearningRateSchedule):
    """A user's schedule that takes no vector of steps."""

    def __call__(self, step):
        return keras.ops.cond(step < 10, lambda: 1.0, lambda: 0.25)

    def get_config(self):
        return {}


def round_trip(rule):
    config = json.loads(json.dumps(keras.saving.serialize_keras_object(rule)))
    return keras.saving.deserialize_keras_object(config)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda s: type(s).__name__)
def test_every_schedule_of_keras_is_read_at_single_steps(schedule):
    rule = EpsilonGreedy(schedule)
    for step in (0, 5, 10, 19, 21, 39, 40, 2_000):
        value = rule.values(step)["epsilon"]
        assert value == pytest.approx(float(schedule(step)), rel=1e-5), step


def test_a_schedule_that_takes_single_steps_only_works_too():
    rule = EpsilonGreedy(OneNumberAtATime())
    assert [rule.values(step)["epsilon"] for step in (0, 9, 10)] == [1.0, 1.0, 0.25]


def test_a_schedule_is_read_exactly_beyond_sixteen_million_steps():
    step = 2**24 + 1  # not a float32
    rule = EpsilonGreedy(schedules.PolynomialDecay(1.0, 2**25, 0.0))
    assert rule.values(step)["epsilon"] == pytest.approx(0.5, abs=1e-6)
    assert rule.values(step + 2_000)["epsilon"] < 0.5


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda s: type(s).__name__)
def test_schedules_come_back(schedule):
    copy = round_trip(EpsilonGreedy(schedule))
    for step in (0, 15, 60):
        assert copy.values(step) == EpsilonGreedy(schedule).values(step)


@pytest.mark.parametrize(
    "rule",
    [
        EpsilonGreedy(0.3),
        EpsilonGreedy(np.float32(0.25)),
        EpsilonGreedy(1),
        Boltzmann(2.0),
        GaussianNoise(0.2),
        GaussianNoise(SCHEDULES[0]),
        OrnsteinUhlenbeckNoise(0.3, theta=0.2, dt=0.05),
        OrnsteinUhlenbeckNoise(SCHEDULES[0]),
    ],
    ids=lambda rule: type(rule).__name__,
)
def test_rules_come_back_equal(rule):
    copy = round_trip(rule)
    assert type(copy) is type(rule)
    assert copy.get_config() == rule.get_config()
    for step in (0, 7, 1_000):
        assert copy.values(step) == rule.values(step)
    actions = [
        r(lambda: np.zeros((50, 2)), 7, np.random.default_rng(0)) for r in (rule, copy)
    ]
    np.testing.assert_array_equal(*actions)


def test_a_rule_of_a_users_own_needs_only_a_call():
    class Always(Exploration):
        def __call__(self, policy, step, rng, action_mask=None):
            return np.zeros(len(policy()), int)

    rule = Always()
    assert rule(lambda: np.ones((3, 2)), 0, None).tolist() == [0, 0, 0]
    rule.reset(np.ones(3, bool))
    rule.set_state(rule.get_state())
    assert rule.values(0) == {}
