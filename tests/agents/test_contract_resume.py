"""A resumed run computes what the uninterrupted one would have, bit for bit."""

import hashlib
import json
import os
import random
import shutil
import signal
import threading

import gymnasium as gym
import keras
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from keras_rl2x import DQN
from keras_rl2x import ReplayMemory
from keras_rl2x import plain
from keras_rl2x.callbacks import Checkpoint
from keras_rl2x.callbacks import StopAtReturn
from keras_rl2x.exploration import EpsilonGreedy
from keras_rl2x.exploration import OrnsteinUhlenbeckNoise
from tests.agents.contract import AGENTS
from tests.agents.contract import digest
from tests.agents.contract import optimizer_values

FIT = {"steps_per_epoch": 20, "batch_size": 8, "verbose": 0}
MODES = [
    AutoresetMode.NEXT_STEP,
    AutoresetMode.SAME_STEP,
    AutoresetMode.DISABLED,
]
SCHEDULE = keras.optimizers.schedules.ExponentialDecay(0.9, 30, 0.5)


def whole(agent):
    """Sums over everything that decides what comes next, by part."""
    memory = agent.memory
    parts = {
        "variables": [variable.numpy() for variable in agent.variables],
        "optimizers": optimizer_values(agent),
        "memory": list(memory._used_arrays().values()),
        "counters": [memory._row, memory._count, memory._oldest],
    }
    sums = {}
    for name, arrays in parts.items():
        total = hashlib.sha256()
        for array in arrays:
            total.update(np.ascontiguousarray(array).tobytes())
        sums[name] = total.hexdigest()
    store = {}
    agent.save_own_variables(store)
    sums["own"] = json.loads(store["state"].tobytes())
    for name, part in agent.run_state().items():
        text, data = plain.freeze(part)
        sums[name] = (text, data.tobytes())
    return sums


def assert_same(one, other):
    for name, value in one.items():
        assert value == other[name], name


class Drawing(gym.Wrapper):
    """Draws from global random numbers, as environments should not."""

    def step(self, action):
        observation, reward, terminated, truncated, info = self.env.step(action)
        noise = random.random() + np.random.rand()
        return observation, reward + noise, terminated, truncated, info


def stock_callbacks(directory):
    """Callbacks of Keras that remember something."""
    watched = {"monitor": "val_episode_return", "mode": "max"}
    return [
        keras.callbacks.EarlyStopping(patience=3, restore_best_weights=True, **watched),
        keras.callbacks.ReduceLROnPlateau(patience=1, factor=0.7, **watched),
        keras.callbacks.ModelCheckpoint(
            directory / "best.weights.h5",
            save_best_only=True,
            save_weights_only=True,
            **watched,
        ),
        keras.callbacks.LearningRateScheduler(lambda epoch, rate: 0.95 * rate),
        keras.callbacks.CSVLogger(directory / "log.csv", append=True),
        StopAtReturn(1e9),
    ]


def settings(case):
    """Exploration, memory and metrics that all remember something."""
    noise = {
        "discrete": EpsilonGreedy(SCHEDULE),
        "continuous": OrnsteinUhlenbeckNoise(SCHEDULE),
    }
    return {
        "exploration": noise[case.actions],
        "memory": ReplayMemory(50),
        "metrics": [keras.metrics.MeanAbsoluteError(name="mae")],
        "run_eagerly": True,
    }


def learning(case, seed):
    agent = case.make(seed, hidden=(8,), n_step=3)
    adam = {name: keras.optimizers.Adam(0.01) for name in case.optimizers}
    return case.compile(agent, updates_per_step=0.2, **adam, **settings(case))


def fit(case, agent, env, directory, *, epochs=4, resume=None, callbacks=()):
    return agent.fit(
        env, epochs=epochs, seed=1, resume=resume, validation_data=case.env(),
        validation_episodes=2, **FIT,
        callbacks=[Checkpoint(directory / "run", every=8, keep=50), *callbacks],
    )  # fmt: skip


