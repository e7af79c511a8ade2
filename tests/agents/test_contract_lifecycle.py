"""Agents side by side, in threads and event loops, and in other precisions."""

import asyncio
import gc
import threading

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework.func_graph import FuncGraph

from tests.agents.contract import digest
from tests.agents.contract import same

FIT = {"steps_per_epoch": 24, "batch_size": 8, "verbose": 0}


def trained(case, seed, fits=2):
    """The sum of an agent after some fits by itself."""
    agent, env = case.compiled(seed), case.env()
    agent.fit(env, seed=seed, **FIT)
    for _ in range(fits - 1):
        agent.fit(env, **FIT)
    return digest(agent)


@pytest.fixture(scope="module")
def alone(case):
    return {seed: trained(case, seed) for seed in (1, 2)}


def test_two_agents_in_turns_learn_what_each_learns_alone(case, alone):
    agents = {seed: (case.compiled(seed), case.env()) for seed in (1, 2)}
    for seed, (agent, env) in agents.items():
        agent.fit(env, seed=seed, **FIT)
    for agent, env in agents.values():
        agent.fit(env, **FIT)
    assert {seed: digest(agent) for seed, (agent, _) in agents.items()} == alone
    assert alone[1] != alone[2]


def test_fit_in_another_thread_learns_the_same(case, alone):
    sums = []
    thread = threading.Thread(target=lambda: sums.append(trained(case, 1)))
    thread.start()
    thread.join()
    assert sums == [alone[1]]


def test_fit_in_a_running_event_loop_as_in_a_notebook_learns_the_same(case, alone):
    async def cell():
        return trained(case, 1)

    assert asyncio.run(cell()) == alone[1]


@pytest.mark.parametrize(
    ("policy", "variable", "close"),
    [
        ("mixed_bfloat16", "float32", 0.1),
        ("mixed_float16", "float32", 0.02),
        ("float64", "float64", 1e-4),
    ],
)
def test_other_precisions_learn_nearly_the_same(case, policy, variable, close):
    agent, batch = case.compiled(), case.transitions()
    expected = agent.gradient_norms(batch)
    keras.mixed_precision.set_global_policy(policy)
    try:
        other = case.compiled(2)
        assert other.trainable_variables[0].dtype == variable
        other.set_weights(agent.get_weights())
        norms = other.gradient_norms(batch)
        other.fit(case.env(), seed=1, **FIT)
        assert np.isfinite(other.predict(batch.observation, verbose=0)).all()
        assert not same(other.get_weights(), agent.get_weights())
    finally:
        keras.mixed_precision.set_global_policy("float32")
    largest = max(expected.values())
    for one, two in zip(expected.values(), norms.values(), strict=True):
        assert two == pytest.approx(one, rel=close, abs=close * largest)


def test_a_distribution_strategy_is_refused(case):
    agent = case.compiled()
    with tf.distribute.OneDeviceStrategy("CPU:0").scope():
        with pytest.raises(ValueError, match="OneDeviceStrategy.*outside of"):
            agent.fit(case.env(), **FIT)
        with pytest.raises(ValueError, match="OneDeviceStrategy.*outside of"):
            case.make()
    agent.fit(case.env(), **FIT)
    assert agent.gradient_steps > 0


def test_agents_that_are_dropped_leave_no_graphs_behind(case):
    """TensorFlow keeps some for good, unless they are kept from it: 7 MB an agent."""

    def graphs():
        gc.collect()
        return sum(isinstance(thing, FuncGraph) for thing in gc.get_objects())

    counts = []
    for _ in range(3):
        trained(case, 1, fits=1)
        counts.append(graphs())
    assert counts[2] <= counts[0]
