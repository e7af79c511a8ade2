"""`evaluate` of every agent."""

import random

import keras
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from tests.agents.contract import digest
from tests.agents.contract import own_state


@pytest.fixture(scope="module")
def agent(case):
    """An agent that has learned a little and stands in the middle of an episode."""
    agent = case.compiled()
    agent.train_env = case.env(length=50)
    agent.fit(agent.train_env, steps_per_epoch=8, batch_size=8, seed=1, verbose=0)
    return agent


def env_state(env):
    return (env.steps, env.time, env.state.tobytes(), env.np_random.bit_generator.state)


def test_evaluation_touches_nothing_of_the_training(case, agent):
    python, numpy = random.getstate(), np.random.get_state()[1].tobytes()
    before, state = digest(agent), env_state(agent.train_env)
    explored = agent.train_env.action_space.np_random.bit_generator.state
    numbers = agent.evaluate(case.env(), episodes=4, epsilon=0.5)
    assert set(numbers) == {"episode_return", "episode_length", "episode_return_std"}
    assert digest(agent) == before
    assert env_state(agent.train_env) == state
    assert agent.train_env.action_space.np_random.bit_generator.state == explored
    assert random.getstate() == python
    assert np.random.get_state()[1].tobytes() == numpy


def test_training_goes_on_as_if_there_had_been_no_evaluation(case):
    weights = []
    for evaluated in (False, True):
        agent, env = case.compiled(), case.env()
        fit = {"steps_per_epoch": 12, "batch_size": 8, "verbose": 0}
        agent.fit(env, seed=1, **fit)
        if evaluated:
            agent.evaluate(case.env(), episodes=3, epsilon=0.3, seed=5)
            agent.evaluate(case.vector_env(2), episodes=3)
        agent.fit(env, **fit)
        weights.append(digest(agent))
    assert weights[0] == weights[1]


def test_it_reports_mean_and_deviation_and_on_request_the_list(case, agent):
    env = case.env()
    numbers = agent.evaluate(env, episodes=5, seed=2, return_episodes=True)
    returns, lengths = (list(column) for column in zip(*env.episodes[:5]))
    assert numbers["episode_returns"] == pytest.approx(returns)
    assert numbers["episode_lengths"] == lengths
    assert numbers["episode_return"] == pytest.approx(np.mean(returns))
    assert numbers["episode_length"] == pytest.approx(np.mean(lengths))
    assert numbers["episode_return_std"] == pytest.approx(np.std(returns))
    assert np.std(returns) > 0
    assert all(type(value) in (float, list) for value in numbers.values())


def test_the_same_seed_repeats_and_another_differs(case, agent):
    one, two, other = (
        agent.evaluate(case.env(), episodes=3, seed=seed, epsilon=0.5,
                       return_episodes=True)
        for seed in (3, 3, 4)
    )  # fmt: skip
    assert one == two
    assert one["episode_returns"] != other["episode_returns"]


def test_it_is_greedy_unless_told_otherwise(case, agent):
    env = case.env()
    agent.evaluate(env, episodes=4, seed=1)
    greedy = agent.act(np.array(env.seen))
    np.testing.assert_allclose(np.array(env.taken), greedy, rtol=1e-6)


def test_epsilon_is_the_share_of_random_actions(case, agent):
    env = case.env()
    agent.evaluate(env, episodes=60, seed=1, epsilon=0.5)
    taken, greedy = np.array(env.taken), agent.act(np.array(env.seen))
    differ = ~np.isclose(taken, greedy).reshape(len(taken), -1).all(axis=1)
    # A random pick out of three may be the greedy one.
    share = 0.5 * (2 / 3 if case.actions == "discrete" else 1.0)
    assert len(taken) > 200
    assert differ.mean() == pytest.approx(share, abs=0.1)


def test_an_endless_episode_is_cut_with_a_finite_number_and_a_warning(case, agent):
    with pytest.warns(UserWarning, match="2 of 2 evaluation episodes.*20 steps"):
        numbers = agent.evaluate(
            case.env(length=10**9), episodes=2, max_steps=20, seed=1
        )
    assert numbers["episode_length"] == 20
    assert np.isfinite(numbers["episode_return"])


