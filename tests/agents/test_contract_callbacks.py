"""All of Keras' callbacks, for every agent."""

import csv
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.util import event_pb2

from keras_rl2x.callbacks import StopAtReturn
from tests.agents.contract import online
from tests.agents.contract import same
from tests.agents.contract import values

EPOCHS, STEPS, WARMUP = 4, 24, 16


class Hooks(keras.callbacks.Callback):
    """The order in which hooks fire, and what they are given at the end of epochs."""

    def __init__(self):
        super().__init__()
        self.calls, self.logs, self.weights, self.steps = [], [], [], []

    def on_train_begin(self, logs=None):
        self.calls.append("train_begin")

    def on_train_end(self, logs=None):
        self.calls.append("train_end")

    def on_epoch_begin(self, epoch, logs=None):
        self.calls.append(f"epoch_begin {epoch}")

    def on_epoch_end(self, epoch, logs=None):
        self.calls.append(f"epoch_end {epoch}")
        self.logs.append(dict(logs))
        self.weights.append(values(self.model))
        self.steps.append(self.model.env_steps)

    def on_train_batch_begin(self, batch, logs=None):
        self.calls.append(f"batch_begin {batch}")

    def on_train_batch_end(self, batch, logs=None):
        self.calls.append(f"batch_end {batch}")

    def on_test_begin(self, logs=None):
        self.calls.append("test_begin")

    def on_test_end(self, logs=None):
        self.calls.append(f"test_end {sorted(logs)}")

    def on_test_batch_end(self, batch, logs=None):
        self.calls.append(f"test_batch_end {batch}")


class Script(keras.callbacks.Callback):
    """Writes a number of one's choice into the logs, for the callbacks after it."""

    def __init__(self, key, numbers):
        super().__init__()
        self.key, self.numbers = key, numbers

    def on_epoch_end(self, epoch, logs=None):
        logs[self.key] = self.numbers[epoch]


@pytest.fixture(scope="module")
def run(case, tmp_path_factory):
    """One training run that all the watching callbacks see."""
    path = tmp_path_factory.mktemp(case.cls.__name__)
    agent, hooks, ended = case.compiled(), Hooks(), []
    history = agent.fit(
        case.env(),
        epochs=EPOCHS,
        steps_per_epoch=STEPS,
        batch_size=8,
        seed=1,
        verbose=0,
        validation_data=case.env(),
        validation_episodes=3,
        callbacks=[
            hooks,
            keras.callbacks.ModelCheckpoint(
                path / "best.keras",
                monitor="val_episode_return",
                mode="max",
                save_best_only=True,
            ),
            keras.callbacks.ModelCheckpoint(
                path / "{epoch}.weights.h5", save_weights_only=True
            ),
            keras.callbacks.CSVLogger(path / "log.csv"),
            keras.callbacks.TensorBoard(path / "board", 1, update_freq="batch"),
            keras.callbacks.LambdaCallback(on_train_end=ended.append),
        ],
    )
    return SimpleNamespace(
        agent=agent, hooks=hooks, history=history, path=path, ended=ended
    )


def scalars(path):
    """`(tag, step, value)` of every scalar in TensorBoard's files."""
    rows = []
    for file in sorted(path.rglob("*tfevents*")):
        for record in tf.data.TFRecordDataset(str(file)).as_numpy_iterator():
            event = event_pb2.Event.FromString(record)
            for value in event.summary.value:
                kind = value.metadata.plugin_data.plugin_name
                if kind == "scalars":
                    number = float(tf.make_ndarray(value.tensor))
                    rows.append((value.tag, event.step, number))
                else:
                    rows.append((value.tag, event.step, kind))
    return rows


def test_hooks_fire_in_keras_order(run):
    calls = run.hooks.calls
    assert calls[0] == "train_begin"
    assert calls[-1] == "train_end"
    assert [c for c in calls if c.startswith("epoch")] == [
        f"epoch_{what} {i}" for i in range(EPOCHS) for what in ("begin", "end")
    ]
    first = calls[calls.index("epoch_begin 0") + 1 : calls.index("epoch_begin 1")]
    batches = [c for c in first if c.startswith("batch")]
    # Executions of 8 steps; Keras passes the index of the last step of each.
    assert batches == [
        c
        for i in range(0, STEPS, 8)
        for c in (f"batch_begin {i}", f"batch_end {i + 7}")
    ]
    test = [c for c in first if c.startswith("test")]
    assert test == [
        "test_begin",
        *(f"test_batch_end {i}" for i in range(3)),
        "test_end ['episode_length', 'episode_return', 'episode_return_std']",
    ]
    # The evaluation comes before the epoch's end is told to others.
    assert first[-1] == "epoch_end 0"


def test_callbacks_see_the_validation_in_the_logs_of_their_epoch(run):
    for epoch, logs in enumerate(run.hooks.logs):
        for name in ("val_episode_return", "val_episode_length"):
            assert logs[name] == run.history.history[name][epoch]


