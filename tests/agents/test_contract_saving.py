"""Saving and loading of every agent, here and in a new process."""

import json
import os
import pathlib
import subprocess
import sys
import warnings
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from keras_rl2x import ReplayMemory
from keras_rl2x.callbacks import TargetUpdate
from tests.agents.contract import AGENTS
from tests.agents.contract import OBSERVATIONS
from tests.agents.contract import ROOT
from tests.agents.contract import account
from tests.agents.contract import digest
from tests.agents.contract import own_state
from tests.agents.contract import pairs
from tests.agents.contract import same
from tests.agents.contract import values


def trained(case, path):
    """An agent with nothing at its default, saved after a `fit`."""
    agent = case.compile(
        case.make(gamma=0.9, n_step=2, name="hero"),
        **{
            name: keras.optimizers.Adam(0.01 / (i + 1), clipnorm=1.0)
            for i, name in enumerate(case.optimizers)
        },
        loss="mse",
        memory=ReplayMemory(500),
        updates_per_step=0.75,
    )
    env = case.env()
    agent.fit(
        env, epochs=2, steps_per_epoch=15, batch_size=8, seed=1, verbose=0,
        callbacks=[TargetUpdate(period=11)],
    )  # fmt: skip
    agent.save(path)
    return agent


@pytest.fixture(scope="session")
def everything(tmp_path_factory):
    """All agents saved here, loaded and trained on in one other process."""
    directory = tmp_path_factory.mktemp("saved")
    paths = {c: str(directory / f"{c.cls.__name__}.keras") for c in AGENTS}
    agents = {c.cls: trained(c, path) for c, path in paths.items()}
    process = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.agents.saving_run",
            *(f"{path},{c.actions}" for c, path in paths.items()),
        ],
        capture_output=True,
        text=True,
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=300,
    )
    assert process.returncode == 0, process.stderr
    results = json.loads(process.stdout.splitlines()[-1])
    return {
        c.cls: SimpleNamespace(
            agent=agents[c.cls],
            path=path,
            found=results[path][0],
            after=results[path][1],
        )
        for c, path in paths.items()
    }


@pytest.fixture
def saved(case, everything):
    return everything[case.cls]


def test_a_new_process_finds_everything_as_it_was(saved):
    expected = json.loads(json.dumps(account(saved.agent)))
    expected["rows"] = 0  # the memory's content is not part of the file
    found = saved.found
    assert set(found) == set(expected)
    for name, value in expected.items():
        assert found[name] == value, name
    assert found["name"] == "hero"
    assert found["state"]["progress"]["env_steps"] == 46
    assert found["target_update"] == {"tau": None, "period": 11}
    assert all(steps == 22 for _, steps, _ in found["optimizers"].values())


def test_training_goes_on_in_the_new_process(saved):
    after = saved.after
    # 16 steps refill the memory, 8 are trained on with 6 updates.
    assert after["env_steps"] == 46 + 16 + 8
    assert after["gradient_steps"] == 22 + 6
    assert after["iterations"] == 22 + 6
    assert np.isfinite(after["loss"]).all()
    for name, column in after["exploration"].items():
        assert column == [saved.agent.exploration.values(70)[name]]


def test_what_was_compiled_comes_back(saved):
    agent = keras.saving.load_model(saved.path)
    for name in saved.agent.trained.values():
        one, other = getattr(saved.agent, name), getattr(agent, name)
        assert one.get_config() == other.get_config()
    one, other = saved.agent.get_compile_config(), agent.get_compile_config()
    assert one == other
    assert one["updates_per_step"] == 0.75
    assert one["loss"] == "mse"


def test_the_next_actions_explored_and_rows_sampled_are_the_same(case, saved):
    """The random streams go on where they stood."""
    agent = keras.saving.load_model(saved.path)
    observations = case.transitions(4).observation
    before = own_state(saved.agent)
    one = saved.agent.explore(observations, 100)
    assert np.array_equal(one, agent.explore(observations, 100))
    assert own_state(agent) == own_state(saved.agent) != before


def test_saving_changes_nothing_and_training_goes_on_alike(case, tmp_path):
    sums = []
    for save in (False, True):
        agent, env = case.compiled(run_eagerly=True), case.env()
        fit = {"steps_per_epoch": 4, "batch_size": 8, "verbose": 0}
        agent.fit(env, seed=1, **fit)
        if save:
            before = digest(agent)
            agent.save(tmp_path / "agent.keras")
            agent.save_weights(tmp_path / "agent.weights.h5")
            assert digest(agent) == before
        agent.fit(env, **fit)
        sums.append(digest(agent))
    assert sums[0] == sums[1]


# ------------------------------------------------------------------------ weights


def test_weights_restore_all_networks_optimizers_and_counters(case, saved, tmp_path):
    saved.agent.save_weights(tmp_path / "agent.weights.h5")
    other = case.compile(
        case.make(seed=8, gamma=0.9, n_step=2),
        **{name: keras.optimizers.Adam(0.01) for name in case.optimizers},
    )
    assert not same(values(other), values(saved.agent))
    other.load_weights(tmp_path / "agent.weights.h5")
    one, two = account(saved.agent), account(other)
    for name in ("networks", "actions", "state"):
        assert one[name] == two[name], name
    for name, (_, steps, _) in two["optimizers"].items():
        assert steps == one["optimizers"][name][1] == 22


