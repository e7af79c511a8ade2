"""`Checkpoint` and `fit(resume=…)` for every agent."""

import os
import shutil
import subprocess
import sys
import warnings
from types import SimpleNamespace

import gymnasium as gym
import keras
import numpy as np
import pytest

from keras_rl2x import ReplayMemory
from keras_rl2x.callbacks import Checkpoint
from keras_rl2x.callbacks.checkpoint import newest
from tests.agents.contract import AGENTS
from tests.agents.contract import account
from tests.agents.contract import digest

FIT = {"steps_per_epoch": 20, "batch_size": 8, "verbose": 0}


def fitted(case, directory, epochs=2, keep=2, every=8, callbacks=(), **kwargs):
    agent = case.light(**kwargs)
    checkpoint = Checkpoint(directory, every=every, keep=keep)
    agent.fit(
        case.env(), epochs=epochs, seed=1, callbacks=[checkpoint, *callbacks], **FIT
    )
    return agent


def checkpoints(directory):
    return sorted(path.name for path in directory.glob("checkpoint-*"))


def resumed(case, directory, epochs=3, seed=9, **kwargs):
    agent = case.light(seed)
    agent.fit(case.env(), epochs=epochs, resume=directory, seed=seed, **kwargs, **FIT)
    return agent


@pytest.fixture(scope="module")
def run(case, tmp_path_factory):
    """A run of 2 epochs of 20 steps after a warm-up of 16, and what was written."""
    directory = tmp_path_factory.mktemp("run")
    seen = {}
    watch = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: seen.update(
            {agent.env_steps: (account(agent), digest(agent))}
        )
    )
    agent = case.compiled()
    # Executions of 8, 8 and 4 steps: checkpoints at 24, 32, 36 (no: not a multiple
    # of 8 was crossed), 44, 52 and 56.
    agent.fit(
        case.env(), epochs=2, seed=1, **FIT,
        callbacks=[Checkpoint(directory, every=8, keep=3), watch],
    )  # fmt: skip
    return SimpleNamespace(agent=agent, directory=directory, seen=seen)


@pytest.fixture(scope="module")
def written(case, tmp_path_factory):
    """As `run`, of an agent that learns nothing."""
    directory = tmp_path_factory.mktemp("written")
    fitted(case, directory, keep=3)
    return directory


@pytest.fixture
def directory(written, tmp_path):
    """A copy to damage."""
    shutil.copytree(written, tmp_path / "run")
    return tmp_path / "run"


def test_checkpoints_fall_on_the_executions_that_reach_a_multiple(run):
    assert sorted(run.seen) == [24, 32, 36, 44, 52, 56]
    assert checkpoints(run.directory) == [
        f"checkpoint-{steps:012d}" for steps in (44, 52, 56)
    ]
    assert sorted(path.name for path in run.directory.iterdir()) == checkpoints(
        run.directory
    ), "something else was left behind"


def test_a_checkpoint_holds_the_agent_and_its_memory_as_they_were(case, run):
    for steps in (44, 56):
        path = run.directory / f"checkpoint-{steps:012d}"
        agent = keras.saving.load_model(path / "agent.keras")
        expected, _ = run.seen[steps]
        case.compile(agent, memory=ReplayMemory.load(path / "memory"))
        found = account(agent)
        for name in ("networks", "state", "rows", "actions"):
            assert found[name] == expected[name], name
        assert agent.env_steps == len(agent.memory) == steps


def test_resuming_goes_on_with_everything(case, run):
    agent = case.compiled(seed=5)
    env, begins, epochs = case.env(), [], []
    watch = keras.callbacks.LambdaCallback(
        on_train_begin=lambda logs: begins.append((account(agent), digest(agent))),
        on_epoch_end=lambda epoch, logs: epochs.append((epoch, agent.env_steps)),
    )
    agent.fit(env, epochs=4, resume=run.directory, callbacks=[watch], **FIT)
    ((found, whole),) = begins
    expected, digested = run.seen[56]
    assert whole == digested, "not the state of the newest checkpoint"
    del found["name"], expected["name"]
    assert found == expected
    # 56 steps were the end of epoch 2: epochs 3 and 4 are left.
    assert epochs[-2:] == [(2, 76), (3, 96)]
    assert agent.env_steps == 96
    assert len(agent.memory) == 96
    assert agent.gradient_steps == 80
    assert int(agent.optimizer.iterations.numpy()) == 80


