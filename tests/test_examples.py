"""Every example runs with a small budget, and does what its docstring says."""

import csv
import json
import re
import runpy
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_rl2x import DQN
from keras_rl2x import Agent

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture
def run(monkeypatch, tmp_path, capsys):
    """Runs an example in an empty directory; returns its globals and its output."""
    monkeypatch.chdir(tmp_path)
    compile_agent = Agent.compile

    def compile_without_xla(self, *arguments, **kwargs):
        # Takes as long to compile as a run of this size takes.
        compile_agent(self, *arguments, **{"jit_compile": False, **kwargs})

    monkeypatch.setattr(Agent, "compile", compile_without_xla)

    def run_example(name, *arguments):
        path = str(EXAMPLES / name)
        monkeypatch.setattr(sys, "argv", [path, *map(str, arguments)])
        capsys.readouterr()
        names = runpy.run_path(path, run_name="__main__")
        return names, capsys.readouterr().out

    return run_example


def rows(path):
    with open(path) as file:
        return list(csv.DictReader(file))


def observations(agent, count=16, seed=0):
    shape = (count, *agent.observation_space.shape)
    return np.random.default_rng(seed).uniform(-0.2, 0.2, shape).astype(np.float32)


def test_dqn_cartpole_trains_saves_and_restores_the_same_policy(run):
    names, out = run("dqn_cartpole.py", "--epochs", 2, "--steps-per-epoch", 100)
    agent, restored = names["agent"], names["restored"]
    assert Path("cartpole.keras").is_file()
    assert restored.env_steps == agent.env_steps == 1_200
    states = observations(agent)
    np.testing.assert_array_equal(restored(states), agent(states))
    printed = re.search(r"Greedy return after each epoch: (.*)", out)[1].split()
    returns = names["history"].history["val_episode_return"]
    assert printed == [f"{value:.0f}" for value in returns]
    assert len(returns) == 2
    assert f"{names['score']['episode_return']:.1f} ± " in out


def test_dqn_atari_prints_its_protocol_and_goes_on_from_a_checkpoint(run):
    small = ("--warmup", 64, "--steps-per-epoch", 64, "--capacity", 1_000)
    small += ("--envs", 2, "--eval-episodes", 1)
    names, out = run("dqn_atari.py", "--steps", 192, *small)
    assert re.search(r"sticky actions +0\.25", out)
    assert re.search(r"reported score +raw game score", out)
    assert names["agent"].observation_space.shape == (4, 84, 84)
    assert -21 <= names["score"]["episode_return"] <= 21
    assert (names["agent"].env_steps, names["agent"].gradient_steps) == (192, 32)
    log = rows("runs/atari/log.csv")
    assert [row["epoch"] for row in log] == ["0", "1"]

    names, out = run("dqn_atari.py", "--steps", 256, *small)
    assert (names["agent"].env_steps, names["agent"].gradient_steps) == (256, 48)
    assert len(names["agent"].memory) == 256
    assert "Filling the memory" not in out
    log = rows("runs/atari/log.csv")
    assert [row["epoch"] for row in log] == ["0", "1", "2"]
    assert all(float(row["loss"]) > 0 for row in log)
    saved = sorted(path.name for path in Path("runs/atari/checkpoints").iterdir())
    assert saved == ["checkpoint-000000000192", "checkpoint-000000000256"]


def test_ddpg_pendulum_prints_the_torques_of_its_actor(run):
    names, out = run(
        "ddpg_pendulum.py",
        *("--epochs", 2, "--steps-per-epoch", 100, "--batch-size", 32),
    )
    agent = names["agent"]
    assert (agent.env_steps, agent.gradient_steps) == (1_200, 200)
    torques = [float(text) for text in re.findall(r"torque ([+-]\d\.\d\d) N", out)]
    expected = agent.act(names["positions"])[:, 0]
    np.testing.assert_allclose(torques, expected, atol=0.0051)
    assert np.abs(torques).max() <= 2.0
    assert len(torques) == 4
    # The worst possible return of 200 steps is about -16.3 a step.
    assert -3_300 < names["score"]["episode_return"] < 0


