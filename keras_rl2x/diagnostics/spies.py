"""Looking at what layers receive and return, and standing in for methods."""

import contextlib
import functools
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from typing import Any
from typing import NamedTuple

import keras


class Call(NamedTuple):
    """One call of a layer."""

    layer: keras.layers.Layer
    inputs: Any
    outputs: Any


@contextlib.contextmanager
def watched(layers: Iterable[keras.layers.Layer]) -> Iterator[list[Call]]:
    """Collects the calls of some layers, whoever makes them.

    Works for every kind of model, since Keras looks up `layer.call` at each call; what
    a forward hook is in PyTorch. Put back afterwards.
    """
    calls: list[Call] = []
    with contextlib.ExitStack() as stack:
        for layer in {id(layer): layer for layer in layers}.values():
            stack.enter_context(replaced(layer, call=_spy(layer, layer.call, calls)))
        yield calls


def _spy(layer: keras.layers.Layer, call: Callable, calls: list[Call]) -> Callable:
    @functools.wraps(call)  # Keras, and our critics, read the signature
    def spy(*args: Any, **kwargs: Any) -> Any:
        outputs = call(*args, **kwargs)
        calls.append(Call(layer, args[0] if args else None, outputs))
        return outputs

    return spy


@contextlib.contextmanager
def replaced(thing: Any, **methods: Callable) -> Iterator[None]:
    """Lets functions stand in for methods of one object.

    Past Keras' own `__setattr__`, which would track them.
    """
    before = {name: vars(thing)[name] for name in methods if name in vars(thing)}
    for name, method in methods.items():
        object.__setattr__(thing, name, method)
    try:
        yield
    finally:
        for name in methods:
            if name in before:
                object.__setattr__(thing, name, before[name])
            else:
                object.__delattr__(thing, name)
