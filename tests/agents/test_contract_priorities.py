"""The hook by which a prioritised memory gets TD errors, for every agent."""

import numpy as np
import pytest

from keras_rl2x import ReplayMemory
from keras_rl2x.callbacks import TargetUpdate
from keras_rl2x.types import Transition


class NotingMemory(ReplayMemory):
    """Samples uniformly, but like a prioritised memory; keeps what it is told."""

    def __init__(self, capacity, weights=True):
        super().__init__(capacity)
        self.weights = weights
        self.sampled, self.told = [], []

    def sample(self, batch_size, num_batches=1, **kwargs):
        batch = super().sample(batch_size, num_batches, **kwargs)
        number = len(self.sampled) * num_batches * batch_size
        index = number + np.arange(num_batches * batch_size)
        batch = batch._replace(
            index=index.reshape(num_batches, batch_size),
            weight=np.ones((num_batches, batch_size), np.float32)
            if self.weights
            else None,
        )
        self.sampled.append(batch)
        return batch

    def update_priorities(self, index, td_error):
        self.told.append((np.array(index), np.array(td_error)))


def flat(batch, n, units):
    """The first `n` minibatches of a stack as one batch in network units."""
    leaves = [
        None if leaf is None else np.reshape(leaf[:n], (-1, *np.shape(leaf)[2:]))
        for leaf in batch
    ]
    rows = Transition(*leaves)
    return rows._replace(action=units.to_network(rows.action))


@pytest.mark.parametrize(
    ("mode", "weights"),
    [({"run_eagerly": True}, True), ({}, True), ({}, False)],
    ids=["eager", "graph", "no-weights"],
)
def test_the_memory_gets_the_absolute_td_errors_of_the_updates_made(
    case, mode, weights
):
    memory = NotingMemory(200, weights)
    # Nothing moves, so that the errors can be computed afterwards.
    agent = case.compiled(memory=memory, rate=0.0, updates_per_step=0.5, **mode)
    agent.target_update = TargetUpdate(period=10**9)
    for target in agent.targets.values():
        for variable in getattr(agent, target).variables:
            variable.assign(variable * 0.5)  # or they would equal the networks
    agent.fit(case.env(), epochs=2, steps_per_epoch=12, batch_size=4, seed=1, verbose=0)
    # Executions of 8 and 4 steps: 4 and 2 updates, out of stacks of 4.
    counts = [4, 2, 4, 2]
    assert len(memory.told) == len(memory.sampled) == len(counts)
    for batch, (index, error), n in zip(
        memory.sampled, memory.told, counts, strict=True
    ):
        assert len(batch.reward) == 4
        assert np.array_equal(index, batch.index[:n].reshape(-1))
        expected = np.abs(case.td_error(agent, flat(batch, n, agent.action_units)))
        assert error.shape == expected.shape
        np.testing.assert_allclose(error, expected, rtol=1e-4, atol=1e-5)
        assert error.min() >= 0 < error.max()


class SameBatch(NotingMemory):
    """Every minibatch is the same one, so that its error falls from one to the next."""

    def sample(self, batch_size, num_batches=1, **kwargs):
        batch = super().sample(batch_size, num_batches, **kwargs)
        same = [
            leaf if leaf is None else np.repeat(leaf[:1], num_batches, axis=0)
            for leaf in batch
        ]
        return type(batch)(*same)._replace(index=batch.index)


def test_the_errors_of_a_minibatch_come_from_the_weights_it_was_learned_with(case):
    agent = case.compiled(memory=SameBatch(200), rate=0.002)
    agent.target_update = TargetUpdate(period=10**9)
    agent.fit(case.env(), steps_per_epoch=8, batch_size=8, seed=1, verbose=0)
    ((_, errors),) = agent.memory.told
    means = (errors.reshape(8, 8) ** 2).mean(axis=1)
    assert (np.diff(means) < 0).all(), means


def test_a_train_step_that_reports_no_errors_is_told_so(case):
    class Silent(case.cls):
        def report_td_error(self, td_error):
            pass

    agent = case.compiled(cls=Silent, memory=NotingMemory(200), run_eagerly=True)
    with pytest.raises(ValueError, match=r"self\.report_td_error\(errors\)"):
        agent.fit(case.env(), steps_per_epoch=8, batch_size=4, seed=1, verbose=0)
    assert agent.gradient_steps == 0


def test_a_memory_without_indices_is_told_nothing(case):
    class Plain(ReplayMemory):
        def update_priorities(self, index, td_error):
            raise AssertionError("no index was given")

    agent = case.light(memory=Plain(200))
    agent.fit(case.env(), steps_per_epoch=8, batch_size=4, seed=1, verbose=0)
    assert agent.gradient_steps == 8
