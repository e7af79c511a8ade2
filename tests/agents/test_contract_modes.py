"""Eager, graph and XLA learn the same, for every agent."""

import gymnasium as gym
import keras
import numpy as np
import pytest

from keras_rl2x import DQN
from keras_rl2x.types import Transition
from tests.agents.contract import values

MODES = {
    "eager": {"run_eagerly": True},
    "graph": {"jit_compile": False},
    "xla": {"jit_compile": True},
}


@pytest.fixture(scope="module")
def learned(case):
    """Weights after each of three updates, and after a short `fit`, in each mode."""
    seen = {}
    for mode, arguments in MODES.items():
        agent = case.compiled(
            **{n: keras.optimizers.Adam(0.01) for n in case.optimizers},
            steps_per_execution=1,  # the same shapes as in `train_on_batch`
            **arguments,
        )
        logs, steps = [], []
        for i in range(3):
            logs.append(agent.train_on_batch(case.transitions(seed=i)))
            steps.append(values(agent))
        history = agent.fit(
            case.env(), steps_per_epoch=4, batch_size=16, seed=1, verbose=0
        ).history
        seen[mode] = (steps, logs, values(agent), history, agent)
    return seen


@pytest.mark.parametrize("mode", ["eager", "xla"])
def test_every_update_agrees_with_the_graph(learned, mode):
    for (now, logs), (graph, other) in zip(
        zip(*learned[mode][:2], strict=True), zip(*learned["graph"][:2], strict=True),
        strict=True,
    ):  # fmt: skip
        for one, two in zip(now, graph, strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-6)
        assert logs == pytest.approx(other, rel=1e-4)


@pytest.mark.parametrize("mode", ["eager", "xla"])
def test_a_fit_agrees_with_the_graph(learned, mode):
    _, _, weights, history, agent = learned[mode]
    _, _, others, other, same_agent = learned["graph"]
    assert (agent.env_steps, agent.gradient_steps) == (20, 7)
    assert same_agent.env_steps == 20
    for name in set(other) - {"steps_per_second"}:
        assert history[name] == pytest.approx(other[name], rel=1e-3), name
    for one, two in zip(weights, others, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-3, atol=1e-5)


def test_auto_means_xla_without_convolutions_only(case):
    """On a CPU, convolutions inside an XLA loop are ten times slower."""
    agent = case.compiled(jit_compile="auto")
    assert agent.make_engine().jit_compile is True


def test_numbers_and_breakpoints_are_plain_python_when_run_eagerly(case):
    seen = []

    class Looking(case.cls):
        def train_step(self, batch):
            seen.append(float(batch.reward[0]))  # fails in a graph
            return super().train_step(batch)

    agent = case.compiled(cls=Looking, run_eagerly=True)
    agent.fit(case.env(), steps_per_epoch=3, batch_size=8, seed=1, verbose=0)
    assert np.isfinite(seen[-3:]).all()
    assert len(set(seen)) > 1


def test_an_optimizer_compiled_by_itself_gives_the_same_numbers():
    def trained(**kwargs):
        network = keras.Sequential(
            [
                keras.Input((6, 6, 1)),
                keras.layers.Conv2D(4, 3, kernel_initializer=keras.initializers.Ones()),
                keras.layers.Flatten(),
                keras.layers.Dense(2, kernel_initializer=keras.initializers.Ones()),
            ]
        )
        agent = DQN(network)
        agent.bind(gym.spaces.Box(-1, 1, (6, 6, 1)), gym.spaces.Discrete(2))
        agent.compile(keras.optimizers.Adam(1e-2, clipnorm=1.0), **kwargs)
        rng = np.random.default_rng(0)
        for _ in range(3):
            agent.train_on_batch(
                Transition(
                    observation=rng.normal(size=(8, 6, 6, 1)).astype(np.float32),
                    action=rng.integers(2, size=8),
                    reward=rng.normal(size=8).astype(np.float32),
                    discount=np.full(8, 0.9, np.float32),
                    next_observation=rng.normal(size=(8, 6, 6, 1)).astype(np.float32),
                )
            )
        return agent

    fused, plain = trained(), trained(jit_compile=False)
    assert fused.engine._fuse_updates
    assert not plain.engine._fuse_updates
    for one, other in zip(fused.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
