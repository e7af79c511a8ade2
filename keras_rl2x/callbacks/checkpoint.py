"""Checkpoints from which a run can go on."""

import hashlib
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import keras

from keras_rl2x.ops.checks import check_whole
from keras_rl2x.ops.checks import warn

PREFIX = "checkpoint-"
MANIFEST = "manifest.json"
NAME = re.compile(rf"{PREFIX}\d{{12}}(-\d+)?")


class Checkpoint(keras.callbacks.Callback):
    """Writes the agent and its memory every so many env steps, and at the end.

    Each checkpoint is a directory `checkpoint-<env steps>` with `agent.keras`, which
    `keras.saving.load_model` reads, and the memory. It is written under another
    name, flushed to disk, given a manifest with a SHA-256 of each file and only then
    renamed: a crash at any moment leaves the previous ones intact, and a damaged one
    is noticed. `fit(..., resume=directory)` goes on from the newest complete one; an
    empty or missing directory starts afresh, so the same script can simply be run
    again.

    Args:
        directory: path; created if missing. Other files in it are never touched.
        every: int, env steps between two checkpoints, which fall on the end of the
            execution that reaches the step.
        keep: int, newest checkpoints that stay; older ones are removed.

    Raises:
        ValueError: for numbers below 1.
        OSError: when `fit` starts, if the directory cannot be written.

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

    def set_model(self, model: Any) -> None:
        """Checks that the directory can be written, before `fit` takes a step."""
        super().set_model(model)
        self.directory.mkdir(parents=True, exist_ok=True)
        probe = self.directory / f".{PREFIX}probe-{os.getpid()}"
        probe.touch()
        probe.unlink()
        for leftover in self.directory.glob(f".{PREFIX}*"):
            shutil.rmtree(leftover, ignore_errors=True)
        self._last = model.env_steps

    def on_train_batch_end(self, batch, logs=None):
        if self.model.env_steps // self.every > self._last // self.every:
            self.write()

    def on_train_end(self, logs=None):
        # The last steps count too; after an error `fit` passes no logs.
        if logs is not None and self.model.env_steps > self._last:
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
            self.model.memory.save(temporary / "memory")
            _write_manifest(temporary)
            temporary.rename(final)
            _sync(self.directory)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        self._last = steps
        for old in _checkpoints(self.directory)[self.keep :]:
            # Out of sight first: one that is half removed would look damaged.
            hidden = old.with_name(f".{old.name}.removing")
            shutil.rmtree(hidden, ignore_errors=True)
            shutil.rmtree(old.rename(hidden), ignore_errors=True)
        return final


def newest(directory: str | os.PathLike) -> Path | None:
    """The newest complete checkpoint, or `None`; damaged ones are named and skipped."""
    for path in _checkpoints(Path(directory)):
        problem = _damage(path)
        if problem is None:
            return path
        warn(f"Skipping a damaged checkpoint: {problem}")
    return None


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
    sums = {}
    for path in sorted(p for p in directory.rglob("*") if p.is_file()):
        _sync(path)
        sums[path.relative_to(directory).as_posix()] = _sha256(path)
    manifest = directory / MANIFEST
    manifest.write_text(json.dumps({"sha256": sums}, indent=1))
    _sync(manifest)
    _sync(directory)


def _damage(directory: Path) -> str | None:
    manifest = directory / MANIFEST
    try:
        sums: Any = json.loads(manifest.read_text())["sha256"]
        items = sorted(sums.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return f"{str(manifest)!r} is missing or unreadable."
    for name, expected in items:
        path = directory / name
        if not path.is_file():
            return f"{str(path)!r} is missing."
        if _sha256(path) != expected:
            return f"{str(path)!r} has changed since it was written."
    return None


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
