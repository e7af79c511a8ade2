"""`fit` of every agent: budgets, history, output, errors of the env."""

import math
import random
import re
import traceback

import keras
import numpy as np
import pytest
import tensorflow as tf
from gymnasium.vector import AutoresetMode

from keras_rl2x.callbacks import TargetUpdate
from tests.agents.contract import digest
from tests.agents.contract import light
from tests.agents.walk import Walk

TIMES = ("steps_per_second",)


class LoggedTargetUpdate(TargetUpdate):
    """Keeps the env step of every update, in the order of the compiled step."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.count = tf.Variable(0)
        self.log = tf.Variable(tf.zeros([512], tf.int64))

    def due(self, step, previous):
        self.step = step
        return super().due(step, previous)

    def blend(self, target, online):
        self.log.scatter_nd_update([[self.count]], [self.step])
        self.count.assign_add(1)
        super().blend(target, online)

    def steps(self, agent):
        """Env steps at which all target networks were updated."""
        log = self.log.numpy()[: int(self.count)].reshape(-1, len(agent.targets))
        assert (log == log[:, :1]).all(), "one target was updated without the other"
        return log[:, 0].tolist()


class Watch(keras.callbacks.Callback):
    """What is to be seen at the end of each epoch, and how far the env was then."""

    def __init__(self, env):
        super().__init__()
        self.env, self.epochs, self.begins = env, [], []
        self.envs = getattr(env, "envs", [env])

    def on_epoch_begin(self, epoch, logs=None):
        self.begins.append((self.model.env_steps, self.model.gradient_steps))
        self.first = [len(env.episodes) for env in self.envs]

    def on_epoch_end(self, epoch, logs=None):
        ended = zip(self.envs, self.first, strict=True)
        self.epochs.append(
            {
                "logs": dict(logs),
                "env_steps": self.model.env_steps,
                "gradient_steps": self.model.gradient_steps,
                "episodes": [row for env, i in ended for row in env.episodes[i:]],
            }
        )


def recording(cls, records):
    """The agent, keeping the numbers of every minibatch."""

    class Recording(cls):
        def train_step(self, batch):
            means = super().train_step(batch)
            records.append({name: float(value) for name, value in means.items()})
            return means

    return Recording


def tracing(cls, traces):
    """The agent, keeping the shape of every batch it was traced for."""

    class Tracing(cls):
        def train_step(self, batch):
            traces.append(tuple(batch.reward.shape))
            return super().train_step(batch)

    return Tracing


# ----------------------------------------------------------------------- history


def test_history_holds_the_means_of_each_epoch(case):
    records, env = [], case.env()
    agent = case.compiled(
        cls=recording(case.cls, records), run_eagerly=True, updates_per_step=0.25
    )
    watch = Watch(env)
    history = agent.fit(
        env, epochs=3, steps_per_epoch=24, batch_size=8, seed=1, verbose=0,
        callbacks=[watch],
    ).history  # fmt: skip
    records = records[-agent.gradient_steps :]  # without a rehearsal
    assert agent.gradient_steps == len(records) == 18
    explored = agent.exploration.values(0)
    episodes = ("episode_return", "episode_length")
    assert set(history) == {*records[0], *explored, *episodes, *TIMES}
    for epoch, seen in enumerate(watch.epochs):
        for name in records[0]:
            values = [row[name] for row in records[6 * epoch : 6 * epoch + 6]]
            assert history[name][epoch] == pytest.approx(np.mean(values), rel=1e-5)
        for name, value in agent.exploration.values(seen["env_steps"]).items():
            assert history[name][epoch] == value
        mean = np.mean(seen["episodes"], axis=0)
        assert history["episode_return"][epoch] == pytest.approx(mean[0], rel=1e-9)
        assert history["episode_length"][epoch] == mean[1]
        assert history["steps_per_second"][epoch] > 0


def test_a_vector_env_logs_the_mean_over_all_its_episodes(case):
    watch = Watch(case.vector_env(4, length=[2, 3, 4, 5]))
    history = case.light(updates_per_step=0.1).fit(
        watch.env, epochs=2, steps_per_epoch=50, batch_size=8, seed=1, verbose=0,
        callbacks=[watch],
    ).history  # fmt: skip
    for epoch, seen in enumerate(watch.epochs):
        total, length = np.mean(seen["episodes"], axis=0)
        assert history["episode_return"][epoch] == pytest.approx(total, rel=1e-9)
        assert history["episode_length"][epoch] == pytest.approx(length, rel=1e-9)


def test_logs_are_finite_floats_and_repeat_the_last_means(case):
    # Episodes of 30 steps and a warm-up of 16: the first ends in epoch 2, the
    # next one in epoch 5.
    env = case.env(length=30)
    watch = Watch(env)
    case.light(updates_per_step=0.25).fit(
        env, epochs=5, steps_per_epoch=10, batch_size=8, seed=1, verbose=0,
        callbacks=[watch],
    )  # fmt: skip
    logs = [seen["logs"] for seen in watch.epochs]
    for epoch in logs:
        assert all(type(value) is float for value in epoch.values()), epoch
        assert np.isfinite(list(epoch.values())).all(), epoch
    assert [len(seen["episodes"]) for seen in watch.epochs] == [0, 1, 0, 0, 1]
    for name in ("episode_return", "episode_length"):
        assert [name in epoch for epoch in logs] == [False, True, True, True, True]
        assert logs[1][name] == logs[2][name] == logs[3][name]
    assert logs[3]["episode_return"] != logs[4]["episode_return"]


# ----------------------------------------------------------------------- budgets


def due_steps(warmup, steps, updates_per_step):
    """Env steps at which gradient steps are due, in exact arithmetic."""
    count = math.floor(steps * updates_per_step + 1e-9)
    return [
        warmup + math.ceil(k / updates_per_step - 1e-9) for k in range(1, count + 1)
    ]


@pytest.mark.parametrize("num_envs", [1, 8])
def test_a_thousand_steps_bring_250_updates_and_10_target_syncs(case, num_envs):
    env = case.env() if num_envs == 1 else case.vector_env(num_envs)
    agent = case.compiled(
        warmup_steps=100, updates_per_step=0.25, steps_per_execution=32
    )
    rule = LoggedTargetUpdate(period=100)
    agent.fit(
        env, epochs=1, steps_per_epoch=1_000, batch_size=8, seed=1, verbose=0,
        callbacks=[rule],
    )  # fmt: skip
    assert agent.env_steps == 1_100
    assert agent.gradient_steps == 250
    assert int(agent.optimizer.iterations.numpy()) == 250
    assert rule.steps(agent) == list(range(200, 1_101, 100))
    # What a vector call brings beyond the budget is kept, and no ghost row is.
    taken = env.steps if num_envs == 1 else sum(each.steps for each in env.envs)
    assert taken == len(agent.memory)
    assert 0 <= taken - 1_100 < num_envs


@pytest.mark.parametrize(
    ("updates_per_step", "num_envs", "mode"),
    [
        (0.1, 1, None),
        (1 / 3, 8, AutoresetMode.NEXT_STEP),
        (0.75, 3, AutoresetMode.SAME_STEP),
        (2, 3, AutoresetMode.DISABLED),
    ],
)
def test_every_epoch_ends_on_its_budget(case, updates_per_step, num_envs, mode):
    env = case.env() if num_envs == 1 else case.vector_env(num_envs, mode)
    agent = case.light(
        warmup_steps=20,
        updates_per_step=updates_per_step,
        steps_per_execution=7,
        run_eagerly=False,
    )
    seen = []
    watch = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: seen.append(
            (agent.env_steps, agent.gradient_steps)
        )
    )
    for _ in range(2):  # a second fit goes on with the fraction and the surplus
        agent.fit(
            env, epochs=2, steps_per_epoch=25, batch_size=8, verbose=0,
            callbacks=[watch],
        )  # fmt: skip
    assert seen == [
        (20 + steps, math.floor(steps * updates_per_step + 1e-9))
        for steps in (25, 50, 75, 100)
    ]


@pytest.mark.parametrize(("num_envs", "executions"), [(1, (1, 5, None)), (4, (1, 30))])
def test_steps_per_execution_changes_neither_updates_nor_targets(
    case, num_envs, executions
):
    for execution in executions:
        env = case.env() if num_envs == 1 else case.vector_env(num_envs)
        agent = case.light(
            targets=True,
            steps_per_execution=execution,
            updates_per_step=0.75,
            run_eagerly=False,
        )
        rule = LoggedTargetUpdate(period=1)
        agent.fit(
            env, epochs=2, steps_per_epoch=30, batch_size=8, seed=1, verbose=0,
            callbacks=[rule],
        )  # fmt: skip
        assert agent.gradient_steps == 45
        assert rule.steps(agent) == due_steps(16, 60, 0.75), execution


def test_an_execution_is_cut_at_the_end_of_an_epoch_and_rounded_to_the_envs(case):
    calls = []

    class Counting(case.cls):
        def learn(self, stack, n):
            calls.append((self.env_steps, n))
            return super().learn(stack, n)

    agent = case.compiled(cls=light(Counting), steps_per_execution=10)
    agent.fit(case.vector_env(4), epochs=2, steps_per_epoch=30, batch_size=8, verbose=0)
    # 10 is rounded up to 12: 12 + 12 + 6 steps an epoch.
    steps = [16 + n for n in (12, 24, 30, 42, 54, 60)]
    assert calls == list(zip(steps, [12, 12, 6] * 2, strict=True))


# ----------------------------------------------------------------------- warm-up


def test_the_warm_up_comes_before_epoch_one_and_counts(case):
    env = case.env()
    agent, watch = case.light(warmup_steps=50), Watch(env)
    agent.fit(
        env, steps_per_epoch=8, batch_size=8, seed=1, verbose=0, callbacks=[watch]
    )
    assert watch.begins == [(50, 0)]
    assert (agent.env_steps, agent.gradient_steps) == (58, 8)


def test_the_warm_up_holds_at_least_a_batch(case):
    agent, watch = case.light(warmup_steps=3), Watch(case.env())
    agent.fit(
        watch.env, steps_per_epoch=8, batch_size=20, seed=1, verbose=0,
        callbacks=[watch],
    )  # fmt: skip
    assert watch.begins == [(20, 0)]


def test_warm_up_actions_are_uniform_over_the_action_space(case):
    env = case.env()
    agent = case.light(warmup_steps=300)
    agent.fit(env, steps_per_epoch=1, batch_size=8, seed=1, verbose=0)
    taken = np.array(env.taken[:300])
    if case.actions == "discrete":
        assert (np.bincount(taken) > 75).all()
    else:
        low, high = env.action_space.low, env.action_space.high
        assert (taken.max(axis=0) > high - 0.03 * (high - low)).all()
        assert (taken.min(axis=0) < low + 0.03 * (high - low)).all()
        middle = (low + high) / 2
        assert (np.abs(taken.mean(axis=0) - middle) < 0.06 * (high - low)).all()


def test_a_filled_memory_needs_no_warm_up(case):
    first, env = case.light(1), case.env()
    first.fit(env, steps_per_epoch=8, batch_size=8, seed=1, verbose=0)
    agent = case.light(2, memory=first.memory)
    agent.fit(case.env(), steps_per_epoch=8, batch_size=8, seed=1, verbose=0)
    assert agent.env_steps == 8
    assert agent.gradient_steps == 8


# ------------------------------------------------------------------------ output

ANSI = re.compile(r"\x1b\[[0-9;]*m")


def printed(case, capfd, verbose):
    capfd.readouterr()
    case.light(updates_per_step=0.25).fit(
        case.env(), epochs=2, steps_per_epoch=40, batch_size=8, seed=1,
        verbose=verbose, validation_data=case.env(), validation_episodes=2,
    )  # fmt: skip
    return ANSI.sub("", capfd.readouterr().out)


def test_verbose_0_prints_nothing(case, capfd):
    assert printed(case, capfd, 0) == ""


@pytest.mark.parametrize("verbose", [1, "auto"])
def test_verbose_1_shows_one_bar_per_epoch_after_the_warm_up_line(case, capfd, verbose):
    head, *epochs = re.split(r"Epoch \d/2\n", printed(case, capfd, verbose))
    assert re.fullmatch(r".*memory.* 16 .*steps.*\n", head), head
    assert len(epochs) == 2
    for text in epochs:
        shown = [int(number) for number in re.findall(r"(\d+)/40 ", text)]
        assert shown == sorted(shown)
        assert shown[-1] == 40
        final = text.strip().splitlines()[-1].split("\r")[-1]
        for name in ("loss", "episode_return", "steps_per_second", "val_episode"):
            assert name in final, final
        # The bar ends with its line: no other line follows.
        assert text.count("\n") <= 2, repr(text)


def test_verbose_2_prints_one_line_per_epoch(case, capfd):
    head, *epochs = re.split(r"Epoch \d/2\n", printed(case, capfd, 2))
    assert re.fullmatch(r".*memory.* 16 .*steps.*\n", head), head
    assert len(epochs) == 2
    for text in epochs:
        assert text.count("\n") == 1
        assert text.startswith("40/40 ")
        for name in ("loss", "episode_return", "steps_per_second", "val_episode"):
            assert name in text


# ---------------------------------------------------------------------- going on


def test_a_second_fit_continues_the_episode_of_the_same_env(case):
    env = case.env(length=200)
    agent = case.light()
    agent.fit(env, steps_per_epoch=20, batch_size=8, seed=1, verbose=0)
    assert (env.time, env.seeds) == (36, [1])
    agent.fit(env, steps_per_epoch=20, batch_size=8, verbose=0)
    assert (env.time, env.seeds) == (56, [1])
    assert (agent.env_steps, agent.gradient_steps) == (56, 40)
    # One chain in the memory: each row's next observation is the next row's own.
    batch = agent.memory.sample(500, rng=np.random.default_rng(0))
    times = np.rint(10 * batch.observation[0, :, 2]).astype(int)
    assert set(times) == set(range(56))
    assert (np.rint(10 * batch.next_observation[0, :, 2]) == times + 1).all()
    assert (batch.discount > 0).all()


def test_a_new_seed_begins_a_new_episode_and_repeats(case):
    env = case.env(length=200)
    agent = case.light()
    agent.fit(env, steps_per_epoch=8, batch_size=8, seed=7, verbose=0)
    agent.fit(env, steps_per_epoch=8, batch_size=8, seed=7, verbose=0)
    assert env.seeds == [7, 7]
    assert np.array_equal(env.starts[0], env.starts[1])
    assert env.time == 8


def test_the_seed_is_given_to_the_first_reset_only_and_starts_differ(case):
    env = case.env(length=2)
    case.light(updates_per_step=0.25).fit(
        env, steps_per_epoch=40, batch_size=8, seed=3, verbose=0
    )
    assert env.seeds[0] == 3
    assert set(env.seeds[1:]) == {None}
    assert len({start.tobytes() for start in env.starts}) == len(env.starts) > 20


def test_the_seed_reaches_the_action_space(case):
    one, other = case.env(), case.env()
    other.action_space.seed(5)
    case.light().fit(one, steps_per_epoch=8, batch_size=8, seed=5, verbose=0)
    assert np.array_equal(one.action_space.sample(), other.action_space.sample())


def test_another_env_begins_an_episode_there(case):
    agent, first, second = case.light(), case.env(length=200), case.env(length=200)
    agent.fit(first, steps_per_epoch=8, batch_size=8, seed=1, verbose=0)
    agent.fit(second, steps_per_epoch=8, batch_size=8, verbose=0)
    assert (first.time, second.time) == (24, 8)
    assert agent.env_steps == 32


def test_initial_epoch_shortens_the_run_as_in_keras(case):
    agent = case.light()
    history = agent.fit(
        case.env(), epochs=3, initial_epoch=1, steps_per_epoch=8, batch_size=8,
        seed=1, verbose=0,
    )  # fmt: skip
    assert history.epoch == [1, 2]
    assert agent.env_steps == 32


def test_the_global_random_states_are_left_alone(case):
    agent = case.light()
    python, numpy = random.getstate(), np.random.get_state()[1].tobytes()
    agent.fit(case.env(), steps_per_epoch=8, batch_size=8, seed=1, verbose=0)
    assert random.getstate() == python
    assert np.random.get_state()[1].tobytes() == numpy


# ------------------------------------------------------------------------ traces


def test_the_learning_step_is_traced_once_for_all_epochs_and_fits(case):
    traces = []
    agent, env = case.compiled(cls=tracing(case.cls, traces)), case.env()
    arguments = {"steps_per_epoch": 20, "verbose": 0, "validation_data": case.env()}
    agent.fit(env, epochs=1, batch_size=8, seed=1, **arguments)
    first = len(traces)
    agent.evaluate(case.env(), episodes=1)
    agent.fit(env, epochs=3, batch_size=8, **arguments)
    agent.fit(case.env(), epochs=1, steps_per_epoch=9, batch_size=8, seed=2, verbose=0)
    assert len(traces) == first
    agent.fit(env, epochs=2, batch_size=12, **arguments)
    assert traces[first:] == [(12,)], "a new batch size retraces once"


# ----------------------------------------------------------------- wrong arguments


@pytest.fixture(scope="module")
def agent(case):
    """Compiled once: nothing that is refused may change it."""
    return case.compiled()


WRONG = [
    ({"epochs": 0}, ValueError, "`epochs`"),
    ({"epochs": 1.5}, ValueError, "`epochs`"),
    ({"steps_per_epoch": 0}, ValueError, "`steps_per_epoch`"),
    ({"steps_per_epoch": None}, ValueError, "`steps_per_epoch`"),
    ({"batch_size": 0}, ValueError, "`batch_size`"),
    ({"batch_size": 2.5}, ValueError, "`batch_size`"),
    ({"validation_data": "CartPole-v1"}, TypeError, r"gymnasium.make\('CartPole"),
    ({"validation_data": True, "validation_episodes": 0}, ValueError, "`validation_ep"),
    ({"validation_data": True, "validation_freq": 0}, ValueError, "`validation_freq`"),
    ({"callbacks": [print]}, TypeError, "`callbacks`"),
    ({"seed": "one"}, (TypeError, ValueError), "`seed`"),
    ({"seed": -1}, (TypeError, ValueError), "`seed`"),
    ({"initial_epoch": -1}, ValueError, "`initial_epoch`"),
]


@pytest.mark.parametrize(
    ("arguments", "error", "text"), WRONG, ids=[str(i) for i in range(len(WRONG))]
)
def test_a_wrong_argument_fails_before_the_env_is_touched(
    case, agent, arguments, error, text
):
    env = case.env()
    if arguments.get("validation_data") is True:
        arguments = {**arguments, "validation_data": case.env()}
    before = digest(agent)
    with pytest.raises(error, match=text):
        agent.fit(env, **{"steps_per_epoch": 8, "verbose": 0, **arguments})
    assert (env.steps, env.seeds) == (0, [])
    assert digest(agent) == before


def test_the_training_env_cannot_be_the_validation_env(case):
    agent, env = case.compiled(), case.env()
    with pytest.raises(ValueError, match="environment of its own"):
        agent.fit(env, validation_data=env)
    assert env.seeds == []


@pytest.mark.parametrize("env", [None, "CartPole-v1", object(), Walk])
def test_what_is_no_env_is_named(agent, env):
    with pytest.raises(TypeError, match="`env` must be"):
        agent.fit(env)


def test_an_env_of_other_spaces_is_refused_and_nothing_changes(case):
    agent = case.compiled()
    other = "continuous" if case.actions == "discrete" else "discrete"
    before = digest(agent)
    with pytest.raises(ValueError, match="another action space"):
        agent.fit(Walk(other), verbose=0)
    with pytest.raises(ValueError, match="another action space"):
        agent.fit(case.env(), validation_data=Walk(other), verbose=0)
    assert digest(agent) == before


# --------------------------------------------------------------- errors of the env


class Broken(Exception):
    """An error that nobody else raises."""


def assert_from_env(info, function):
    frame = traceback.extract_tb(info.tb)[-1]
    assert frame.filename.endswith("walk.py")
    assert frame.name == function


@pytest.mark.parametrize(
    ("fails", "function", "steps"),
    [
        ({"fail_at": (5, Broken("leg"))}, "step", 5),  # in the warm-up
        ({"fail_at": (29, Broken("leg"))}, "step", 29),
        ({"fail_reset": (0, Broken("leg"))}, "reset", 0),
        ({"fail_reset": (6, Broken("leg")), "length": 4}, "reset", 24),
    ],
)
def test_an_error_of_the_env_arrives_unchanged(case, fails, function, steps):
    agent, env = case.light(), case.env(**fails)
    error = (fails.get("fail_at") or fails.get("fail_reset"))[1]
    with pytest.raises(Broken, match="leg") as info:
        agent.fit(env, epochs=2, steps_per_epoch=20, batch_size=8, seed=1, verbose=0)
    assert info.value is error
    assert_from_env(info, function)
    # Everything taken before is counted and kept, and training can go on.
    # (The step before a failing reset may be lost, since it never came back.)
    counted = agent.env_steps
    assert counted == len(agent.memory)
    assert counted == steps or (function == "reset" and counted == steps - 1)
    agent.fit(case.env(), steps_per_epoch=8, batch_size=8, verbose=0)
    assert agent.env_steps == max(16, counted) + 8
    assert len(agent.memory) == agent.env_steps


def test_an_error_inside_a_vector_env_arrives_unchanged(case):
    error = Broken("leg")
    agent = case.light()
    env = case.vector_env(4, fail_at=[None, None, (8, error), None])
    with pytest.raises(Broken) as info:
        agent.fit(env, epochs=2, steps_per_epoch=20, batch_size=8, seed=1, verbose=0)
    assert info.value is error
    assert_from_env(info, "step")


def test_an_error_of_the_validation_env_arrives_unchanged(case):
    error = Broken("leg")
    agent = case.light()
    with pytest.raises(Broken) as info:
        agent.fit(
            case.env(), steps_per_epoch=8, batch_size=8, seed=1, verbose=0,
            validation_data=case.env(fail_at=(2, error)),
        )  # fmt: skip
    assert info.value is error
    assert_from_env(info, "step")
    assert agent.env_steps == 24


def test_stop_iteration_of_an_env_does_not_end_training_quietly(case):
    error = StopIteration("no more data")
    agent, env = case.light(), case.env(fail_at=(30, error))
    with pytest.raises(RuntimeError, match="StopIteration") as info:
        agent.fit(env, epochs=2, steps_per_epoch=20, batch_size=8, seed=1, verbose=0)
    shown = "".join(traceback.format_exception(info.value))
    assert "walk.py" in shown, "the user cannot see where it was raised"


def test_callbacks_are_ended_after_an_error(case):
    ends = []
    watch = keras.callbacks.LambdaCallback(on_train_end=lambda logs: ends.append(1))
    with pytest.raises(Broken):
        case.light().fit(
            case.env(fail_at=(30, Broken())), epochs=2, steps_per_epoch=20,
            batch_size=8, seed=1, verbose=0, callbacks=[watch],
        )  # fmt: skip
    assert ends == [1]


@pytest.mark.parametrize("where", ["warm-up", "step", "callback", "evaluation"])
def test_ctrl_c_leaves_the_agent_usable_and_the_memory_consistent(
    case, where, tmp_path
):
    at = {"warm-up": 9, "step": 37}.get(where)
    env = case.env(fail_at=at and (at, KeyboardInterrupt()))
    validation = case.env(fail_at=(3, KeyboardInterrupt()))
    agent = case.light(steps_per_execution=5, updates_per_step=0.2)
    interrupting = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: _interrupt(agent.env_steps > 30)
    )
    with pytest.raises(KeyboardInterrupt):
        agent.fit(
            env, epochs=4, steps_per_epoch=20, batch_size=8, seed=1, verbose=0,
            callbacks=[interrupting] if where == "callback" else [],
            validation_data=validation if where == "evaluation" else None,
        )  # fmt: skip
    completed = env.steps - (at is not None)
    assert agent.env_steps == len(agent.memory) == completed
    # Acting, saving and learning go on, in a new episode.
    agent.act(env.observe())
    agent.save(tmp_path / "agent.keras")
    env.fail_at, resets = None, len(env.seeds)
    agent.fit(env, steps_per_epoch=20, batch_size=8, verbose=0)
    assert len(env.seeds) > resets
    assert agent.env_steps == len(agent.memory) == max(16, completed) + 20
    # No row joins two episodes: time goes up by one in each.
    rows = agent.memory.sample(1_000, rng=np.random.default_rng(0))
    time, after = rows.observation[0, :, 2], rows.next_observation[0, :, 2]
    assert np.allclose(after - time, 0.1)


def _interrupt(now):
    if now:
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    "mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED]
)
def test_no_stored_row_joins_two_episodes_of_a_vector_env(case, mode):
    agent = case.light(warmup_steps=100, updates_per_step=0.1)
    env = case.vector_env(4, mode)
    agent.fit(env, steps_per_epoch=40, batch_size=8, seed=1, verbose=0)
    rows = agent.memory.sample(2_000, rng=np.random.default_rng(0))
    time, after = rows.observation[0, :, 2], rows.next_observation[0, :, 2]
    assert np.allclose(after - time, 0.1)
    assert len(agent.memory) == sum(each.steps for each in env.envs)
