"""Checkpoints from which a run can go on."""

import errno
import json
import os
import re
import shutil
import weakref
from inspect import signature
from pathlib import Path
from typing import Any

import keras

from keras_rl2x import plain
from keras_rl2x.memories import storage
from keras_rl2x.memories.storage import sha256
from keras_rl2x.ops.checks import check_whole
from keras_rl2x.ops.checks import warn

try:
    import fcntl
except ImportError:  # Windows, where a directory cannot be locked
    fcntl = None

PREFIX = "checkpoint-"
MANIFEST = "manifest.json"
NAME = re.compile(rf"{PREFIX}\d{{12}}(-\d+)?")


class Checkpoint(keras.callbacks.Callback):
    """Writes the agent, its memory and the run every so many env steps and at the end.

    Each checkpoint is a directory `checkpoint-<env steps>` with `agent.keras`, which
    `keras.saving.load_model` reads, the memory, and the run: the env with its episode,
    random streams, the epoch's means and what other callbacks remember. It is written
    under another
    name, flushed to disk, given a manifest with a SHA-256 of each file and only then
    renamed: a crash at any moment leaves the previous ones intact, and a damaged one
    is noticed. `fit(..., resume=directory)` goes on from the newest complete one; an
    empty or missing directory starts afresh, so the same script can simply be run
    again.

    A run that was killed and resumed computes what it would have computed, bit for bit
    on a CPU, where the env can be copied (see `envs.env_state`); with another env
    `fit` says that a new episode begins. On SIGTERM `fit` writes a checkpoint at the
    end of the execution and raises `SystemExit(143)`.

    While `fit` runs the directory is locked, where the system can: two runs would
    remove each other's checkpoints.

    Args:
        directory: path; created if missing. Other files in it are never touched.
        every: int, env steps between two checkpoints, which fall on the end of the
            execution that reaches the step.
        keep: int, newest checkpoints that stay; older ones are removed.

    Raises:
        ValueError: for numbers below 1.
        OSError: when `fit` starts, if the directory cannot be written or another run
            writes there; later where a write fails, as on a full disk.

    Example:
    ```python
    agent.fit(env, epochs=50, callbacks=[Checkpoint("run", every=10_000)],
              resume="run")
    ```
    """

    def __init__(self, directory: str | os.PathLike, every: int, keep: int = 2):
        super().__init__()
        self.directory = Path(directory)
        self.every, self.keep = check_whole("every", every), check_whole("keep", keep)
        self._unlock: Any = None

    def set_model(self, model: Any) -> None:
        """Checks that the directory can be written, before `fit` takes a step."""
        super().set_model(model)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.release()
        if fcntl is not None:
            # Closing it unlocks; so does the end of the process, however it comes.
            self._unlock = weakref.finalize(self, os.close, _lock(self.directory))
        probe = self.directory / f".{PREFIX}probe-{os.getpid()}"
        probe.touch()
        probe.unlink()
        for leftover in self.directory.glob(f".{PREFIX}*"):
            shutil.rmtree(leftover, ignore_errors=True)
        self._last, self._written = model.env_steps, None

    def on_train_batch_end(self, batch, logs=None):
        # At the end of an epoch the other callbacks come first: `on_epoch_end`.
        steps = self.params.get("steps") if self.params else None
        if self._is_due() and self.model.progress.epoch_steps != steps:
            self.write()

    def on_epoch_end(self, epoch, logs=None):
        if self._is_due():
            self.write()

    def _is_due(self) -> bool:
        return self.model.env_steps // self.every > self._last // self.every

    def on_train_end(self, logs=None):
        # The last steps count too; after an error `fit` passes no logs.
        try:
            if logs is not None:
                self.write_last()
        finally:
            self.release()

    def release(self) -> None:
        """Lets another run have the directory."""
        if self._unlock is not None:
            self._unlock()

    def write_last(self) -> None:
        """Writes a checkpoint unless the last one is of the same env step."""
        if self.model.env_steps > self._last:
            self.write()

    def write(self) -> Path:
        """Writes a checkpoint now and returns its directory."""
        steps = self.model.env_steps
        final = _free_name(self.directory, f"{PREFIX}{steps:012d}")
        temporary = self.directory / f".{final.name}.writing"
        shutil.rmtree(temporary, ignore_errors=True)
        try:
            temporary.mkdir(parents=True)
            self.model.save(temporary / "agent.keras")
            self._save_memory(temporary / "memory")
            state = self.model.run_state()
            if state is not None:
                plain.write(temporary / "run", state)
            _write_manifest(temporary)
            temporary.rename(final)
            _sync(self.directory)
        except OSError as error:
            shutil.rmtree(temporary, ignore_errors=True)
            free = shutil.disk_usage(self.directory).free / 2**20
            raise OSError(
                error.errno or errno.EIO,
                f"Could not write a checkpoint at step {steps} ({error}). "
                f"{free:,.1f} MiB are free. The checkpoints before it are intact, and "
                "the agent is as it was; `fit` may be called again",
                str(final),
            ) from error
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        self._last, self._written = steps, final
        for old in _checkpoints(self.directory)[self.keep :]:
            # Out of sight first: one that is half removed would look damaged.
            hidden = old.with_name(f".{old.name}.removing")
            shutil.rmtree(hidden, ignore_errors=True)
            shutil.rmtree(old.rename(hidden), ignore_errors=True)
        return final

    def _save_memory(self, directory: Path) -> None:
        """Takes what has not changed from the last checkpoint, if it is still there.

        A memory of a user's own need not know how.
        """
        memory, earlier = self.model.memory, {}
        if self._written is not None and "earlier" in signature(memory.save).parameters:
            last = self._written / "memory"
            earlier = {"earlier": last} if last.exists() else {}
        memory.save(directory, **earlier)