def test_history_and_logs_have_the_same_keys_in_every_epoch(run):
    keys = {frozenset(logs) for logs in run.hooks.logs}
    assert keys == {frozenset(run.history.history)}
    assert all(len(column) == EPOCHS for column in run.history.history.values())
    assert run.history.epoch == list(range(EPOCHS))


def test_lambda_callback_is_told_the_last_logs(run):
    (logs,) = run.ended
    assert logs["loss"] == run.history.history["loss"][-1]


def test_model_checkpoint_keeps_the_epoch_with_the_best_validation(run):
    best = int(np.argmax(run.history.history["val_episode_return"]))
    agent = keras.saving.load_model(run.path / "best.keras")
    assert same(values(agent), run.hooks.weights[best])
    assert agent.env_steps == run.hooks.steps[best]


def test_model_checkpoint_writes_weights_of_every_epoch(case, run):
    other = case.compiled(seed=9)
    for epoch in (1, EPOCHS):
        other.load_weights(run.path / f"{epoch}.weights.h5")
        assert same(values(other), run.hooks.weights[epoch - 1])


def test_csv_logger_writes_the_history(run):
    with open(run.path / "log.csv") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["epoch"]) for row in rows] == list(range(EPOCHS))
    for name, column in run.history.history.items():
        assert [float(row[name]) for row in rows] == pytest.approx(column), name


def test_tensorboard_draws_epochs_over_env_steps(run):
    at = [WARMUP + STEPS * (epoch + 1) for epoch in range(EPOCHS)]
    assert run.hooks.steps == at
    rows = scalars(run.path / "board")
    for name in ("loss", "episode_return", "val_episode_return"):
        tag = f"epoch_{name}"
        if name.startswith("val_"):
            tag = f"epoch_{name.removeprefix('val_')}"
        drawn = [(step, value) for key, step, value in rows if key == tag]
        column = run.history.history[name]
        for point in zip(at, column, strict=True):
            assert any(np.allclose(point, other) for other in drawn), (name, point)
        assert {step for step, _ in drawn} == set(at), name


def test_tensorboard_draws_batches_over_env_steps(run):
    steps = [
        step for tag, step, _ in scalars(run.path / "board") if tag == "batch_loss"
    ]
    total = WARMUP + EPOCHS * STEPS
    assert steps == list(range(WARMUP + 8, total + 1, 8))


def test_tensorboard_histograms_of_different_networks_have_different_names(run):
    drawn = [
        (tag, step)
        for tag, step, kind in scalars(run.path / "board")
        if kind == "histograms"
    ]
    assert len(drawn) == len(set(drawn)), "two weights share a name"
    weights = sum(len(net.weights) for net in online(run.agent).values())
    assert len(drawn) >= weights * EPOCHS


def test_tensorboard_draws_one_curve_over_two_fits(case, tmp_path):
    board = keras.callbacks.TensorBoard(tmp_path)
    agent, env = case.light(), case.env()
    agent.fit(
        env, epochs=1, steps_per_epoch=8, batch_size=8, verbose=0, callbacks=[board]
    )
    agent.fit(
        env, epochs=2, initial_epoch=1, steps_per_epoch=8, batch_size=8, verbose=0,
        callbacks=[board],
    )  # fmt: skip
    assert [s for tag, s, _ in scalars(tmp_path) if tag == "epoch_loss"] == [24, 32]


# ------------------------------------------------------- callbacks that interfere


def test_early_stopping_restores_the_best_epoch(case):
    hooks = Hooks()
    agent = case.compiled(rate=0.1)
    history = agent.fit(
        case.env(), epochs=9, steps_per_epoch=8, batch_size=8, seed=1, verbose=0,
        callbacks=[
            Script("episode_return", [1.0, 3.0, 2.0, 2.5, 9.0, 9.0]),
            hooks,
            keras.callbacks.EarlyStopping(
                "episode_return", mode="max", patience=2, restore_best_weights=True
            ),
        ],
    )  # fmt: skip
    assert history.epoch == [0, 1, 2, 3]
    assert same(values(agent), hooks.weights[1])
    assert not same(values(agent), hooks.weights[3])


def test_early_stopping_forgets_the_best_of_an_earlier_fit(case):
    agent, env = case.light(), case.env()
    stop = keras.callbacks.EarlyStopping("episode_return", mode="max", patience=1)
    for best in (5.0, 1.0):
        script = Script("episode_return", [best, best + 1, best, best])
        history = agent.fit(
            env, epochs=4, steps_per_epoch=8, batch_size=8, verbose=0,
            callbacks=[script, stop],
        )  # fmt: skip
        assert history.epoch == [0, 1, 2]


def test_nothing_is_best_before_the_first_episode_has_ended(case):
    """A key that is absent only warns; a NaN would be kept as best for ever."""
    stop = keras.callbacks.EarlyStopping("episode_return", mode="max", patience=1)
    with pytest.warns(UserWarning, match="`episode_return` which is not available"):
        history = case.light().fit(
            case.env(length=30), epochs=4, steps_per_epoch=10, batch_size=8, seed=1,
            verbose=0, callbacks=[stop],
        )  # fmt: skip
    assert np.isfinite(stop.best)
    assert stop.best == history.history["episode_return"][0]


