"""The state of an environment as plain data, where it can be had.

What an environment will do depends on its own fields, on those of its wrappers and on
its random generators. Classic control, TimeLimit and most environments that people
write hold nothing but numbers and arrays there, which are copied field by field.
Emulators are asked for their state. Nothing is pickled.
"""

import types
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec

from keras_rl2x import plain

# Fields that describe an environment and do not change while it runs, or that lead to
# other layers.
CONSTANT = {"env", "envs", "env_fns", "metadata", "_metadata", "_saved_kwargs"}
CONSTANT |= {"spec", "_cached_spec", "autoreset_mode"}
CODE = (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType)
SETTLING_FRAMES = 16  # all of them sticky: one in four thousand million
OBJECT = "fields of"  # marks the fields of an object within an environment


def get_state(env: Any) -> plain.Frozen:
    """Everything that decides what an environment does next.

    An environment (or wrapper) with methods `get_state()`, which returns plain data,
    and `set_state(state)` is asked for it; an Atari emulator gives its clone, with
    its random numbers; MuJoCo its integration state. Everything else is copied field
    by field, column by column in a `SyncVectorEnv`.

    Args:
        env: environment, single or vector.

    Returns:
        A copy, for `set_state`.

    Raises:
        plain.NotPlain: naming the field that cannot be copied.
    """
    layers = _layers(env)
    seen = {id(layer) for layer in layers.values()}
    states = {name: _layer_state(layer, seen) for name, layer in layers.items()}
    return plain.freeze(states, "env")


def set_state(env: Any, frozen: plain.Frozen) -> None:
    """Puts an environment into a state that `get_state` gave.

    Args:
        env: made in the same way; it has been reset.
        frozen: from `get_state`.

    Raises:
        plain.NotPlain: if it is another environment; nothing has changed then.
        ValueError: if the state is damaged.
    """
    layers, states = _layers(env), plain.thaw(frozen)
    if list(layers) != list(states):
        raise plain.NotPlain(f"it consists of {[*layers]}, where it was {[*states]}")
    for name, layer in layers.items():
        _set_layer_state(layer, states[name])


def _layers(env: Any) -> dict[str, Any]:
    """An environment's wrappers from outside, itself, and those that it consists of."""
    return {f"{_kind(layer)}-{i}": layer for i, layer in enumerate(_walk(env))}


def _walk(env: Any) -> Iterator[Any]:
    while env is not None:
        yield env
        if isinstance(env, gym.vector.SyncVectorEnv):
            for each in env.envs:
                yield from _walk(each)
        env = vars(env).get("env")


def _kind(layer: Any) -> str:
    return type(layer).__name__


def _layer_state(layer: Any, seen: set[int]) -> Any:
    if isinstance(layer, gym.vector.AsyncVectorEnv):
        raise plain.NotPlain(f"the envs of {_kind(layer)} live in other processes")
    if _has_own(layer):
        return {"own": layer.get_state()}
    state, handled = {}, set()
    if hasattr(layer, "clone_state") and "ale" in vars(layer):
        clone = layer.clone_state(include_rng=True)
        _settle(layer, clone)
        state["ale"] = np.frombuffer(clone.serialize(), np.uint8)
        handled = {"ale", "_action_set"}
    elif _is_mujoco(layer):
        state["mujoco"], handled = _mujoco_state(layer), {"model", "data"}
        # Draws pictures; what it draws is in the state.
        handled.add("mujoco_renderer")
    state["fields"] = _fields(layer, handled, seen)
    return state


def _set_layer_state(layer: Any, state: dict) -> None:
    if "own" in state:
        layer.set_state(state["own"])
        return
    if "ale" in state:
        from ale_py import ALEState

        _settle(layer, ALEState(state["ale"].tobytes()))
    if "mujoco" in state:
        import mujoco

        spec = mujoco.mjtState.mjSTATE_INTEGRATION
        mujoco.mj_setState(layer.model, layer.data, state["mujoco"], spec)
    _set_fields(layer, state["fields"])


def _settle(layer: Any, clone: Any) -> None:
    """Puts an Atari emulator into a state, and what the state lacks to a known value.

    A clone holds neither the action that a sticky key repeats nor the last picture,
    of which a game may leave lines standing. So the run that is copied and the one
    that goes on from the copy both have NOOP and these pictures there.
    """
    layer.restore_state(clone)
    for _ in range(SETTLING_FRAMES):
        layer.ale.act(0)
    layer.restore_state(clone)


def _has_own(layer: Any) -> bool:
    # In the class: a wrapper of old answers to every name.
    methods = dir(type(layer))
    return "get_state" in methods and "set_state" in methods and not _is_mujoco(layer)


def _is_mujoco(layer: Any) -> bool:
    data = vars(layer).get("data")
    return type(data).__module__.startswith("mujoco.") and "model" in vars(layer)


def _mujoco_state(layer: Any) -> np.ndarray:
    import mujoco

    spec = mujoco.mjtState.mjSTATE_INTEGRATION
    state = np.empty(mujoco.mj_stateSize(layer.model, spec))
    mujoco.mj_getState(layer.model, layer.data, state, spec)
    return state


def _fields(owner: Any, handled: set[str], seen: set[int]) -> dict[str, Any]:
    fields = {}
    for name, value in vars(owner).items():
        if name in CONSTANT or name in handled or _is_constant(value):
            continue
        if isinstance(value, gym.Space):
            fields[name] = {OBJECT: "space", "generators": _generators(value)}
        elif id(value) in seen:
            continue
        elif _is_plain_object(value):
            seen.add(id(value))
            fields[name] = {OBJECT: _kind(value), "in": _fields(value, set(), seen)}
        else:
            fields[name] = value
    return fields


def _set_fields(owner: Any, fields: dict[str, Any]) -> None:
    for name, value in fields.items():
        if not (isinstance(value, dict) and OBJECT in value):
            setattr(owner, name, value)
        elif value[OBJECT] == "space":
            spaces = _subspaces(getattr(owner, name))
            for space, generator in zip(spaces, value["generators"], strict=True):
                space._np_random = generator
        else:
            _set_fields(getattr(owner, name), value["in"])


def _is_constant(value: Any) -> bool:
    module = type(value).__module__.split(".")[0]
    return isinstance(value, CODE) or type(value) is EnvSpec or module == "pygame"


def _is_plain_object(value: Any) -> bool:
    """Whether an object is no more than its fields: a class written in Python."""
    known = (type(None), bool, int, float, str, list, tuple, dict)
    if isinstance(value, (*known, np.ndarray)) or not hasattr(value, "__dict__"):
        return False
    classes = type(value).__mro__[:-1]
    return not isinstance(value, gym.Env | gym.vector.VectorEnv) and all(
        c.__module__ != "builtins"
        and "__slots__" not in vars(c)
        and hasattr(c, "__weakref__")
        and not c.__module__.startswith(("mujoco", "ale_py", "random", "enum"))
        for c in classes
    )


def _generators(space: gym.Space) -> list:
    return [each._np_random for each in _subspaces(space)]


def _subspaces(space: gym.Space) -> list[gym.Space]:
    inner = getattr(space, "spaces", ())
    inner = inner.values() if isinstance(inner, dict) else inner
    return [space, *(one for each in inner for one in _subspaces(each))]
