"""The callback measures what it says, changes nothing, and degrades quietly."""

import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_rl2x import DDPG
from keras_rl2x import DQN
from keras_rl2x import Agent
from keras_rl2x import ops
from keras_rl2x.diagnostics import Finding
from keras_rl2x.diagnostics import Health
from keras_rl2x.diagnostics.dry_pass import DryPass
from keras_rl2x.diagnostics.meter import Meter
from keras_rl2x.diagnostics.spies import watched
from keras_rl2x.envs import probes
from keras_rl2x.exploration import EpsilonGreedy
from keras_rl2x.exploration import OrnsteinUhlenbeckNoise
from tests.helpers import ScriptedEnv


@pytest.fixture(autouse=True)
def clear():
    yield
    keras.backend.clear_session()


class Sarsa(Agent):
    """A user's own agent, with dropout, a metric of its own and no target network."""

    trained = {"network": "optimizer"}

    def __init__(self, network, **kwargs):
        super().__init__(**kwargs)
        self.network = network

    def policy(self, observation, training=False):
        return self.network(observation, training=training)

    def train_step(self, batch):
        next_values = tf.reduce_mean(self.network(batch.next_observation), axis=1)
        targets = ops.td_target(batch.reward, batch.discount, next_values)
        with tf.GradientTape() as tape:
            q_values = self.network(batch.observation, training=True)
            values = ops.select(q_values, batch.action)
            loss = self.compute_loss(y=targets[:, None], y_pred=values[:, None])
        self.apply_gradients(tape, loss, self.network)
        return self.track(loss=loss)


def dense(*units, size=5, activation="relu"):
    hidden = [keras.layers.Dense(n, activation) for n in units[:-1]]
    last = keras.layers.Dense(units[-1])
    return keras.Sequential([keras.Input((size,)), *hidden, last])


def make_dqn():
    network = keras.Sequential(
        [
            keras.Input((5,)),
            keras.layers.Dense(16),
            keras.layers.BatchNormalization(),
            keras.layers.Activation("relu"),
            keras.layers.Dropout(0.2),
            keras.layers.Dense(2),
        ]
    )
    return DQN(network, gamma=0.9), probes.CorridorProbe()


def make_ddpg():
    env = probes.TruncationProbe(continuous=True)
    agent = DDPG.from_env(env, hidden=(16,), gamma=0.9, seed=1)
    return agent, env


def make_sarsa():
    network = dense(16, 2)
    network.add(keras.layers.BatchNormalization())
    network.add(keras.layers.Dropout(0.1))
    return Sarsa(network, gamma=0.9), probes.CorridorProbe()


def filled(agent, env):
    """Bound, with some random steps in its memory, and nothing learned."""
    agent.bind(env.observation_space, env.action_space)
    rng, size = np.random.default_rng(0), len(env.rows)
    action_shape = env.action_space.shape or ()
    agent.memory.add_episode(
        observations=env.rows[rng.integers(size, size=301)],
        actions=rng.integers(2, size=(300, *action_shape)),
        rewards=rng.normal(size=300),
        terminated=True,
    )
    return agent


MAKERS = {"DQN": make_dqn, "DDPG": make_ddpg, "own agent": make_sarsa}


def compiled(maker, **kwargs):
    keras.utils.set_random_seed(3)
    agent, env = MAKERS[maker]()
    settings = {"warmup_steps": 300, "jit_compile": False, "steps_per_execution": 16}
    if maker == "DDPG":
        settings["exploration"] = OrnsteinUhlenbeckNoise(0.3)
    agent.compile(**settings | kwargs)
    return agent, env


def trained(maker, *callbacks, **kwargs):
    agent, env = compiled(maker, metrics=["mae"])
    arguments = {"epochs": 2, "steps_per_epoch": 320, "batch_size": 16, "seed": 1}
    history = agent.fit(
        env, callbacks=list(callbacks), verbose=0, **arguments | kwargs
    ).history
    return agent, history


def check_logs(agent, history):
    """Finite numbers in each epoch, from the first one on."""
    health = {name: v for name, v in history.items() if name.startswith("health/")}
    for name in agent.trained:
        assert f"health/gradient_norm/{name}" in health
        assert f"health/update_ratio/{name}" in health
    for name in agent.targets.values():
        assert f"health/target_distance/{name}" in health
    assert health["health/findings"] == [0.0, 0.0]
    for numbers in health.values():
        assert len(numbers) == 2
        assert np.isfinite(numbers).all()


