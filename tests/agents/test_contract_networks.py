"""A user's own networks, for every agent."""

import keras
import numpy as np
import pytest

from tests.agents.contract import AGENTS
from tests.agents.contract import online
from tests.agents.contract import pairs
from tests.agents.contract import same
from tests.agents.contract import values


def sequential(name, outputs, activation, is_pair):
    """Not built: it learns its input shape from the spaces."""
    if is_pair:  # which a Sequential cannot take
        return functional(name, outputs, activation, is_pair)
    return keras.Sequential(
        [keras.layers.Dense(8, "relu"), keras.layers.Dense(outputs, activation)]
    )


def functional(name, outputs, activation, is_pair):
    inputs = [keras.Input((3,)), keras.Input((2,))] if is_pair else keras.Input((3,))
    x = keras.layers.Concatenate()(inputs) if is_pair else inputs
    x = keras.layers.Dense(8, "relu")(x)
    return keras.Model(inputs, keras.layers.Dense(outputs, activation)(x))


@keras.saving.register_keras_serializable(package="tests")
class Subclassed(keras.Model):
    """With two arguments where it is a critic, and layers made when it is built."""

    def __init__(self, outputs, activation=None, **kwargs):
        super().__init__(**kwargs)
        self.outputs, self.activation = outputs, activation
        self.hidden = keras.layers.Dense(8, "relu")
        self.last = keras.layers.Dense(outputs, activation)

    def call(self, observation, action=None):
        parts = [observation] if action is None else [observation, action]
        return self.last(self.hidden(keras.ops.concatenate(parts, axis=-1)))

    def get_config(self):
        return {"outputs": self.outputs, "activation": self.activation}


def subclassed(name, outputs, activation, is_pair):
    return Subclassed(outputs, activation)


def normalised(name, outputs, activation, is_pair):
    """BatchNorm and Dropout: layers for which `training` makes a difference."""
    inputs = [keras.Input((3,)), keras.Input((2,))] if is_pair else keras.Input((3,))
    x = keras.layers.Concatenate()(inputs) if is_pair else inputs
    x = keras.layers.Dense(8, "relu")(x)
    x = keras.layers.BatchNormalization(momentum=0.5)(x)
    x = keras.layers.Dropout(0.5, seed=1)(x)
    return keras.Model(inputs, keras.layers.Dense(outputs, activation)(x))


def frozen(name, outputs, activation, is_pair):
    """The first layer does not learn."""
    network = functional(name, outputs, activation, is_pair)
    first = next(layer for layer in network.layers if layer.weights)
    first.trainable = False
    return network


KINDS = [sequential, functional, subclassed, normalised, frozen]


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: kind.__name__)
def trained(case, request):
    """An agent with the user's networks before and after a `fit`."""
    agent = case.compile(case.from_networks(request.param), rate=0.1)
    env = case.env()
    agent.bind(env.observation_space, env.action_space)
    before = {name: values(network) for name, network in online(agent).items()}
    history = agent.fit(env, steps_per_epoch=16, batch_size=8, seed=1, verbose=0)
    return agent, before, history.history, request.param


def test_every_trainable_weight_moves_and_no_frozen_one(trained):
    agent, before, _, _ = trained
    for name, network in online(agent).items():
        learns = {id(variable) for variable in network.trainable_variables}
        assert learns
        for variable, old in zip(network.variables, before[name], strict=True):
            moved = not np.array_equal(variable.numpy(), old)
            is_statistic = "moving" in variable.path
            is_seed = "seed" in variable.path
            if not is_seed:
                assert moved == (id(variable) in learns or is_statistic), variable.path


def test_targets_follow_and_frozen_parts_stay_equal(trained):
    agent, before, _, _ = trained
    for (target, network), name in zip(pairs(agent), agent.trained, strict=True):
        rows = zip(target.variables, network.variables, before[name], strict=True)
        for slow, fast, old in rows:
            if "seed" in fast.path:
                continue
            if np.array_equal(fast.numpy(), old):
                assert np.array_equal(slow.numpy(), old)
            else:
                assert not np.array_equal(slow.numpy(), old), fast.path


def test_learning_is_finite(trained):
    _, _, history, _ = trained
    assert np.isfinite(history["loss"]).all()


def test_acting_and_predicting_change_no_variable_and_repeat(case, trained):
    agent = trained[0]
    observations = case.transitions(20).observation
    before = values(agent)
    first, second = agent.act(observations), agent.act(observations)
    assert np.array_equal(first, second)
    assert np.array_equal(
        agent.predict(observations, verbose=0), agent.predict(observations, verbose=0)
    )
    agent.evaluate(case.env(), episodes=1, seed=1)
    assert same(values(agent), before)


def test_the_networks_survive_saving(case, trained, tmp_path):
    agent = trained[0]
    observations = case.transitions(20).observation
    agent.save(tmp_path / "agent.keras")
    loaded = keras.saving.load_model(tmp_path / "agent.keras")
    for one, other in zip(online(agent).values(), online(loaded).values()):
        assert type(one) is type(other)
        for old, new in zip(one.variables, other.variables, strict=True):
            if "seed" not in old.path:
                assert np.array_equal(old.numpy(), new.numpy()), old.path
        assert len(one.trainable_variables) == len(other.trainable_variables)
    assert np.array_equal(agent.act(observations), loaded.act(observations))


