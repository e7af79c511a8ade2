"""What callbacks remember, as plain data.

Keras' own callbacks (and most others) keep what they remember in attributes: the best
value so far, how long they have been waiting, the best weights. What has changed since
the training began is what a resumed run has to be told; arguments never change.
"""

from typing import Any

import keras

from keras_rl2x import plain

IGNORED = ("params", "_params", "_model", "model", "validation_data")


def fields(callback: keras.callbacks.Callback) -> dict[str, plain.Frozen]:
    """Copies of all attributes of a callback that are plain data."""
    found = {}
    for name, value in vars(callback).items():
        if name not in IGNORED:
            try:
                found[name] = plain.freeze(value)
            except plain.NotPlain:
                continue
    return found


def get_state(callback: Any, before: dict[str, plain.Frozen]) -> dict[str, Any]:
    """What a callback remembers: its own `get_state`, or the fields that changed.

    Args:
        callback: any.
        before: its `fields` at the beginning of the training.
    """
    if has_own(callback):
        return {"own": callback.get_state()}
    changed = {
        name: tuple(value)
        for name, value in fields(callback).items()
        if not _same(value, before.get(name))
    }
    return {"fields": changed}


def set_state(callback: Any, state: dict[str, Any]) -> None:
    """Takes back what `get_state` gave."""
    if "own" in state:
        callback.set_state(state["own"])
        return
    for name, value in state["fields"].items():
        setattr(callback, name, plain.thaw(plain.Frozen(*value)))


def has_own(callback: Any) -> bool:
    """Whether a callback says itself what it remembers."""
    return hasattr(callback, "get_state") and hasattr(callback, "set_state")


def _same(one: plain.Frozen, other: plain.Frozen | None) -> bool:
    if other is None or one.text != other.text:
        return False
    return one.data.tobytes() == other.data.tobytes()