def environment(case, kind):
    if kind == "single":
        return Drawing(gym.wrappers.TimeLimit(case.env(), 6))
    return case.vector_env(3, kind)


def resumed_runs(case, make, environment, tmp_path, remembering=stock_callbacks):
    """A whole run, and some that go on from its checkpoints.

    Yields:
        `(agent, history, log)` of the whole run, then of the others.
    """
    run = tmp_path / "whole"
    for number in (None, 1, 4, 5):  # of checkpoints, some in and one after an epoch
        directory = run if number is None else tmp_path / str(number)
        (directory / "run").mkdir(parents=True)
        if number is not None:
            checkpoint = sorted((run / "run").iterdir())[number]
            shutil.copytree(checkpoint, directory / "run" / checkpoint.name)
        random.seed(number)
        np.random.seed(number or 9)
        agent = make(case, number or 9)
        history = fit(
            case, agent, environment(), directory, epochs=3,
            resume=directory / "run", callbacks=remembering(directory),
        ).history  # fmt: skip
        del history["steps_per_second"]
        yield agent, history


def assert_resumed_runs_are_the_same(runs):
    agent, history = next(runs)
    expected = whole(agent)
    for other, rest in runs:
        assert_same(expected, whole(other))
        for name, values in rest.items():
            assert values == history[name][-len(values) :], name
        assert 1 <= len(rest["loss"]) <= 3


def test_a_run_resumed_from_any_checkpoint_ends_as_the_whole_run(case, tmp_path):
    def environment():
        return Drawing(gym.wrappers.TimeLimit(case.env(), 6))

    runs = resumed_runs(case, learning, environment, tmp_path)
    assert_resumed_runs_are_the_same(runs)


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_every_column_of_a_vector_env_goes_on(mode, tmp_path):
    case = AGENTS[0]
    runs = resumed_runs(
        case,
        lambda case, seed: case.light(seed, **settings(case)),
        lambda: case.vector_env(3, mode),
        tmp_path,
        remembering=lambda directory: [],
    )
    assert_resumed_runs_are_the_same(runs)


class Stop(BaseException):
    """The end of a process."""


def stop_at(steps):
    """Ends a run at the first execution that reaches so many env steps."""

    def stop(batch, logs):
        if callback.model.env_steps >= steps:
            raise Stop

    callback = keras.callbacks.LambdaCallback(on_train_batch_end=stop)
    return callback


def test_random_layers_go_on_with_their_seeds(tmp_path):
    """Dropout's seeds, which Keras saves in no file."""
    network = [keras.layers.Dense(8), keras.layers.Dropout(0.5), keras.layers.Dense(3)]
    case = AGENTS[0]

    def made():
        keras.utils.set_random_seed(1)
        agent = DQN(
            keras.Sequential(
                [layer.from_config(layer.get_config()) for layer in network]
            )
        )
        return case.compile(agent, run_eagerly=True, updates_per_step=0.25)

    directory, weights = tmp_path / "run", []
    checkpoint = Checkpoint(directory, every=8, keep=9)
    for stop, resume in ((10**6, None), (36, None), (10**6, directory)):
        if stop == 36:
            shutil.rmtree(directory)
        agent = made()
        callbacks = [checkpoint, stop_at(stop)]
        try:
            agent.fit(
                case.env(), epochs=2, seed=1, callbacks=callbacks, resume=resume, **FIT
            )
        except Stop:
            assert agent.env_steps == 36
        else:
            weights.append(whole(agent))
    assert_same(*weights)