def test_weights_of_another_architecture_change_nothing(case, tmp_path):
    agent = case.compiled(run_eagerly=True)
    agent.fit(case.env(), steps_per_epoch=8, batch_size=8, seed=1, verbose=0)
    before = digest(agent)
    others = {
        "wider": case.make(hidden=(20,)),
        "deeper": case.make(hidden=(16, 16)),
        "shallower": case.make(hidden=()),
    }
    for name, other in others.items():
        case.compile(other).save_weights(tmp_path / f"{name}.weights.h5")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Keras warns of what it leaves out
            with pytest.raises((ValueError, KeyError)):
                agent.load_weights(tmp_path / f"{name}.weights.h5")
        assert digest(agent) == before, name


def test_a_damaged_or_missing_file_changes_nothing(case, tmp_path):
    agent = case.compiled()
    agent.save_weights(tmp_path / "good.weights.h5")
    content = (tmp_path / "good.weights.h5").read_bytes()
    before = digest(agent)
    for name, part in {
        "empty": b"",
        "half": content[: len(content) // 2],
        "text": b"not a file of weights",
    }.items():
        path = tmp_path / f"{name}.weights.h5"
        path.write_bytes(part)
        with pytest.raises((ValueError, OSError)):
            agent.load_weights(path)
        assert digest(agent) == before, name
    with pytest.raises((ValueError, OSError), match=r"no\.weights\.h5"):
        agent.load_weights(tmp_path / "no.weights.h5")


def test_weights_need_known_spaces(case, tmp_path):
    agent = case.from_networks(
        lambda name, outputs, *_: keras.Sequential([keras.layers.Dense(outputs)])
    )
    with pytest.raises(ValueError, match="from_env"):
        agent.load_weights(tmp_path / "any.weights.h5")


def test_an_old_file_name_gets_keras_own_advice(case, tmp_path):
    agent = case.compiled()
    with pytest.raises(ValueError, match=r"\.weights\.h5"):
        agent.save_weights(tmp_path / "dqn_weights.h5f", overwrite=True)


# ----------------------------------------------------------------------- details


def test_an_agent_that_was_never_compiled_is_saved_too(case, tmp_path):
    agent = case.make()
    agent.save(tmp_path / "agent.keras")
    loaded = keras.saving.load_model(tmp_path / "agent.keras")
    assert np.array_equal(loaded.act(OBSERVATIONS), agent.act(OBSERVATIONS))
    case.compile(loaded, run_eagerly=True)
    loaded.fit(case.env(), steps_per_epoch=8, batch_size=8, seed=1, verbose=0)


def test_an_agent_that_was_never_fitted_keeps_what_it_was_compiled_with(case, tmp_path):
    agent = case.compiled(run_eagerly=True)
    agent.save(tmp_path / "agent.keras")
    loaded = keras.saving.load_model(tmp_path / "agent.keras")
    assert account(loaded) == account(agent)
    loaded.fit(case.env(), steps_per_epoch=8, batch_size=8, seed=1, verbose=0)
    assert loaded.env_steps == 24


def test_a_truncated_file_is_an_error_that_names_it(case, saved, tmp_path):
    content = pathlib.Path(saved.path).read_bytes()
    path = tmp_path / "cut.keras"
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises((ValueError, OSError), match=r"cut\.keras"):
        keras.saving.load_model(path)


def with_lambda(name, outputs, activation, is_pair):
    inputs = [keras.Input((3,)), keras.Input((2,))] if is_pair else keras.Input((3,))
    x = keras.layers.Concatenate()(inputs) if is_pair else inputs
    x = keras.layers.Lambda(lambda x: x * 2.0, output_shape=x.shape[1:])(x)
    return keras.Model(inputs, keras.layers.Dense(outputs, activation)(x))


def test_loading_runs_no_code_of_the_file(case, tmp_path):
    """Keras refuses `Lambda` layers of a file; we must not undo that."""
    one, other = case.from_networks(with_lambda), case.from_networks(with_lambda)
    agent = case.cls(
        **{name: getattr(one, name) for name in case.cls.trained},
        **{target: getattr(other, n) for n, target in case.cls.targets.items()},
    )
    env = case.env()
    agent.bind(env.observation_space, env.action_space)
    agent.save(tmp_path / "agent.keras")
    with pytest.raises(ValueError, match="Lambda"):
        keras.saving.load_model(tmp_path / "agent.keras")


def test_a_lambda_layer_can_be_trained(case):
    agent = case.compile(case.from_networks(with_lambda), run_eagerly=True)
    agent.fit(case.env(), steps_per_epoch=8, batch_size=8, seed=1, verbose=0)
    for target, network in pairs(agent):
        assert not {id(v) for v in target.variables} & {
            id(v) for v in network.variables
        }