def test_ddpg_halfcheetah_keeps_its_best_agent_and_a_log(run):
    pytest.importorskip("mujoco")
    names, out = run(
        "ddpg_halfcheetah.py",
        *("--steps", 240, "--warmup", 80, "--steps-per-epoch", 80, "--envs", 4),
        *("--batch-size", 16, "--eval-episodes", 1),
    )
    assert "240 steps, 160 gradient steps" in out
    returns = names["history"].history["val_episode_return"]
    assert len(returns) == len(rows("runs/halfcheetah/log.csv")) == 2
    best = keras.saving.load_model("runs/halfcheetah/best.keras")
    assert best.env_steps == 80 * (2 + int(np.argmax(returns)))
    assert best.act(observations(best)).shape == (16, 6)
    assert f"after {best.env_steps} steps: mean return" in out


def test_custom_environment_is_learned(run):
    names, out = run("custom_environment.py", "--epochs", 4, "--steps-per-epoch", 1_000)
    before, after = names["before"], names["after"]
    assert before["episode_return"] < 0 < after["episode_return"]
    assert f"after: mean return {after['episode_return']:6.2f}" in out


def test_custom_network_learns_around_a_frozen_trunk(run):
    names, out = run("custom_network.py", "--epochs", 2, "--steps-per-epoch", 50)
    assert "the frozen trunk is unchanged: True" in out
    assert "387 of 17,539 weights learn" in out
    agent = names["agent"]
    assert agent.network is names["new_network"]
    paths = {variable.path for variable in agent.optimizer._trainable_variables}
    assert paths == {variable.path for variable in agent.network.trainable_variables}
    # What may learn did: after 100 steps it is no longer equal to its slow copy.
    head, slow = agent.network.layers[-1], agent.target_network.layers[-1]
    for weight, follower in zip(head.weights, slow.weights, strict=True):
        assert not np.array_equal(weight, follower)


def test_custom_agent_computes_the_munchausen_target(run):
    names, _ = run("custom_agent.py", "--epochs", 1, "--steps-per-epoch", 50)
    agent = names["agent"]
    assert type(agent) is names["MunchausenDQN"]
    assert agent.env_steps == 1_050
    # By the paper's equations, in NumPy, on one minibatch.
    agent.fit(names["env"], epochs=1, steps_per_epoch=32, seed=2, verbose=0)
    batch = agent.memory.sample(32, gamma=0.99, rng=np.random.default_rng(1))
    s, a, r, discount, s1 = (np.asarray(leaf[0]) for leaf in batch[:5])
    tau, alpha, floor = agent.temperature, agent.scale, agent.floor

    def log_policy(q):
        q = q / tau
        q = q - q.max(axis=1, keepdims=True)
        return q - np.log(np.exp(q).sum(axis=1, keepdims=True))

    q = np.asarray(agent.target_network(s), np.float64)
    q1 = np.asarray(agent.target_network(s1), np.float64)
    rows_ = np.arange(len(a))
    bonus = np.clip(tau * log_policy(q)[rows_, a], floor, 0.0)
    log_pi = log_policy(q1)
    soft = (np.exp(log_pi) * (q1 - tau * log_pi)).sum(axis=1)
    target = r + alpha * bonus + discount * soft
    error = np.abs(target - np.asarray(agent.network(s))[rows_, a])
    huber = np.where(error < 1, error**2 / 2, error - 0.5).mean()
    learned = agent.train_on_batch(batch)
    assert learned["loss"] == pytest.approx(huber, rel=1e-3)
    assert learned["munchausen_bonus"] == pytest.approx(bonus.mean(), rel=1e-3)
    assert bonus.min() < -0.001