def newest(directory: str | os.PathLike) -> Path | None:
    """The newest complete checkpoint, or `None`; damaged ones are named and skipped."""
    for path in _checkpoints(Path(directory)):
        problem = _damage(path)
        if problem is None:
            return path
        warn(f"Skipping a damaged checkpoint: {problem}")
    return None


def _lock(directory: Path) -> int:
    """Locks a directory against other runs, and returns its descriptor."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise OSError(
            errno.EBUSY,
            "Another run writes its checkpoints here, and the two would remove each "
            "other's. Give this one a directory of its own, or wait for the other to "
            "end",
            str(directory),
        ) from None
    except OSError:  # some network file systems have no locks
        return descriptor
    return descriptor


def _checkpoints(directory: Path) -> list[Path]:
    """All checkpoints, the one written last first."""
    found = [p for p in directory.glob(f"{PREFIX}*") if NAME.fullmatch(p.name)]
    return sorted(found, key=lambda path: (path.stat().st_mtime_ns, path.name))[::-1]


def _free_name(directory: Path, name: str) -> Path:
    """A name that no checkpoint has yet; replacing one could lose both to a crash."""
    path, number = directory / name, 1
    while path.exists():
        path, number = directory / f"{name}-{number}", number + 1
    return path


def _write_manifest(directory: Path) -> None:
    """Flushes every file to disk, then writes their sums, last of all."""
    sums, known = {}, _known_sums(directory / "memory")
    for path in _files(directory):
        _sync(path)
        sums[path.relative_to(directory).as_posix()] = known.get(path) or sha256(path)
    manifest = directory / MANIFEST
    manifest.write_text(json.dumps({"sha256": sums}, indent=1))
    _sync(manifest)
    _sync(directory)


def _files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file())


def _known_sums(memory: Path) -> dict[Path, str]:
    """Sums that a memory has just written itself; its files may be large."""
    try:
        sums = storage.read_facts(memory)["sha256"]
    except ValueError:  # a memory of a user's own
        return {}
    return {memory / name: sum_ for name, sum_ in sums.items()}


def _damage(directory: Path) -> str | None:
    manifest = directory / MANIFEST
    try:
        sums = plain.read_json(plain.read_text(manifest))["sha256"]
        names = set(sums)
    except (OSError, ValueError, KeyError, TypeError):
        return f"{str(manifest)!r} is missing or unreadable."
    found = {path.relative_to(directory).as_posix() for path in _files(directory)}
    # What it names beyond its own files is not even looked at.
    for name in sorted(names - found):
        return f"{str(directory / name)!r} is missing."
    for name in sorted(found - names - {MANIFEST}):
        return f"{str(directory / name)!r} was not written with it."
    for name in sorted(names):
        if sha256(directory / name) != sums[name]:
            return f"{str(directory / name)!r} has changed since it was written."
    return None


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
