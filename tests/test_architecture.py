"""Imports go one way, and importing the package changes nothing."""

import ast
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import keras
import pytest

import keras_rl2x

PACKAGE = Path(keras_rl2x.__file__).parent
LEVEL = {
    **dict.fromkeys(("types", "plain", "ops", "_version", "_backend"), 0),
    **dict.fromkeys(("layers", "memories", "envs"), 1),
    **dict.fromkeys(("networks", "exploration"), 2),
    **dict.fromkeys(("experience", "callbacks", "diagnostics", "export"), 3),
    "agents": 4,
    "__init__": 5,
}
# Libraries beyond NumPy and the standard library, by part; other parts of a level
# may import those of the level.
LIBRARIES = {
    "types": set(),
    "plain": set(),
    "_backend": {"keras"},
    "ops": {"keras"},
    "memories": {"keras"},
    "layers": {"keras"},
    "envs": {"gymnasium", "ale_py", "mujoco"},
    "networks": {"keras", "gymnasium"},
    "exploration": {"keras"},
    "experience": set(),
    "callbacks": {"keras", "tensorflow"},
    "diagnostics": {"keras", "tensorflow", "matplotlib"},
    "export": {"keras", "tensorflow", "gymnasium"},
    "agents": {"keras", "tensorflow", "gymnasium"},
    "__init__": {"keras"},
}
# TensorFlow belongs to levels 3 and 4, but for an op that can be exported and for
# the question whether there is a GPU.
EXCEPTIONS = {
    ("layers/greedy_action.py", "tensorflow"),
    ("networks/checks.py", "tensorflow"),
}
FILES = sorted(PACKAGE.rglob("*.py"))


def name_of(path):
    return path.relative_to(PACKAGE).as_posix()


def part_of(path):
    return name_of(path).split("/")[0].removesuffix(".py")


def imports(path):
    """Full names of all modules that a file imports, also inside of functions."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)}: a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_every_part_has_a_level():
    assert {part_of(path) for path in FILES} <= set(LEVEL)


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_imports_go_one_way(path):
    part, own = part_of(path), LEVEL[part_of(path)]
    for module in imports(path):
        library, *rest = module.split(".")
        if library == "keras_rl2x":
            other = rest[0] if rest[0] in LEVEL else "__init__"
            assert other == part or LEVEL[other] < own, f"{part} imports {module}"
        elif library not in {*sys.stdlib_module_names, "numpy"}:
            allowed = library in LIBRARIES[part]
            assert allowed or (name_of(path), library) in EXCEPTIONS, module
            assert not module.startswith(("keras.src", "tensorflow.python")), module


@pytest.mark.parametrize(
    "path", [p for p in FILES if LEVEL[part_of(p)] == 3], ids=name_of
)
def test_no_private_attribute_of_an_agent_is_read_outside_of_agents(path):
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
            owner = getattr(node.value, "attr", getattr(node.value, "id", ""))
            assert owner not in ("agent", "model", "_model"), ast.unparse(node)


def run(code, **environment):
    """Runs Python code in a new process."""
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent), **environment}
    return subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


SIDE_EFFECTS = """
import os, random, signal, sys, threading, warnings
import gymnasium, keras, numpy, tensorflow as tf

def state():
    return {
        "eager": tf.executing_eagerly(),
        "functions eager": tf.config.functions_run_eagerly(),
        "policy": keras.config.dtype_policy().name,
        "floatx": keras.config.floatx(),
        "image layout": keras.config.image_data_format(),
        "traceback filtering": keras.config.is_traceback_filtering_enabled(),
        "random": random.getstate(),
        "numpy": str(numpy.random.get_state()),
        "tensorflow seed": tf.random.get_global_generator().state.numpy().tolist(),
        "jit": tf.config.optimizer.get_jit(),
        "threads": tf.config.threading.get_intra_op_parallelism_threads(),
        "soft placement": tf.config.get_soft_device_placement(),
        "growth": [
            tf.config.experimental.get_memory_growth(d)
            for d in tf.config.list_physical_devices("GPU")
        ],
        "environment": dict(os.environ),
        "numpy errors": numpy.geterr(),
        "numpy print": str(numpy.get_printoptions()),
        "filters": list(warnings.filters),
        "interrupt": signal.getsignal(signal.SIGINT),
        "threads alive": threading.active_count(),
        "hook": sys.excepthook,
        "registry": sorted(gymnasium.registry),
    }

before, modules = state(), set(sys.modules)
import keras_rl2x
after = state()
changed = [name for name in before if before[name] != after[name]]
assert not changed, changed
heavy = {"matplotlib", "mujoco", "onnx", "tf2onnx", "pandas", "optuna", "ray"}
assert not heavy & (set(sys.modules) - modules), set(sys.modules) - modules
print("unchanged")
"""


def test_an_import_has_no_side_effects():
    result = run(SIDE_EFFECTS, KERAS_BACKEND="tensorflow", DISPLAY="")
    assert result.stdout == "unchanged\n", result.stderr[-2_000:]


@pytest.mark.parametrize("backend", ["jax", "numpy"])
def test_another_backend_of_keras_is_refused(backend):
    """By our own error, also where Keras would say that the backend is missing."""
    result = run("import keras_rl2x", KERAS_BACKEND=backend)
    assert "ImportError: keras_rl2x needs the TensorFlow backend" in result.stderr
    assert f"'{backend}'" in result.stderr
    assert "KERAS_BACKEND=tensorflow" in result.stderr


def test_another_backend_in_the_config_file_of_keras_is_refused(monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    spec = importlib.util.spec_from_file_location("copy", PACKAGE / "_backend.py")
    with pytest.raises(ImportError, match="it is 'jax'.*KERAS_BACKEND=tensorflow"):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