def test_an_env_that_cannot_be_copied_begins_a_new_episode_and_fit_says_so(
    tmp_path, capsys
):
    class Lock(gym.Wrapper):
        """Holds what is no plain data."""

        def __init__(self, env):
            super().__init__(env)
            self.lock = threading.Lock()

    case = AGENTS[0]
    checkpoint = Checkpoint(tmp_path, every=8)
    fit = {**FIT, "verbose": 2}
    with pytest.raises(Stop):
        case.light().fit(
            Lock(case.env()), epochs=2, seed=1, callbacks=[checkpoint, stop_at(44)],
            **FIT,
        )  # fmt: skip
    envs = [case.env(), case.env(length=9)]
    for env in envs:
        agent = case.light(2)
        agent.fit(Lock(env), epochs=2, seed=1, resume=tmp_path, **fit)
        output = capsys.readouterr().out
        assert "Resuming at a new episode: `env.Lock-0.fields.lock` is a " in output
        assert agent.env_steps == 56
        assert len(env.seeds) > 1
    # Neither the episodes of the beginning again, nor different ones each time.
    assert envs[0].seeds[0] == envs[1].seeds[0] != 1
    agent.fit(case.env(), epochs=2, resume=tmp_path, **fit)
    assert "it consists of ['Walk-0'], where" not in capsys.readouterr().out


def test_another_env_begins_a_new_episode_and_fit_says_so(tmp_path, capsys):
    case = AGENTS[0]
    with pytest.raises(Stop):
        case.light().fit(
            case.env(), seed=1, callbacks=[Checkpoint(tmp_path, every=8), stop_at(30)],
            **FIT,
        )  # fmt: skip
    env = gym.wrappers.TimeLimit(case.env(), 100)
    case.light().fit(env, resume=tmp_path, **{**FIT, "verbose": 2})
    expected = "new episode: it consists of ['TimeLimit-0', 'Walk-1'], where it was"
    assert expected in capsys.readouterr().out


def test_a_run_that_a_callback_stopped_is_not_trained_further(tmp_path, capsys):
    case = AGENTS[0]
    for _ in range(2):
        agent = case.light()
        agent.fit(
            case.env(), epochs=5, seed=1, resume=tmp_path, **{**FIT, "verbose": 2},
            callbacks=[Checkpoint(tmp_path, every=8), StopAtReturn(-1e9)],
        )  # fmt: skip
        assert agent.env_steps == 36
    assert "A callback stopped this run after 1 epochs" in capsys.readouterr().out
    agent.fit(case.env(), epochs=1, **FIT)
    assert agent.env_steps == 56


def test_callbacks_may_say_themselves_what_they_remember(tmp_path):
    class Counting(keras.callbacks.Callback):
        count = 0

        def on_train_batch_end(self, batch, logs=None):
            self.count += 1

        def get_state(self):
            return {"count": (self.count, np.arange(3))}

        def set_state(self, state):
            assert state["count"][1].tolist() == [0, 1, 2]
            self.count = state["count"][0]

    case, counts = AGENTS[0], [Counting(), Counting(), Counting()]
    callbacks = [Checkpoint(tmp_path, every=8), counts[0], stop_at(52)]
    with pytest.raises(Stop):
        case.light().fit(case.env(), epochs=3, seed=1, callbacks=callbacks, **FIT)
    # Executions of 8, 8 and 4 steps; a callback that is new begins afresh.
    assert counts[0].count == 5
    case.light().fit(case.env(), epochs=3, resume=tmp_path, callbacks=counts[1:], **FIT)
    assert [counter.count for counter in counts[1:]] == [9, 5]


def test_a_schedule_of_the_learning_rate_takes_each_step_once(tmp_path):
    case, rates = AGENTS[0], []
    halve = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate / 2)
    checkpoint = Checkpoint(tmp_path, every=8)
    with pytest.raises(Stop):
        case.light().fit(
            case.env(), epochs=3, seed=1, callbacks=[halve, checkpoint, stop_at(52)],
            **FIT,
        )  # fmt: skip
    agent = case.light()
    watch = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: rates.append(
            float(agent.optimizer.learning_rate)
        )
    )
    agent.fit(case.env(), epochs=3, resume=tmp_path, callbacks=[halve, watch], **FIT)
    assert rates == pytest.approx([0.01 / 4, 0.01 / 8])


