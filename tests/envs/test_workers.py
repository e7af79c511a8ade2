"""Environments in other processes that die, fail and hang."""

import multiprocessing
import os
import signal
import threading
import time

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from gymnasium.vector import AsyncVectorEnv

from keras_rl2x.envs import EnvStepper
from tests.cases.tools import fit
from tests.cases.tools import made
from tests.helpers import CounterEnv


class Failing(CounterEnv):
    """Does something bad in its seventh step, or its second reset."""

    def __init__(self, how=None):
        super().__init__(length=9)
        self.how, self.resets = how, 0

    def reset(self, **kwargs):
        self.resets += 1
        if self.resets == 2 and self.how == "raise in reset":
            raise LookupError("no more levels")
        return super().reset(**kwargs)

    def step(self, action):
        if self.total == 7:
            if self.how == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            elif self.how == "exit":
                os._exit(3)
            elif self.how == "hang":
                time.sleep(600)
            elif self.how == "raise":
                raise LookupError("the level is missing")
        return super().step(action)


def envs(how, shared_memory=True):
    """Three in processes; the second one is bad."""
    bad = [None, how, None]
    return AsyncVectorEnv(
        [lambda how=how: Failing(how) for how in bad], shared_memory=shared_memory
    )


def failure(env, kind, **kwargs):
    """Fits until it fails; the error, and the seconds that it took."""
    agent = made(env)
    start = time.monotonic()
    with pytest.raises(kind) as caught:
        fit(agent, env, steps=300, **kwargs)
    seconds = time.monotonic() - start
    assert env.closed
    assert multiprocessing.active_children() == []
    env.close()  # once more does no harm
    # The agent is as usable as before.
    steps = agent.env_steps
    assert len(agent.memory) <= steps + 2
    fit(agent, gym.vector.SyncVectorEnv([Failing] * 3), steps=30)
    assert agent.env_steps >= steps + 30
    return caught.value, seconds


@pytest.mark.parametrize("shared_memory", [True, False])
@pytest.mark.parametrize(
    ("how", "cause"), [("die", "killed by SIGKILL"), ("exit", "exit code 3")]
)
def test_a_worker_that_dies_is_named_and_no_other_stays(how, cause, shared_memory):
    error, seconds = failure(envs(how, shared_memory), RuntimeError)
    assert f"The process of env 1 ({cause}) of AsyncVectorEnv died" in str(error)
    assert seconds < 5


@pytest.mark.filterwarnings("ignore::UserWarning")  # gymnasium says it too
@pytest.mark.parametrize("how", ["raise", "raise in reset"])
def test_the_error_of_a_worker_arrives_and_no_other_stays(how):
    error, seconds = failure(envs(how), LookupError)
    assert "level" in str(error)
    assert error.__notes__ == ["Raised in env 1; all were stopped."]
    assert seconds < 5


@pytest.mark.parametrize("shared_memory", [True, False])
def test_a_worker_that_hangs_is_named_in_time(shared_memory):
    error, seconds = failure(envs("hang", shared_memory), TimeoutError, step_timeout=1)
    expected = "Env 1 (hangs) of AsyncVectorEnv did not answer within 1 s"
    assert expected in str(error)
    assert 1 < seconds < 5


@tf.function
def opponent(observation):
    return observation + 1.0


class Opponent(CounterEnv):
    """Asks a network of its own in each step."""

    def step(self, action):
        opponent(tf.zeros(2)).numpy()
        return super().step(action)


@pytest.mark.parametrize("start", ["spawn", "fork"])
def test_envs_that_use_tensorflow_need_processes_that_are_not_forked(start):
    opponent(tf.zeros(2))  # the parent's threads are what a forked process lacks
    env = AsyncVectorEnv([Opponent] * 2, context=start)
    agent = made(env)
    if start == "spawn":
        fit(agent, env, steps=30)
        assert agent.env_steps == 38
        env.close()
    else:
        with pytest.raises(TimeoutError, match=r'\(hangs\).*context="spawn"'):
            fit(agent, env, steps=30, step_timeout=1)


def test_a_single_env_that_hangs_is_stopped_in_time_and_the_clock_put_back():
    handler = signal.getsignal(signal.SIGALRM)
    env = Failing("hang")
    agent = made(env)
    start = time.monotonic()
    with pytest.raises(TimeoutError, match="did not answer within 0.5 s.*step_timeout"):
        fit(agent, env, steps=300, step_timeout=0.5)
    assert time.monotonic() - start < 4
    assert signal.getsignal(signal.SIGALRM) is handler
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert agent.env_steps == len(agent.memory) == 6


def test_a_slow_env_that_answers_in_time_is_left_alone():
    class Slow(CounterEnv):
        def step(self, action):
            time.sleep(0.01)
            return super().step(action)

    agent = made(Slow())
    fit(agent, Slow(), steps=20, step_timeout=0.3)
    assert agent.env_steps == 28


@pytest.mark.parametrize("value", [0, -1, "5", float("nan")])
def test_a_step_timeout_is_a_number_above_zero(value):
    env = CounterEnv()
    with pytest.raises((ValueError, TypeError), match="step_timeout"):
        fit(made(env), env, step_timeout=value)
    assert env.total == 0


def test_an_evaluation_in_which_a_worker_dies_ends_too():
    env = envs("die")
    agent = made(env)
    with pytest.raises(RuntimeError, match="env 1 .killed by SIGKILL"):
        agent.evaluate(env, episodes=6)
    assert env.closed
    assert multiprocessing.active_children() == []


def test_in_another_thread_there_is_no_clock_and_no_error():
    results = []

    def run():
        stepper = EnvStepper(CounterEnv())
        stepper.timeout = 0.001
        stepper.reset(1)
        results.append(stepper.step(np.array([0])))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert len(results) == 1


def test_ctrl_c_while_workers_work_ends_them():
    env = envs("hang")
    agent = made(env)
    timer = threading.Timer(
        1.0, signal.pthread_kill, [threading.main_thread().ident, signal.SIGINT]
    )
    timer.start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        fit(agent, env, steps=300)
    assert time.monotonic() - start < 4
    assert multiprocessing.active_children() == []