# ------------------------------------------------- BatchNorm in detail


@pytest.fixture
def agent_with_statistics(case):
    agent = case.compile(case.from_networks(normalised), run_eagerly=True)
    env = case.env()
    agent.bind(env.observation_space, env.action_space)
    return agent


def statistics(network):
    return [v.numpy() for v in network.variables if "moving" in v.path]


def test_statistics_move_once_per_update_and_only_in_the_network_that_learns(
    case, agent_with_statistics
):
    """momentum 0.5: one pass moves the mean half way to the batch's, two three
    quarters. Passes to compute targets, or the actor's through the critic, count
    as inference."""
    agent, batch = agent_with_statistics, case.transitions(64)
    seen = {}
    for name, network in online(agent).items():
        dense = next(layer for layer in network.layers if "dense" in layer.name)
        columns = [batch.observation]
        if dense.kernel.shape[0] > 3:
            columns.append(agent.action_units.to_network(batch.action))
        hidden = np.concatenate(columns, axis=1) @ dense.kernel.numpy()
        seen[name] = np.maximum(hidden + dense.bias.numpy(), 0).mean(axis=0)
    agent.train_on_batch(batch)
    for name, network in online(agent).items():
        mean = statistics(network)[0]
        np.testing.assert_allclose(mean, 0.5 * seen[name], rtol=1e-4, atol=1e-6)


def test_dropout_draws_a_new_mask_for_every_update(case, agent_with_statistics):
    agent = case.compile(agent_with_statistics, rate=0.0, run_eagerly=True)
    # Nothing moves, and a target without a next value: only the mask differs.
    batch = case.transitions()._replace(discount=np.zeros(16, np.float32))
    losses = [agent.train_on_batch(batch)["loss"] for _ in range(3)]
    assert len(set(losses)) == 3


# ------------------------------------------------- networks that cannot work


class NoConfig(keras.Model):
    """Keras cannot copy it: arguments without a `get_config`."""

    def __init__(self, outputs, activation):
        super().__init__()
        self.last = keras.layers.Dense(outputs, activation)

    def call(self, observation, action=None):
        parts = [observation] if action is None else [observation, action]
        return self.last(keras.ops.concatenate(parts, axis=-1))


def test_a_network_that_cannot_be_copied_says_what_to_define(case):
    agent = case.from_networks(
        lambda name, outputs, activation, is_pair: NoConfig(outputs, activation)
    )
    case.compile(agent)
    with pytest.raises(ValueError, match=r"get_config.*target_"):
        agent.fit(case.env(), verbose=0)
    assert agent.observation_space is None


def test_own_target_networks_make_copying_unnecessary(case):
    def network(name, outputs, activation, is_pair):
        return NoConfig(outputs, activation)

    arguments = {
        name: getattr(case.from_networks(network), name) for name in case.cls.trained
    }
    targets = {
        target: getattr(case.from_networks(network), name)
        for name, target in case.cls.targets.items()
    }
    agent = case.compile(case.cls(**arguments, **targets), rate=0.1)
    agent.fit(case.env(), steps_per_epoch=8, batch_size=8, seed=1, verbose=0)
    for name, target in targets.items():
        assert getattr(agent, name) is target


def test_a_target_that_is_the_network_itself_is_refused(case):
    networks = {n: getattr(case.from_networks(functional), n) for n in case.cls.trained}
    name, target = next(iter(case.cls.targets.items()))
    agent = case.compile(case.cls(**networks, **{target: networks[name]}))
    with pytest.raises(ValueError, match=f"`{target}` shares variables with `{name}`"):
        agent.fit(case.env(), verbose=0)


def test_wrong_output_shapes_name_network_and_shapes(case):
    for wrong in case.cls.trained:

        def network(name, outputs, activation, is_pair, wrong=wrong):
            return functional(name, outputs + (name == wrong), activation, is_pair)

        agent = case.compile(case.from_networks(network))
        env = case.env()
        with pytest.raises(
            ValueError, match=f"`{wrong}` must return.*expected.*received"
        ):
            agent.fit(env, verbose=0)
        assert agent.observation_space is None
        assert env.seeds == []


@pytest.mark.parametrize("case", AGENTS, ids=lambda case: case.cls.__name__)
@pytest.mark.parametrize(
    "network", [keras.layers.Dense(2), "mlp", keras.Sequential, lambda x: x, None]
)
def test_what_is_no_model_is_named(case, network):
    with pytest.raises(TypeError, match=r"must be a `keras.Model`"):
        case.from_networks(lambda *_: network)


def test_all_frozen_cannot_learn(case):
    def network(*args):
        made = functional(*args)
        made.trainable = False
        return made

    agent = case.from_networks(network)
    env = case.env()
    with pytest.raises(ValueError, match=r"no trainable variable.*trainable = True"):
        _compile_and_fit(case, agent, env)
    assert env.seeds == []


def test_a_method_of_keras_cannot_be_shadowed(case):
    agent = case.make()
    for name in ("predict", "fit", "evaluate", "save", "summary"):
        with pytest.raises(AttributeError, match=f"shadow the Keras method `{name}`"):
            setattr(agent, name, functional("", 3, None, False))


def _compile_and_fit(case, agent, env):
    case.compile(agent)
    agent.fit(env, verbose=0)
