"""`agent.diagnose(env)` sees what is wrong before training, and changes nothing."""

import gymnasium as gym
import keras
import numpy as np
import pytest

from keras_rl2x import DDPG
from keras_rl2x import DQN
from keras_rl2x.envs import probes
from tests.helpers import FixedEnv


@pytest.fixture(autouse=True)
def clear():
    yield
    keras.backend.clear_session()


def made(env, **kwargs):
    kind = DQN if isinstance(env.action_space, gym.spaces.Discrete) else DDPG
    agent = kind.from_env(env, hidden=(8,), gamma=0.9, seed=1)
    agent.compile(warmup_steps=300, jit_compile=False, **kwargs)
    return agent


def fitted(agent, env, seed):
    agent.fit(env, steps_per_epoch=32, batch_size=8, seed=seed, verbose=0)


def test_training_goes_on_as_if_nothing_had_happened():
    agents = []
    for diagnosed in (False, True):
        env = probes.CorridorProbe()
        agent = made(env)
        fitted(agent, env, seed=3)
        session, streams = agent._run.session, agent._run.streams.get_state()
        if diagnosed:
            assert agent.diagnose(probes.CorridorProbe()).ok
            assert agent._run.session is session
            assert agent._run.streams.get_state() == streams
        fitted(agent, env, seed=None)
        agents.append(agent)
    one, other = agents
    for left, right in zip(one.variables, other.variables, strict=True):
        np.testing.assert_array_equal(left.numpy(), right.numpy())
    optimizers = zip(one.optimizer.variables, other.optimizer.variables, strict=True)
    for left, right in optimizers:
        np.testing.assert_array_equal(left.numpy(), right.numpy())
    assert vars(one.progress) == vars(other.progress)
    assert len(one.memory) == len(other.memory)


def test_the_table_has_what_a_run_will_cost():
    env = gym.make("Pendulum-v1")
    agent = made(env)
    report = agent.diagnose(env, steps=250)
    rows = dict(report.rows)
    assert rows["episodes"] == "1 of 200 steps on average (0 terminated, 1 truncated)"
    assert rows["memory"].endswith("GiB for 100,000 steps")
    agent.fit(env, steps_per_epoch=1, batch_size=8, seed=1, verbose=0)
    stated = float(rows["memory"].split()[0])
    assert stated == pytest.approx(agent.memory.nbytes / 2**30, rel=0.02)
    assert f"{agent.critic.count_params():,} parameters" in rows["`critic`"]
    assert "steps/s" in rows["speed"]
    lines = str(report).split("\n")
    assert len(lines) == len(report.rows) + 2
    assert lines[-1] == "Findings: none"


def test_an_env_that_breaks_its_contract_is_named():
    nan = FixedEnv(observation=np.full(3, np.nan, np.float32))
    (finding,) = made(nan).diagnose(nan).findings
    assert (finding.code, finding.severity) == ("refused", "error")
    assert "FixedEnv" in finding.where
    assert "returned nan at step 1" in finding.evidence


def test_what_the_env_does_beyond_its_spaces_is_a_warning():
    env = FixedEnv(observation=np.full(3, 20.0, np.float32), terminated=True)
    findings = made(env).diagnose(env, steps=20).findings
    assert findings[0].code == "environment_warns"
    assert findings[0].severity == "warning"


def test_a_network_that_does_not_fit_is_refused():
    agent = DQN(keras.Sequential([keras.layers.Dense(7)]))
    agent.compile()
    (finding,) = agent.diagnose(probes.CorridorProbe()).findings
    assert finding.code == "refused"
    assert "one Q-value per action" in finding.evidence


def test_it_needs_compile():
    agent = DQN.from_env(probes.CorridorProbe(), hidden=(4,))
    with pytest.raises(ValueError, match="Call `compile"):
        agent.diagnose(probes.CorridorProbe())


def test_the_next_fit_begins_an_episode_where_its_own_env_was_used():
    env = probes.CorridorProbe()
    agent = made(env, run_eagerly=True)
    fitted(agent, env, seed=3)
    agent.diagnose(env, steps=10)
    fitted(agent, env, seed=None)  # would step after an end else
    assert agent.env_steps == 300 + 2 * 32