def test_reduce_lr_on_plateau_lowers_the_rate_that_training_uses(case):
    rates, agent = [], case.compiled(rate=0.1)
    agent.fit(
        case.env(), epochs=4, steps_per_epoch=8, batch_size=8, seed=1, verbose=0,
        callbacks=[
            Script("episode_return", [1.0, 1.0, 1.0, 2.0]),
            keras.callbacks.ReduceLROnPlateau(
                "episode_return", mode="max", factor=0.5, patience=1
            ),
            keras.callbacks.LambdaCallback(
                on_epoch_end=lambda epoch, logs: rates.append(
                    (float(agent.optimizer.learning_rate), logs["learning_rate"])
                )
            ),
        ],
    )  # fmt: skip
    assert [rate for rate, _ in rates] == pytest.approx([0.1, 0.05, 0.025, 0.025])


def test_learning_rate_scheduler_reaches_the_compiled_step(case):
    hooks, agent = Hooks(), case.compiled(rate=0.5)
    first = next(iter(online(agent)))
    weights = []
    watch = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: weights.append(values(getattr(agent, first)))
    )
    history = agent.fit(
        case.env(), epochs=3, steps_per_epoch=8, batch_size=8, seed=1, verbose=0,
        callbacks=[
            keras.callbacks.LearningRateScheduler(lambda epoch: [0.1, 0.0, 0.1][epoch]),
            hooks,
            watch,
        ],
    )  # fmt: skip
    assert history.history["learning_rate"] == pytest.approx([0.1, 0.0, 0.1])
    assert same(weights[0], weights[1]), "a rate of 0 still moved weights"
    assert not same(weights[1], weights[2])


def test_terminate_on_nan_stops_in_the_execution(case):
    def broken(y_true, y_pred):
        return keras.ops.mean(y_pred, axis=-1) * float("nan")

    agent = case.compiled(loss=broken)
    history = agent.fit(
        case.env(), epochs=3, steps_per_epoch=40, batch_size=8, seed=1, verbose=0,
        callbacks=[keras.callbacks.TerminateOnNaN()],
    )  # fmt: skip
    assert len(history.epoch) <= 1
    assert agent.env_steps == WARMUP + 8


def test_stop_training_ends_after_the_execution_and_train_end_comes_once(case):
    agent, hooks = case.light(), Hooks()

    def stop(batch, logs):
        agent.stop_training = agent.env_steps >= 40

    agent.fit(
        case.env(), epochs=5, steps_per_epoch=40, batch_size=8, seed=1, verbose=0,
        callbacks=[keras.callbacks.LambdaCallback(on_train_batch_end=stop), hooks],
    )  # fmt: skip
    assert agent.env_steps == 40
    assert hooks.calls.count("train_end") == 1
    # The next fit goes on.
    agent.fit(case.env(), epochs=1, steps_per_epoch=8, batch_size=8, verbose=0)
    assert agent.env_steps == 48


@pytest.mark.parametrize(("key", "stops_at"), [(None, 2), ("episode_return", 3)])
def test_stop_at_return_prefers_the_validation(case, key, stops_at):
    history = case.light().fit(
        case.env(), epochs=5, steps_per_epoch=8, batch_size=8, seed=1, verbose=0,
        callbacks=[
            Script("val_episode_return", [1, 10, 1, 1, 1]),
            Script("episode_return", [1, 1, 10, 1, 1]),
            StopAtReturn(10, *([key] if key else [])),
        ],
    )  # fmt: skip
    assert len(history.epoch) == stops_at


def test_validation_freq_repeats_the_last_numbers_between(case):
    hooks, env = Hooks(), case.env()
    case.light().fit(
        case.env(), epochs=5, steps_per_epoch=8, batch_size=8, seed=1, verbose=0,
        validation_data=env, validation_episodes=2, validation_freq=2,
        callbacks=[hooks],
    )  # fmt: skip
    played = [env.episodes[i : i + 2] for i in range(0, len(env.episodes), 2)]
    means = [np.mean(pair, axis=0)[0] for pair in played]
    seen = [logs["val_episode_return"] for logs in hooks.logs]
    assert len(played) <= 3
    assert seen[1] == seen[2] == pytest.approx(means[-2])
    assert seen[3] == seen[4] == pytest.approx(means[-1])
    assert seen[1] != seen[3]
    assert all(np.isfinite(seen))


def test_the_validation_env_is_seeded_from_seed_but_not_equal_to_the_training_env(case):
    starts = []
    for _ in range(2):
        train, validation = case.env(), case.env()
        case.light().fit(
            train, epochs=2, steps_per_epoch=8, batch_size=8, seed=4, verbose=0,
            validation_data=validation, validation_episodes=2,
        )  # fmt: skip
        starts.append(np.array(validation.starts))
        assert not np.array_equal(train.starts[0], validation.starts[0])
    assert np.array_equal(*starts)
    assert len({start.tobytes() for start in starts[0]}) == len(starts[0]) >= 4
