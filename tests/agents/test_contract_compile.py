"""`compile` of every agent."""

import keras
import numpy as np
import pytest

from keras_rl2x import ReplayMemory
from keras_rl2x.exploration import EpsilonGreedy
from tests.agents.contract import AGENTS
from tests.agents.contract import digest
from tests.agents.contract import online
from tests.agents.contract import same
from tests.agents.contract import values

TWO_OPTIMIZERS = [case for case in AGENTS if len(case.optimizers) > 1]


def test_without_arguments_every_network_gets_its_own_built_adam(case):
    agent = case.make()
    agent.compile()
    optimizers = [getattr(agent, name) for name in case.optimizers]
    assert all(type(each) is keras.optimizers.Adam for each in optimizers)
    assert len({id(each) for each in optimizers}) == len(optimizers)
    for optimizer, network in zip(optimizers, online(agent).values(), strict=True):
        moments = len(optimizer.variables) - 2  # iterations, learning rate
        assert moments == 2 * len(network.trainable_variables)
    assert agent.memory.capacity == 100_000
    assert len(agent.memory) == 0


def test_two_agents_compiled_by_default_share_nothing(case):
    one, other = case.make(1), case.make(2)
    one.compile()
    other.compile()
    assert one.memory is not other.memory
    assert one.exploration is not other.exploration
    assert one.target_update is not other.target_update
    assert one.optimizer is not other.optimizer


def test_strings_name_keras_optimizers_and_losses(case):
    agent = case.compiled(
        **dict.fromkeys(case.optimizers, "rmsprop"), loss="mae", run_eagerly=True
    )
    for name in case.optimizers:
        assert type(getattr(agent, name)) is keras.optimizers.RMSprop
    # Mean absolute error does not square: ten times the reward, ten times the loss.
    batch = case.transitions()._replace(discount=np.zeros(16, np.float32))
    hundred = batch._replace(reward=np.full(16, 100.0, np.float32))
    thousand = batch._replace(reward=np.full(16, 1_000.0, np.float32))
    first = agent.train_on_batch(hundred)["loss"]
    assert first == pytest.approx(100, abs=5)
    assert agent.train_on_batch(thousand)["loss"] == pytest.approx(1_000, abs=5)


def test_config_dicts_make_optimizers(case):
    rates = {name: 0.125 / (i + 1) for i, name in enumerate(case.optimizers)}
    configs = {
        name: keras.optimizers.serialize(keras.optimizers.Adam(rate))
        for name, rate in rates.items()
    }
    agent = case.compiled(**configs)
    for name, rate in rates.items():
        assert type(getattr(agent, name)) is keras.optimizers.Adam
        assert float(getattr(agent, name).learning_rate) == rate


def test_each_optimizer_moves_its_own_network_and_no_other(case):
    for moved, optimizer in case.cls.trained.items():
        rates = {name: keras.optimizers.SGD(0.0) for name in case.optimizers}
        rates[optimizer] = keras.optimizers.SGD(0.1)
        agent = case.compiled(run_eagerly=True, **rates)
        before = {name: values(network) for name, network in online(agent).items()}
        agent.train_on_batch(case.transitions())
        for name, network in online(agent).items():
            assert same(values(network), before[name]) == (name != moved), name


@pytest.mark.parametrize("case", TWO_OPTIMIZERS, ids=lambda case: case.cls.__name__)
def test_one_optimizer_object_for_two_networks_is_refused(case):
    agent = case.compiled()
    before = [getattr(agent, name) for name in case.optimizers]
    shared = keras.optimizers.Adam()
    with pytest.raises(ValueError, match="same object.*Make two"):
        agent.compile(**dict.fromkeys(case.optimizers, shared))
    assert [getattr(agent, name) for name in case.optimizers] == before


def test_an_optimizer_of_another_agent_is_refused_and_nothing_changes(case):
    other, agent = case.compiled(1), case.compiled(2)
    before, first = digest(agent), [getattr(agent, name) for name in case.optimizers]
    used = {name: getattr(other, name) for name in case.optimizers}
    with pytest.raises(ValueError, match="already been used.*new optimizer"):
        agent.compile(**used)
    assert [getattr(agent, name) for name in case.optimizers] == first
    assert digest(agent) == before


