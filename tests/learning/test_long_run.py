"""Nothing grows in a long run."""

import os

import gymnasium as gym
import keras
import psutil
import pytest
import tensorflow as tf

from keras_rl2x import DQN

pytestmark = pytest.mark.slow


class CountsTraces(DQN):
    """Python runs `train_step` only while it is traced (and once as a rehearsal)."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.traces = 0

    def train_step(self, batch):
        if not tf.executing_eagerly():
            self.traces += 1
        return super().train_step(batch)


class Notes(keras.callbacks.Callback):
    """Resident memory in MB, and the traces so far, after every epoch."""

    def __init__(self):
        super().__init__()
        self.process = psutil.Process(os.getpid())
        self.memory, self.traces = [], []

    def on_epoch_end(self, epoch, logs=None):
        self.memory.append(self.process.memory_info().rss / 2**20)
        self.traces.append(self.model.traces)


# Warnings are errors in all tests, so a warning would end this one; what is printed is
# looked at here.
def test_100_000_steps_take_no_more_memory_and_no_more_traces_than_20_000(capfd):
    env = gym.make_vec("CartPole-v1", 4, vectorization_mode="sync")  # acts faster
    agent = CountsTraces.from_env(env, hidden=(8,), seed=0)
    agent.compile(updates_per_step=0.05, warmup_steps=1_000, steps_per_execution=100)
    notes = Notes()
    agent.fit(
        env,
        epochs=10,
        steps_per_epoch=10_000,
        batch_size=32,
        callbacks=[notes],
        seed=0,
        verbose=0,
    )
    assert agent.env_steps == 101_000
    growth = max(notes.memory[2:]) - notes.memory[1]
    assert growth <= 20, [round(memory) for memory in notes.memory]
    assert len(set(notes.traces)) == 1
    assert notes.traces[0] >= 1
    printed = "".join(capfd.readouterr())
    lines = [line for line in printed.splitlines() if not is_start_up_noise(line)]
    assert lines == []


def is_start_up_noise(line):
    """What XLA prints once about its set-up."""
    return "XLA service" in line or "StreamExecutor device" in line