@pytest.mark.parametrize(
    "maker", [pytest.param("DQN", marks=pytest.mark.soak), "DDPG", "own agent"]
)
def test_training_is_the_same_with_and_without(maker):
    agent, plain = trained(maker)
    health = Health(every=100, verbose=False)
    other, watched_ = trained(maker, health)
    assert health.problem is None
    assert len(health.history.records) > 4
    for one, two in zip(agent.variables, other.variables, strict=True):
        np.testing.assert_array_equal(one.numpy(), two.numpy(), err_msg=one.path)
    for name in agent.trained.values():
        optimizers = (getattr(agent, name), getattr(other, name))
        for one, two in zip(*(each.variables for each in optimizers), strict=True):
            np.testing.assert_array_equal(one.numpy(), two.numpy(), err_msg=one.path)
    assert vars(agent.progress) == vars(other.progress)
    assert agent.exploration.get_state() == other.exploration.get_state()
    plain.pop("steps_per_second")
    for name, numbers in plain.items():
        assert watched_[name] == numbers, name
    check_logs(agent, watched_)
    # The memory holds the same.
    one, two = (
        each.memory.sample(8, rng=np.random.default_rng(0)) for each in (agent, other)
    )
    np.testing.assert_array_equal(one.observation, two.observation)


def test_gradient_norms_are_those_of_the_agent():
    agent = filled(*compiled("DDPG"))
    batch = agent.memory.sample(32, rng=np.random.default_rng(0))
    expected = agent.gradient_norms(batch)
    units = batch._replace(action=agent.action_units.to_network(batch.action))
    one = type(batch)(*(None if leaf is None else leaf[0] for leaf in units))
    measured = DryPass(agent)(one)["gradients"]
    found = {
        f"{name}/{path}": norm
        for name, norms in measured.items()
        for path, norm in norms.items()
    }
    assert list(found) == list(expected)
    np.testing.assert_allclose(
        list(found.values()), list(expected.values()), rtol=1e-4, atol=1e-7
    )


def test_layers_are_measured_by_hand():
    """Two of four ReLU units are dead; one of two tanh outputs is at the end."""
    agent, env = (
        DQN(dense(4, 2, 2, activation="relu"), gamma=0.9),
        probes.CorridorProbe(),
    )
    agent.network.layers[1].activation = keras.activations.tanh
    agent.compile(warmup_steps=100, jit_compile=False)
    filled(agent, env)
    first, second, _ = agent.network.layers
    first.set_weights([np.ones((5, 4)) * [1, 1, -1, -1], np.zeros(4)])
    second.set_weights([np.ones((4, 2)) * [100.0, 0.01], np.zeros(2)])
    record = Meter(agent).record()
    layers = record.networks["network"].layers
    assert [(each.dead, each.saturated) for each in layers[:2]] == [(0.5, 0), (0, 0.5)]
    assert [each.is_output for each in layers] == [False, False, True]
    inputs = record.networks["network"].inputs
    assert (inputs.layer, inputs.largest) == (first.name, 1.0)


def test_the_size_of_an_update_is_measured_by_hand():
    """A tenth in ten steps is a hundredth in each."""
    agent = filled(*compiled("own agent"))
    meter = Meter(agent)
    before = meter.weights()
    kernel = agent.network.trainable_variables[0]
    kernel.assign(1.1 * kernel)
    network = meter.record(before, gradient_steps=10).networks["network"]
    assert network.updates[kernel.path] == pytest.approx(0.01, rel=1e-3)
    assert network.slowest_update == 0.0
    assert meter.record().networks["network"].update_ratio is None


def test_it_looks_early_and_then_on_its_schedule():
    health = Health(every=300, verbose=False)
    agent, env = compiled("own agent", updates_per_step=1 / 16)
    agent.fit(
        env, epochs=2, steps_per_epoch=480, batch_size=4, seed=1, verbose=0,
        callbacks=[health],
    )  # fmt: skip
    steps = [record.step - 300 for record in health.history.records]
    # At 100 and 250, then each 300; a look ends with the execution after its date.
    assert steps == [0, 128, 272, 320, 624, 928]


def test_an_error_stops_the_run_where_it_is_to():
    stopped, env = compiled("own agent", exploration=EpsilonGreedy(0.0))
    health = Health(stop_on="error", verbose=False)
    stopped.fit(
        env, steps_per_epoch=160, batch_size=16, seed=1, verbose=0, callbacks=[health]
    )
    assert stopped.env_steps < 460


def test_a_warning_does_not_stop_where_only_errors_are_to():
    agent, env = compiled("own agent", warmup_steps=20)
    health = Health(stop_on="error", verbose=False)
    agent.fit(
        env, steps_per_epoch=160, batch_size=16, seed=1, verbose=0, callbacks=[health]
    )
    assert [(each.code, each.severity) for each in health.findings] == [
        ("learning_too_early", "warning")
    ]
    assert agent.env_steps == 180