def test_what_does_not_fit_changes_nothing_and_is_named(tmp_path):
    """Another number of envs, found out after the files were read."""
    case = AGENTS[0]
    with pytest.raises(Stop):
        case.light().fit(
            case.env(), callbacks=[Checkpoint(tmp_path, every=8), stop_at(30)], **FIT
        )
    agent = case.light(5)
    before, memory = digest(agent), agent.memory
    with pytest.raises(ValueError, match="1 environments, not of 2"):
        agent.fit(case.vector_env(2), resume=tmp_path, **FIT)
    assert digest(agent) == before
    assert agent.memory is memory
    assert agent.env_steps == len(memory) == 0


# ------------------------------------------------------------------------- SIGTERM


class TerminateAt(keras.callbacks.Callback):
    """Sends SIGTERM at the first execution that reaches so many env steps."""

    def __init__(self, steps):
        super().__init__()
        self.steps = steps

    def on_train_batch_end(self, batch, logs=None):
        if self.model.env_steps >= self.steps:
            os.kill(os.getpid(), signal.SIGTERM)


def test_sigterm_writes_a_checkpoint_and_the_handler_is_put_back(tmp_path):
    case = AGENTS[0]
    noted = []
    before = signal.signal(signal.SIGTERM, lambda *_: noted.append(1))
    try:
        own = signal.getsignal(signal.SIGTERM)
        runs = []
        for step in (None, 30, 36):  # 36 is the end of an epoch
            directory = tmp_path / str(step)
            callbacks = [Checkpoint(directory, every=1_000)]
            random.seed(1)
            np.random.seed(1)
            if step is not None:
                callbacks.insert(0, TerminateAt(step))
                agent = case.light()
                with pytest.raises(SystemExit) as exit_:
                    agent.fit(
                        case.env(), epochs=2, seed=1,
                        callbacks=callbacks, **FIT,
                    )  # fmt: skip
                assert exit_.value.code == 143
                assert signal.getsignal(signal.SIGTERM) is own
                assert len(list(directory.iterdir())) == 1
            agent = case.light()
            agent.fit(
                case.env(), epochs=2, seed=1, resume=directory,
                callbacks=callbacks[-1:], **FIT,
            )  # fmt: skip
            runs.append(whole(agent))
        assert noted == []
        assert signal.getsignal(signal.SIGTERM) is own
    finally:
        signal.signal(signal.SIGTERM, before)
    assert_same(runs[0], runs[1])
    assert_same(runs[0], runs[2])


def test_in_another_thread_and_without_a_checkpoint_sigterm_is_left_alone(tmp_path):
    case, seen = AGENTS[0], []
    own = signal.getsignal(signal.SIGTERM)
    watch = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: seen.append(
            signal.getsignal(signal.SIGTERM)
        )
    )
    case.light().fit(case.env(), callbacks=[watch], **FIT)
    callbacks = [watch, Checkpoint(tmp_path, every=8)]
    thread = threading.Thread(
        target=lambda: case.light().fit(case.env(), callbacks=callbacks, **FIT)
    )
    thread.start()
    thread.join()
    assert len(list(tmp_path.iterdir())) == 2, "the thread failed"
    assert set(seen) == {own}


def test_a_ctrl_c_that_somebody_drops_ends_the_run_all_the_same():
    """As C code does that calls Python and clears its error."""

    def drop(batch, logs):
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            dropped.append(batch)

    dropped, agent = [], AGENTS[0].light()
    watch = keras.callbacks.LambdaCallback(on_train_batch_end=drop)
    with pytest.raises(KeyboardInterrupt):
        agent.fit(AGENTS[0].env(), callbacks=[watch], **FIT)
    assert len(dropped) == 1
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_of_the_users_own_decides_what_ctrl_c_does():
    noted = []
    before = signal.signal(signal.SIGINT, lambda *_: noted.append(1))
    try:
        press = keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs: signal.raise_signal(signal.SIGINT)
        )
        AGENTS[0].light().fit(AGENTS[0].env(), callbacks=[press], **FIT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(noted) == 3