def test_the_cut_of_one_env_of_a_vector_does_not_hang_the_others(case, agent):
    env = case.vector_env(2, length=[3, 10**9])
    with pytest.warns(UserWarning, match="evaluation episodes were cut"):
        numbers = agent.evaluate(
            env, episodes=4, max_steps=12, seed=1, return_episodes=True
        )
    assert sorted(numbers["episode_lengths"]) == [3, 3, 12, 12]


@pytest.mark.parametrize(
    "mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED]
)
def test_every_env_of_a_vector_plays_its_share(case, agent, mode):
    """Taking the first episodes that end would favour short ones."""
    lengths = [1, 2, 4, 8]
    env = case.vector_env(4, mode, length=lengths)
    numbers = agent.evaluate(env, episodes=8, seed=1, return_episodes=True)
    assert sorted(numbers["episode_lengths"]) == sorted(2 * lengths)
    returns = sorted(total for each in env.envs for total, _ in each.episodes[:2])
    assert sorted(numbers["episode_returns"]) == pytest.approx(returns)


def test_shares_differ_by_one_at_most(case, agent):
    env = case.vector_env(4, length=[1, 2, 4, 8])
    numbers = agent.evaluate(env, episodes=6, seed=1, return_episodes=True)
    counts = [numbers["episode_lengths"].count(length) for length in (1, 2, 4, 8)]
    assert sum(counts) == 6
    assert max(counts) - min(counts) == 1


def test_hooks_fire_with_an_episode_per_batch(case, agent):
    calls = []
    hooks = {
        f"on_test_{what}": lambda *args, what=what: calls.append((what, *args[:-1]))
        for what in ("begin", "end", "batch_begin", "batch_end")
    }
    callback = keras.callbacks.Callback()
    for name, function in hooks.items():
        setattr(callback, name, lambda *a, f=function, logs=None: f(*a, logs))
    agent.evaluate(case.env(), episodes=2, callbacks=[callback])
    names = [name for name, *_ in calls]
    assert names == [
        "begin", "batch_begin", "batch_end", "batch_begin", "batch_end", "end",
    ]  # fmt: skip


def test_it_prints_nothing_by_default_and_a_bar_when_asked(case, agent, capfd):
    capfd.readouterr()
    agent.evaluate(case.env(), episodes=2)
    assert capfd.readouterr().out == ""
    agent.evaluate(case.env(), episodes=2, verbose=1)
    assert "2/2" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"episodes": 0}, "`episodes`"),
        ({"episodes": 1.5}, "`episodes`"),
        ({"epsilon": 1.1}, "`epsilon`"),
        ({"epsilon": -0.1}, "`epsilon`"),
        ({"epsilon": float("nan")}, "`epsilon`"),
        ({"max_steps": 0}, "`max_steps`"),
        ({"seed": "one"}, "`seed`"),
    ],
)
def test_a_wrong_argument_is_named_before_the_env_is_touched(
    case, agent, arguments, text
):
    env = case.env()
    with pytest.raises((TypeError, ValueError), match=text):
        agent.evaluate(env, **arguments)
    assert env.seeds == []


def test_the_training_env_may_be_evaluated_and_begins_a_new_episode_then(case):
    agent, env = case.light(), case.env(length=50)
    agent.fit(env, steps_per_epoch=8, batch_size=8, seed=1, verbose=0)
    agent.evaluate(env, episodes=1)
    resets = len(env.seeds)
    agent.fit(env, steps_per_epoch=8, batch_size=8, verbose=0)
    assert len(env.seeds) == resets + 1
    # No row joins the two episodes.
    rows = agent.memory.sample(500, rng=np.random.default_rng(0))
    time, after = rows.observation[0, :, 2], rows.next_observation[0, :, 2]
    assert np.allclose(after - time, 0.1)


def test_it_needs_no_compile_and_binds_the_spaces(case):
    agent = case.from_networks(
        lambda name, outputs, activation, is_pair: _dense(outputs, activation, is_pair)
    )
    assert agent.observation_space is None
    agent.evaluate(case.env(), episodes=1)
    assert agent.observation_space == case.env().observation_space
    assert agent.action_space == case.env().action_space
    assert own_state(agent)["progress"]["env_steps"] == 0


def _dense(outputs, activation, is_pair):
    inputs = [keras.Input((3,)), keras.Input((2,))] if is_pair else keras.Input((3,))
    x = keras.layers.Concatenate()(inputs) if is_pair else inputs
    return keras.Model(inputs, keras.layers.Dense(outputs, activation)(x))