def test_keras_callbacks_stop_slow_down_log_and_keep_the_best(run):
    pytest.importorskip("tensorboard")
    names, out = run(
        "keras_callbacks.py",
        *("--epochs", 12, "--steps-per-epoch", 40, "--patience", 2),
    )
    log = rows("runs/callbacks/log.csv")
    returns = [float(row["val_episode_return"]) for row in log]
    rates = [float(row["learning_rate"]) for row in log]
    best = int(np.argmax(returns))
    assert len(log) == best + 1 + 2 < 12, "EarlyStopping did not stop after 2 epochs"
    assert rates[0] == pytest.approx(1e-4)
    assert rates[-1] < rates[best], "ReduceLROnPlateau did not lower the rate"
    saved = keras.saving.load_model("runs/callbacks/best.keras")
    assert saved.env_steps == 1_000 + 40 * (best + 1)
    states = observations(saved)  # `restore_best_weights` brought them back
    np.testing.assert_array_equal(saved(states), names["agent"](states))
    assert list(Path("runs/callbacks/board/train").glob("events*"))
    assert f"Best of {len(log)} epochs: {max(returns):.1f}" in out


def test_watch_agent_writes_a_moving_picture(run, tmp_path):
    pytest.importorskip("pygame")
    image = pytest.importorskip("PIL.Image")
    cartpole = pytest.importorskip("gymnasium").make("CartPole-v1")
    agent = DQN.from_env(cartpole, hidden=(8,), seed=1)
    agent.compile()
    agent.save(tmp_path / "cartpole.keras")
    names, out = run("watch_agent.py", "--gif", "--max-steps", 30, "--every", 2)
    length = int(names["episode_return"])  # CartPole pays 1 a step
    with image.open("runs/video/episode.gif") as gif:
        assert gif.size == (600, 400)
        first, milliseconds = np.asarray(gif.convert("L")), 0
        for frame in range(gif.n_frames):  # pictures that are alike share one
            gif.seek(frame)
            milliseconds += gif.info["duration"]
        last = np.asarray(gif.convert("L"))
    # Every other step of an env that says 50 frames a second.
    assert milliseconds == -(-length // 2) * 40
    assert first.std() > 0, "an empty picture"
    assert not np.array_equal(first, last), "nothing moves"
    assert f"Return of the episode: {length}" in out


def test_serve_policy_answers_like_act_and_refuses_nonsense(run):
    names, out = run("serve_policy.py", "--epochs", 1, "--steps-per-epoch", 50)
    assert "Equal to `agent.act`: True" in out
    expected = names["agent"](names["observations"])
    np.testing.assert_allclose(names["answer"]["q_values"], expected, atol=1e-5)

    server = names["serve"]("runs/policy", 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://localhost:{server.server_port}"
    try:
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(url, b'{"observation": [[1, 2]]}', timeout=10)
        with refused.value as response:
            assert response.status == 400
            assert json.load(response)["error"]
        good = json.dumps({"observation": [[0.0, 0.0, 0.1, 0.0]]}).encode()
        with urllib.request.urlopen(url, good, timeout=10) as response:
            action = json.load(response)["action"]
        assert action == [names["agent"].act(np.array([0, 0, 0.1, 0]))]
    finally:
        server.shutdown()
        server.server_close()


def test_tune_hyperparameters_prunes_and_names_the_best(run):
    optuna = pytest.importorskip("optuna")
    names, out = run(
        "tune_hyperparameters.py",
        *("--trials", 4, "--epochs", 2, "--steps-per-epoch", 40),
        *("--startup-trials", 1),
    )
    trials = names["study"].trials
    states = [trial.state for trial in trials]
    assert states[0] == optuna.trial.TrialState.COMPLETE
    assert optuna.trial.TrialState.PRUNED in states
    finished = [t.value for t in trials if t.state == optuna.trial.TrialState.COMPLETE]
    assert f"Best mean return {max(finished):.1f}" in out
    assert f"4 trials, {states.count(optuna.trial.TrialState.PRUNED)} of them" in out


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda p: p.name)
def test_examples_are_short_and_say_what_they_show(path):
    text = path.read_text()
    assert text.startswith('"""'), "no docstring"
    assert len(text.splitlines()) <= 85
    assert f"def test_{path.stem}_" in Path(__file__).read_text(), "not run by a test"