def test_resuming_in_the_middle_of_an_epoch_finishes_it(case, directory):
    shutil.rmtree(directory / "checkpoint-000000000056")
    agent, epochs = case.light(5), []
    watch = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: epochs.append((epoch, agent.env_steps))
    )
    history = agent.fit(
        case.env(), epochs=3, resume=directory, callbacks=[watch], **FIT
    )
    assert epochs == [(1, 56), (2, 76)]
    assert len(history.history["loss"]) == 2


def test_every_epoch_after_resuming_learns_and_logs_a_loss(case, written):
    history = case.light(5).fit(case.env(), epochs=4, resume=written, **FIT)
    assert history.epoch == [2, 3]
    assert len(history.history["loss"]) == 2


def test_a_finished_run_is_not_trained_further(case, written):
    agent = case.light(5)
    agent.fit(case.env(), epochs=2, resume=written, **FIT)
    assert agent.env_steps == 56
    # And a later plain fit trains as many epochs as it says.
    agent.fit(case.env(), epochs=2, **FIT)
    assert agent.env_steps == 96


@pytest.mark.parametrize("exists", [True, False])
def test_an_empty_or_missing_directory_starts_afresh(case, tmp_path, exists):
    directory = tmp_path / "run"
    if exists:
        directory.mkdir()
    agent = resumed(case, directory, epochs=1)
    assert agent.env_steps == 36


def test_the_same_script_run_twice_goes_on(case, tmp_path):
    for epochs, steps in ((1, 36), (2, 56)):
        agent = case.light()
        agent.fit(
            case.env(), epochs=epochs, seed=1, resume=tmp_path / "run", **FIT,
            callbacks=[Checkpoint(tmp_path / "run", every=4)],
        )  # fmt: skip
        assert agent.env_steps == steps


# ------------------------------------------------------------------ crashes, damage


class Crash(BaseException):
    """The process is killed."""


class Disk:
    """Lets so many operations on files through; then the process is dead.

    Nothing after that happens either, such as cleaning up.
    """

    def __init__(self, patch, operations):
        self.left = operations
        for module, name in (
            (os, "fsync"),
            (os, "mkdir"),
            (os, "rename"),
            (os, "replace"),
            (shutil, "rmtree"),
        ):
            patch.setattr(module, name, self.counting(getattr(module, name)))

    def counting(self, operation):
        def counted(*args, **kwargs):
            self.left -= 1
            if self.left < 0:
                raise Crash
            return operation(*args, **kwargs)

        return counted


@pytest.mark.parametrize("ahead", [20, 0], ids=["further", "same-step"])
def test_a_kill_at_any_moment_of_a_write_leaves_a_complete_checkpoint(
    tmp_path, monkeypatch, ahead
):
    case = AGENTS[0]
    agent = fitted(case, tmp_path, epochs=1, every=36, keep=1)
    (first,) = checkpoints(tmp_path)
    checkpoint = Checkpoint(tmp_path, every=1, keep=1)
    checkpoint.set_model(agent)
    agent.progress.env_steps += ahead
    for operations in range(100):
        try:
            with monkeypatch.context() as patch:
                Disk(patch, operations)
                checkpoint.write()
        except Crash:
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # of damaged ones
                found = newest(tmp_path)
            assert found is not None, f"lost after {operations} operations"
            assert (found / "agent.keras").exists()
        else:
            break
    assert operations > 5
    (last,) = checkpoints(tmp_path)
    assert last.startswith(f"checkpoint-{36 + ahead:012d}")
    other = case.light(9)
    other.fit(case.env(), epochs=1, resume=tmp_path, **FIT)
    assert other.env_steps == 36 + ahead
    assert first == "checkpoint-000000000036"


