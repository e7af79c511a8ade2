"""Target networks of every agent."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_rl2x.callbacks import TargetUpdate
from tests.agents.contract import online
from tests.agents.contract import pairs
from tests.agents.contract import same
from tests.agents.contract import values


def batch_norm_network(name, outputs, activation, is_pair):
    """With statistics, a weight that no gradient moves."""
    inputs = [keras.Input((3,)), keras.Input((2,))] if is_pair else keras.Input((3,))
    x = keras.layers.Concatenate()(inputs) if is_pair else inputs
    x = keras.layers.Dense(8, "relu")(x)
    x = keras.layers.BatchNormalization(momentum=0.5)(x)
    return keras.Model(inputs, keras.layers.Dense(outputs, activation)(x))


@pytest.fixture
def agent(case):
    """An agent with BatchNorm, compiled, and bound to the walk."""
    agent = case.from_networks(batch_norm_network)
    env = case.env()
    agent.bind(env.observation_space, env.action_space)
    return case.compile(agent, run_eagerly=True)


@keras.saving.register_keras_serializable(package="tests")
class Slowest(TargetUpdate):
    """`target <- (3 * target + online) / 4`, at every other gradient step."""

    def __init__(self, every=2):
        super().__init__(tau=1.0)
        self.every = every

    def due(self, step, previous):
        return step % self.every == 0

    def blend(self, target, online):
        for slow, fast in zip(target.variables, online.variables):
            slow.assign((3.0 * slow + fast) / 4.0)

    def get_config(self):
        return {"every": self.every}


def test_at_the_start_every_target_equals_its_network_and_shares_nothing(case):
    agent = case.from_networks(batch_norm_network)
    # A network that has seen data: its statistics are not those of a new one.
    for network in online(agent).values():
        for variable in network.variables:
            variable.assign(variable + 0.25)
    agent.evaluate(case.env(), episodes=1)
    for target, network in pairs(agent):
        assert target is not network
        assert same(values(target), values(network))
        assert len(network.non_trainable_variables) == 2
        assert not {id(v) for v in target.variables} & {
            id(v) for v in network.variables
        }
        assert target.trainable_variables == []
        before = values(target)
        for variable in network.variables:
            variable.assign(variable + 1.0)
        assert same(values(target), before)


def test_tau_moves_every_weight_of_every_target_exactly_so_far(case, agent):
    agent.target_update = TargetUpdate(tau=0.25)
    for step in range(2):
        before = [values(target) for target, _ in pairs(agent)]
        agent.train_on_batch(case.transitions(seed=step))
        for (target, network), old in zip(pairs(agent), before, strict=True):
            for slow, was, fast in zip(values(target), old, values(network)):
                # From the weights after the gradient step of the same call.
                np.testing.assert_allclose(
                    slow, was + 0.25 * (fast - was), rtol=1e-6, atol=1e-7
                )
                assert not np.array_equal(was, fast)


def test_tau_1_copies_bit_for_bit(case, agent):
    agent.target_update = TargetUpdate(tau=1.0)
    agent.train_on_batch(case.transitions())
    for target, network in pairs(agent):
        assert same(values(target), values(network))


def test_period_copies_at_its_multiples_and_nowhere_else(case, agent):
    agent.target_update = TargetUpdate(period=3)
    for call in range(1, 8):
        before = [values(target) for target, _ in pairs(agent)]
        agent.train_on_batch(case.transitions(seed=call))
        for (target, network), old in zip(pairs(agent), before, strict=True):
            if call % 3 == 0:
                assert same(values(target), values(network)), call
            else:
                assert same(values(target), old), call
                assert not same(values(target), values(network))


def test_the_rule_passed_to_fit_becomes_the_agents_own_and_is_saved(case, tmp_path):
    agent, env = case.compiled(run_eagerly=True), case.env()
    rule = TargetUpdate(period=7)
    fit = {"steps_per_epoch": 8, "batch_size": 8, "verbose": 0}
    agent.fit(env, seed=1, callbacks=[rule], **fit)
    assert agent.target_update is rule
    case.compile(agent, run_eagerly=True)
    assert agent.target_update is rule
    agent.fit(env, **fit)
    assert agent.target_update is rule
    agent.save(tmp_path / "agent.keras")
    loaded = keras.saving.load_model(tmp_path / "agent.keras")
    assert type(loaded.target_update) is TargetUpdate
    assert loaded.target_update.period == 7
    assert loaded.target_update.tau is None


def test_the_last_rule_of_the_list_counts_and_a_new_one_takes_effect(case):
    # The old rule is part of what was compiled: a new one has to be traced anew.
    agent, env = case.compiled(rate=0.1), case.env()
    fit = {"steps_per_epoch": 8, "batch_size": 8, "verbose": 0}
    agent.fit(env, seed=1, callbacks=[TargetUpdate(period=10**6)], **fit)
    first = [values(target) for target, _ in pairs(agent)]
    agent.fit(env, callbacks=[TargetUpdate(tau=1.0)], **fit)
    for (target, network), old in zip(pairs(agent), first, strict=True):
        assert not same(values(target), old)
        assert same(values(target), values(network))


def test_a_subclass_blends_as_it_likes_at_its_own_steps(case):
    agent, rule = case.compiled(rate=0.1), Slowest()
    agent.target_update = rule
    # Compiled: three gradient steps, of which the second blends.
    first = [values(target) for target, _ in pairs(agent)]
    agent.train_on_batch(case.transitions(seed=1))
    assert all(same(values(t), old) for (t, _), old in zip(pairs(agent), first))
    agent.train_on_batch(case.transitions(seed=2))
    second = [values(target) for target, _ in pairs(agent)]
    for (_, network), old, new in zip(pairs(agent), first, second, strict=True):
        for was, now, fast in zip(old, new, values(network), strict=True):
            np.testing.assert_allclose(now, (3 * was + fast) / 4, atol=1e-6)
    agent.train_on_batch(case.transitions(seed=3))
    assert all(same(values(t), now) for (t, _), now in zip(pairs(agent), second))


def test_a_subclass_is_saved_with_the_agent(case, tmp_path):
    agent = case.compiled()
    agent.target_update = Slowest(every=3)
    agent.save(tmp_path / "agent.keras")
    rule = keras.saving.load_model(tmp_path / "agent.keras").target_update
    assert type(rule) is Slowest
    assert rule.every == 3


def test_targets_take_no_part_in_training(case):
    agent = case.compiled()
    trained = {id(v) for v in agent.trainable_variables}
    assert trained == {
        id(v) for net in online(agent).values() for v in net.trainable_variables
    }
    # Nor does the loss have a gradient with respect to them.
    agent.target_update = TargetUpdate(period=10**6)
    before = [values(target) for target, _ in pairs(agent)]
    agent.train_on_batch(case.transitions())
    assert all(same(values(t), old) for (t, _), old in zip(pairs(agent), before))


@pytest.mark.parametrize(
    "arguments",
    [{}, {"tau": 0.1, "period": 5}, {"tau": 0.0}, {"tau": 1.5}, {"period": 0},
     {"period": 2.5}],
)  # fmt: skip
def test_a_rule_takes_one_number_in_range(arguments):
    with pytest.raises(ValueError, match="`tau`|`period`"):
        TargetUpdate(**arguments)


def test_a_rule_is_blended_inside_the_compiled_step(case):
    """Python code of the rule runs while tracing, not once per step."""
    eager = []

    class Noted(TargetUpdate):
        def blend(self, target, online):
            eager.append(tf.executing_eagerly())
            super().blend(target, online)

    case.light(targets=True, run_eagerly=False).fit(
        case.env(), steps_per_epoch=40, batch_size=8, seed=1, verbose=0,
        callbacks=[Noted(tau=0.1)],
    )  # fmt: skip
    assert 0 < eager.count(False) < 10
    assert eager.count(True) <= len(case.cls.targets)
