"""Environments as they come: what people reported about them (section A)."""

import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest

from keras_rl2x.envs import make_atari
from tests.agents.contract import ROOT
from tests.cases.tools import SpaceEnv
from tests.cases.tools import fit
from tests.cases.tools import made
from tests.cases.tools import rows
from tests.helpers import CounterEnv
from tests.helpers import FixedEnv
from tests.helpers import ScriptedEnv


def test_the_tuple_of_reset_is_never_taken_for_an_observation():  # B001
    env = gym.make("CartPole-v1")
    agent = made(env, updates_per_step=0.02)
    fit(agent, env, steps=200)
    batch = rows(agent)
    for observation in (batch.observation, batch.next_observation):
        assert observation.shape == (500, 4)
        assert observation.dtype == np.float32
        assert np.abs(observation).max() < 10
    env.close()


class OldGym(CounterEnv):
    """Written for the gym of before 0.26."""

    def __init__(self, old_reset, old_step):
        super().__init__()
        self.old_reset, self.old_step = old_reset, old_step

    def reset(self, **kwargs):
        result = super().reset(**kwargs)
        return result[0] if self.old_reset else result

    def step(self, action):
        observation, reward, terminated, _, info = super().step(action)
        if self.old_step:
            return observation, reward, terminated, info
        return observation, reward, terminated, False, info


@pytest.mark.parametrize(
    ("old_reset", "old_step", "text"),
    [
        (True, False, r"`reset` of OldGym must return `\(observation, info\)`.*array"),
        (False, True, r"`step` of OldGym must return.*truncated.*tuple of 4 values"),
    ],
)
def test_an_env_of_the_old_gym_is_named_at_its_first_call(old_reset, old_step, text):
    # B002
    env = OldGym(old_reset, old_step)
    agent = made(env)
    with pytest.raises(ValueError, match=text):
        fit(agent, env)
    with pytest.raises(ValueError, match=text):
        agent.evaluate(env, episodes=1)
    assert env.steps <= 1
    assert len(agent.memory) == 0


def test_a_fresh_process_makes_an_atari_env_without_importing_ale_py():  # B004
    # … and importing the package has changed nothing of the process (B099).
    script = """
import random, os, sys
import gymnasium, numpy as np, tensorflow as tf, keras
states = (random.getstate(), np.random.get_state()[1].tobytes())
policy, environment = keras.config.dtype_policy(), dict(os.environ)
del os.environ["DISPLAY"]
before = set(sys.modules)
import keras_rl2x
assert tf.executing_eagerly()
assert keras.config.dtype_policy() is policy
assert (random.getstate(), np.random.get_state()[1].tobytes()) == states
assert {**os.environ, "DISPLAY": environment["DISPLAY"]} == environment
for name in ("ale_py", "matplotlib", "mujoco", "onnx", "pygame", "cv2"):
    assert name in before or name not in sys.modules, name
from keras_rl2x.envs import make_atari
env = make_atari("ALE/Pong-v5", num_envs=2)
observation, _ = env.reset(seed=1)
assert observation.shape == (2, 4, 84, 84)
print("made")
"""
    process = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", script],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT), "DISPLAY": ":9", "CUDA_VISIBLE_DEVICES": "-1"},
        timeout=120,
    )
    assert process.stdout.splitlines()[-1:] == ["made"], process.stderr


def test_without_ale_py_it_says_what_to_install(monkeypatch):  # B004
    for name in ("ale_py", "ale_py.vector_env", "ale_py.roms"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match="pip install ale-py"):
        make_atari("ALE/Pong-v5")


def test_nothing_is_rendered_unless_the_user_does_it():  # B006
    class Unrenderable(CounterEnv):
        def render(self):
            raise AssertionError("nobody asked for a picture")

    env = Unrenderable()
    agent = made(env)
    fit(agent, env, validation_data=Unrenderable(), validation_episodes=1)
    agent.evaluate(Unrenderable(), episodes=1, verbose=1)
    assert env.render_mode is None


def test_info_is_not_interpreted():  # B007
    info = {
        "flags": np.array([True, False]),
        "name": "level 3",
        "nothing": None,
        "nested": {"deep": {"x": np.arange(3)}},
        "episode": 3,
        "final_obs": "mine",
        "reward": np.nan,
        "object": object(),
    }
    agent = made(FixedEnv(info=info, reset_info=info))
    history = fit(agent, FixedEnv(info=info, reset_info=info)).history
    agent.evaluate(FixedEnv(info=info, terminated=True), episodes=1)
    assert np.isfinite(history["loss"]).all()


def test_an_env_that_reuses_its_array_leaves_different_rows():  # B011
    env = ScriptedEnv(reuse=True, lengths=(5,), endings=("terminated",))
    agent = made(env)
    fit(agent, env, steps=30)
    batch = rows(agent)
    time, after = batch.observation[:, 2], batch.next_observation[:, 2]
    assert set(time) == set(range(5))
    assert (after == time + 1).all()
    assert (batch.observation[:, 1] == batch.next_observation[:, 1]).all()


def test_an_episode_that_never_ends_cannot_hang_evaluation():  # B009, B066
    env = make_atari("ALE/Breakout-v5", fire_reset=False, sticky_actions=0.0)
    agent = made(env, capacity=32)
    # A policy that does nothing: the ball is never served.
    for variable in agent.network.trainable_variables[-4:]:
        variable.assign(variable * 0.0)
    with pytest.warns(UserWarning, match="1 of 1 evaluation episodes were cut"):
        numbers = agent.evaluate(env, episodes=1, max_steps=60, seed=1)
    assert numbers["episode_return"] == 0.0
    assert numbers["episode_length"] == 60.0
    env.close()


def test_a_game_that_waits_for_fire_is_started():  # B066
    env = make_atari("ALE/Breakout-v5", sticky_actions=0.0, noop_max=0)
    env.reset(seed=1)
    lives = []
    for _ in range(60):
        *_, info = env.step(np.zeros(1, int))
        lives.append(int(info["lives"][0]))
    assert min(lives) < max(lives), "no ball was lost: none was served"
    env.close()


def test_the_same_object_is_used_by_actions_of_the_spaces_own_type():  # B030
    env = SpaceEnv(gym.spaces.Box(-1, 1, (2,)), gym.spaces.Discrete(3))
    fit(made(env), env)
    assert {type(action) for action in env.taken} == {int}