def damage(path, how):
    content = path.read_bytes()
    if how == "flip":
        middle = len(content) // 2
        content = (
            content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
        )
    elif how == "cut":
        content = content[: len(content) // 2]
    path.unlink()
    if how != "remove":
        path.write_bytes(content)


@pytest.mark.parametrize(
    ("file", "how"),
    [
        ("agent.keras", "flip"),
        ("agent.keras", "remove"),
        ("memory/reward.npy", "cut"),
        ("memory/memory.json", "remove"),
        ("manifest.json", "cut"),
        ("manifest.json", "remove"),
    ],
)
def test_a_damaged_newest_checkpoint_is_named_and_skipped(case, directory, file, how):
    newest_one = directory / "checkpoint-000000000056"
    damage(newest_one / file, how)
    agent = case.light(9)
    with pytest.warns(UserWarning, match=f"damaged.*{file.split('/')[-1]}"):
        agent.fit(case.env(), epochs=2, resume=directory, **FIT)
    # 52 was the newest one left: epoch 2 is finished from there.
    assert agent.env_steps == 56
    assert agent.gradient_steps == 40


def test_all_damaged_says_so_for_each_and_starts_afresh(case, directory):
    for path in directory.iterdir():
        damage(path / "agent.keras", "cut")
    agent = case.light(9)
    with pytest.warns(UserWarning, match="damaged") as seen:
        agent.fit(case.env(), epochs=1, resume=directory, **FIT)
    assert len(seen) == 3
    assert agent.env_steps == 36


def test_a_half_written_checkpoint_of_a_killed_process_is_ignored_and_removed(
    case, directory
):
    half = directory / ".checkpoint-000000000064.writing"
    shutil.copytree(directory / "checkpoint-000000000056", half)
    (half / "manifest.json").unlink()
    agent = case.light(9)
    agent.fit(
        case.env(), epochs=3, resume=directory, **FIT,
        callbacks=[Checkpoint(directory, every=1000)],
    )  # fmt: skip
    assert agent.env_steps == 76
    assert not half.exists()


def test_a_checkpoint_of_another_agent_is_refused_and_nothing_changes(case, directory):
    agent = case.compile(case.make(hidden=(20,)))
    before, memory = digest(agent), agent.memory
    with pytest.raises(ValueError):
        agent.fit(case.env(), epochs=3, resume=directory, **FIT)
    assert digest(agent) == before
    assert agent.memory is memory


# ------------------------------------------------------------------ the directory


def test_foreign_files_are_left_alone_and_only_the_newest_are_kept(case, tmp_path):
    (tmp_path / "results.csv").write_text("1,2")
    (tmp_path / "checkpoint-notes").mkdir()
    (tmp_path / "checkpoint-7.txt").write_text("mine")
    fitted(case, tmp_path, epochs=3, every=4, keep=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "checkpoint-000000000072",
        "checkpoint-000000000076",
        "checkpoint-7.txt",
        "checkpoint-notes",
        "results.csv",
    ]


def test_a_directory_that_cannot_be_written_fails_when_fit_starts(case, tmp_path):
    (tmp_path / "file").write_text("in the way")
    agent, env = case.light(), case.env()
    with pytest.raises(OSError, match="file"):
        agent.fit(env, callbacks=[Checkpoint(tmp_path / "file", every=10)], **FIT)
    assert agent.gradient_steps == 0
    assert env.steps == 0, "the warm-up was taken first"


OTHER_RUN = """
import sys
import keras
from keras_rl2x.callbacks import Checkpoint
checkpoint = Checkpoint(sys.argv[1], every=1)
checkpoint.set_model(type("Agent", (), {"env_steps": 0})())
print("writes", flush=True)
sys.stdin.read()
"""


def test_two_runs_do_not_share_a_directory(tmp_path):
    case = AGENTS[0]
    command = [sys.executable, "-c", OTHER_RUN, str(tmp_path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as other:
        assert other.stdout.readline() == "writes\n"
        half = tmp_path / ".checkpoint-000000000008.writing"
        half.mkdir()
        agent, env = case.light(), case.env()
        for _ in range(2):
            with pytest.raises(OSError, match="Another run writes its checkpoints"):
                agent.fit(env, callbacks=[Checkpoint(tmp_path, every=4)], **FIT)
        assert half.exists(), "the other one was writing it"
        assert env.steps == 0, "the warm-up was taken first"
        other.kill()
    agent.fit(env, callbacks=[Checkpoint(tmp_path, every=4)], **FIT)
    assert not half.exists()


def test_a_directory_is_free_again_after_fit_however_it_ended(tmp_path):
    case = AGENTS[0]
    kept = [Checkpoint(tmp_path, every=4) for _ in range(3)]
    agent = case.light()
    with pytest.raises(OSError, match="Another run"):
        agent.fit(case.env(), callbacks=kept[:2], **FIT)
    agent.fit(case.env(), callbacks=kept[:1], **FIT)

    def fail(epoch, logs):
        raise RuntimeError("mine")

    failing = keras.callbacks.LambdaCallback(on_epoch_end=fail)
    with pytest.raises(RuntimeError, match="mine"):
        agent.fit(case.env(), callbacks=[kept[1], failing], **FIT)
    with pytest.raises(RuntimeError, match="broken"):
        case.light().fit(Broken(case.env()), callbacks=[kept[1]], **FIT)
    agent.fit(case.env(), callbacks=[kept[2]], **FIT)


class Broken(gym.Wrapper):
    """Fails at its first step, which is one of the warm-up."""

    def step(self, action):
        raise RuntimeError("broken")


def test_an_error_while_writing_leaves_agent_and_memory_intact(
    case, tmp_path, monkeypatch
):
    agent = fitted(case, tmp_path, epochs=1, every=36)

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    env = case.env()
    with monkeypatch.context() as patch:
        patch.setattr(type(agent.memory), "save", full)
        with pytest.raises(OSError, match="No space left"):
            agent.fit(env, callbacks=[Checkpoint(tmp_path, every=4)], **FIT)
    assert checkpoints(tmp_path) == ["checkpoint-000000000036"]
    assert agent.env_steps == len(agent.memory)
    agent.fit(case.env(), callbacks=[Checkpoint(tmp_path, every=10)], **FIT)
    assert len(checkpoints(tmp_path)) == 2


def test_a_full_disk_is_named_and_costs_no_checkpoint(tmp_path):
    resource = pytest.importorskip("resource")
    case = AGENTS[0]
    agent = fitted(case, tmp_path, epochs=1, every=36)
    before = digest(agent)
    checkpoint = Checkpoint(tmp_path, every=1)
    checkpoint.set_model(agent)
    agent.progress.env_steps += 20
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, limits[1]))
    try:
        with pytest.raises(OSError, match="before it are intact") as raised:
            checkpoint.write()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert raised.value.filename.endswith("checkpoint-000000000056")
    assert "too large" in str(raised.value) or "written" in str(raised.value)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-000000000036"]
    assert newest(tmp_path) is not None
    agent.progress.env_steps -= 20
    assert digest(agent) == before


@pytest.mark.parametrize(
    "arguments", [{"every": 0}, {"every": 5, "keep": 0}, {"every": 2.5}, {"every": "5"}]
)
def test_wrong_numbers_are_refused(tmp_path, arguments):
    with pytest.raises((TypeError, ValueError), match="`every`|`keep`"):
        Checkpoint(tmp_path, **arguments)


def test_a_shorter_run_in_the_directory_of_a_longer_one_is_not_lost(case, tmp_path):
    fitted(case, tmp_path, epochs=2, every=36, keep=1)
    agent = case.light()
    try:
        agent.fit(case.env(), callbacks=[Checkpoint(tmp_path, every=36, keep=1)], **FIT)
    except ValueError as error:
        assert str(tmp_path) in str(error)  # noqa: PT017
        assert agent.env_steps == 0
    else:
        assert any("-000000000036" in name for name in checkpoints(tmp_path))


def test_a_memory_with_the_oldest_rows_gone_is_resumed_exactly(case, tmp_path):
    agent = case.light(memory=ReplayMemory(30))
    agent.fit(
        case.env(), epochs=2, seed=1, **FIT, callbacks=[Checkpoint(tmp_path, every=4)]
    )
    other = case.light(3, memory=ReplayMemory(30))
    other.fit(case.env(), epochs=2, resume=tmp_path, **FIT)
    assert len(other.memory) == len(agent.memory) == 30
    one, two = (
        each.memory.sample(500, rng=np.random.default_rng(0)) for each in (agent, other)
    )
    for first, second in zip(one[:5], two[:5], strict=True):
        assert np.array_equal(first, second)