def test_compiling_again_keeps_the_memory_and_the_counters(case):
    agent, env = case.light(), case.env()
    agent.fit(env, steps_per_epoch=8, batch_size=8, seed=1, verbose=0)
    memory, rule = agent.memory, agent.target_update
    rows, steps = len(memory), agent.env_steps
    case.compile(agent, rate=0.5, run_eagerly=True)
    assert agent.memory is memory
    assert len(memory) == rows == 24
    assert agent.target_update is rule
    assert float(agent.optimizer.learning_rate) == 0.5
    agent.fit(env, steps_per_epoch=8, batch_size=8, verbose=0)
    assert agent.env_steps == steps + 8, "the warm-up was done again"
    assert env.seeds.count(1) == 1
    assert len(memory) == 32


def test_a_new_memory_replaces_the_old_one(case):
    agent, env = case.light(), case.env()
    agent.fit(env, steps_per_epoch=8, batch_size=8, seed=1, verbose=0)
    old, new = agent.memory, ReplayMemory(50)
    case.compile(agent, memory=new, run_eagerly=True)
    assert agent.memory is new
    agent.fit(env, steps_per_epoch=8, batch_size=8, verbose=0)
    assert (len(old), len(new)) == (24, 24)


def test_an_empty_memory_is_used_and_not_replaced(case):
    memory = ReplayMemory(77)
    assert case.compiled(memory=memory).memory is memory


def test_metrics_of_compile_appear_once(case):
    agent = case.make()
    for _ in range(2):
        case.compile(agent, metrics=["mae"], run_eagerly=True, updates_per_step=0.25)
    history = agent.fit(
        case.env(), steps_per_epoch=8, batch_size=8, seed=1, verbose=0
    ).history
    assert [key for key in history if "mae" in key or "absolute" in key] == ["mae"]
    assert list(history).count("loss") == 1
    assert np.isfinite(history["mae"]).all()


WRONG = [
    ("memory", 5, TypeError, "`memory`.*ReplayMemory"),
    ("memory", ReplayMemory, TypeError, "`memory`.*ReplayMemory"),
    ("memory", ReplayMemory(10), ValueError, "10 steps.*warmup_steps=16"),
    ("exploration", "greedy", TypeError, "`exploration`.*greedy"),
    ("exploration", EpsilonGreedy, TypeError, "`exploration`"),
    ("updates_per_step", 0, ValueError, "`updates_per_step`"),
    ("updates_per_step", -1.0, ValueError, "`updates_per_step`"),
    ("updates_per_step", float("nan"), ValueError, "`updates_per_step`"),
    ("updates_per_step", float("inf"), ValueError, "`updates_per_step`"),
    ("updates_per_step", "often", (TypeError, ValueError), "`updates_per_step`"),
    ("steps_per_execution", 0, ValueError, "`steps_per_execution`"),
    ("steps_per_execution", 2.5, (TypeError, ValueError), "`steps_per_execution`"),
    ("steps_per_execution", "8", (TypeError, ValueError), "`steps_per_execution`"),
    ("warmup_steps", -1, ValueError, "`warmup_steps`"),
    ("warmup_steps", "long", (TypeError, ValueError), "`warmup_steps`"),
    ("optimizer", "no-such", ValueError, "no-such"),
    ("optimizer", 3, ValueError, "3"),
    ("loss", "no-such", ValueError, "no-such"),
    ("loss", 3, (TypeError, ValueError), "3"),
]


@pytest.fixture(scope="module")
def agent(case):
    """Compiled once: nothing that is refused may change it."""
    return case.compiled()


@pytest.mark.parametrize(
    ("argument", "value", "error", "text"),
    WRONG,
    ids=[f"{name}-{i}" for i, (name, *_) in enumerate(WRONG)],
)
def test_a_wrong_argument_is_named_and_changes_nothing(
    case, agent, argument, value, error, text
):
    memory, optimizer, rule = agent.memory, agent.optimizer, agent.exploration
    before = digest(agent)
    with pytest.raises(error, match=text):
        case.compile(agent, **{argument: value})
    assert agent.memory is memory
    assert agent.optimizer is optimizer
    assert agent.exploration is rule
    assert digest(agent) == before


def test_fit_before_compile_says_so(case):
    with pytest.raises(ValueError, match=r"`compile\(\)` before `fit`"):
        case.make().fit(case.env())