@pytest.mark.parametrize("value", ["never", 1, "Error"])
def test_stop_on_is_checked(value):
    with pytest.raises(
        ValueError, match="`stop_on` must be 'error', 'warning' or None"
    ):
        Health(stop_on=value)


def test_every_is_checked():
    with pytest.raises(ValueError, match="`every` must be a whole number"):
        Health(every=0)


def test_a_finding_prints_three_lines_with_its_step():
    finding = Finding("code", "error", "layer 'a'", "It is so.", "Do that.").at(1_200)
    assert str(finding) == "ERROR code: layer 'a' (step 1,200)\n  It is so.\n  Do that."


def test_what_cannot_be_measured_does_not_disturb():
    class Untraceable(Sarsa):
        def train_step(self, batch):
            if tf.is_symbolic_tensor(batch.reward):
                raise NotImplementedError("only eagerly")
            return super().train_step(batch)

    agent = Untraceable(dense(8, 2), gamma=0.9)
    agent.compile(warmup_steps=100, run_eagerly=False, jit_compile=False)
    health = Health()
    agent._run.engine = None
    agent.run_eagerly = False
    with pytest.raises(NotImplementedError, match="only eagerly"):
        agent.fit(probes.CorridorProbe(), steps_per_epoch=4, batch_size=4, verbose=0,
                  callbacks=[health])  # fmt: skip
    assert health.problem == "NotImplementedError: only eagerly"
    assert "Nothing was measured: NotImplementedError" in health.report()


def test_eager_agents_and_dict_observations_are_measured():
    env = ScriptedEnv(as_dict=True)
    agent = DQN.from_env(env, hidden=(8,), seed=1)
    agent.compile(warmup_steps=50, run_eagerly=True, updates_per_step=0.25)
    health = Health(verbose=False)
    agent.fit(
        env, steps_per_epoch=32, batch_size=8, seed=1, verbose=0, callbacks=[health]
    )
    assert health.problem is None
    assert health.history.last.networks["network"].gradient_norm > 0


def test_the_report_can_be_pasted_and_the_plot_is_a_picture(tmp_path, monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    health = Health(every=50, verbose=False)
    assert "No measurement yet" in health.report()
    optimizer = keras.optimizers.Adam(1e-4, clipnorm=1.0)
    agent, env = compiled("DDPG", actor_optimizer=optimizer)
    agent.fit(
        env, steps_per_epoch=160, batch_size=16, seed=1, verbose=0, callbacks=[health],
        validation_data=MAKERS["DDPG"]()[1], validation_episodes=1,
    )  # fmt: skip
    text = health.report()
    for expected in ("keras 3.", "gamma=0.9", "clipnorm=1", "Findings: none", "mean Q"):
        assert expected in text, text
    for variable in agent.actor.trainable_variables:
        assert f"actor: {variable.path}" in text
    pytest.importorskip("matplotlib")
    health.plot(tmp_path / "health.png")
    content = (tmp_path / "health.png").read_bytes()
    assert content.startswith(b"\x89PNG")
    assert len(content) > 20_000


def test_a_plot_says_what_is_missing(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="Nothing was measured yet"):
        Health().plot(tmp_path / "health.png")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"keras-rl2x\[plot\]"):
        Health().plot(tmp_path / "health.png")


def test_spies_leave_no_trace():
    network = dense(4, 2)
    before = [dict(vars(layer)) for layer in network.layers]
    with watched(network.layers) as calls:
        network(np.ones((3, 5), np.float32))
    assert [call.layer for call in calls] == network.layers
    assert [set(vars(layer)) for layer in network.layers] == [set(b) for b in before]
    network(np.ones((3, 5), np.float32))
    assert len(calls) == 2


def test_a_finding_is_printed_once_also_in_a_second_fit(capsys):
    health = Health(every=50)
    agent, env = compiled("own agent", exploration=EpsilonGreedy(0.0))
    for _ in range(2):
        agent.fit(
            env, steps_per_epoch=64, batch_size=8, seed=1, verbose=0, callbacks=[health]
        )
    assert [record.step for record in health.history.records] == [300, 364]
    assert capsys.readouterr().out.count("ERROR exploration_gone") == 1
    assert [finding.code for finding in health.findings] == ["exploration_gone"]
    # Another agent begins anew.
    other = filled(*compiled("own agent"))
    health.set_model(other)
    health.on_train_begin()
    assert health.findings == []
    assert len(health.history.records) == 1
