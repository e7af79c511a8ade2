"""The greedy policy as a model of its own."""

import os
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import keras
from gymnasium import Space

from keras_rl2x.envs import spaces
from keras_rl2x.networks import encoding

# format of Keras -> (modules, extra of this package)
NEEDS = {
    "tf_saved_model": ((), ""),
    "onnx": (("onnx", "tf2onnx"), "onnx"),
    "litert": (("ai_edge_litert",), "litert"),
}


def export_policy(
    outputs: Callable[[Any, Any], dict[str, Any]],
    observation_space: Space,
    filepath: str | os.PathLike,
    format: str,
    num_masked: int = 0,
    verbose: bool = False,
    **kwargs: Any,
) -> None:
    """Exports `observation -> outputs(observation, action_mask)`.

    Args:
        outputs: from symbolic observations and mask to named outputs.
        observation_space: of one environment.
        filepath: where to.
        format: one of `NEEDS`.
        num_masked: number of actions of the mask input; 0 for no such input.
        verbose: let Keras print.
        **kwargs: as in `keras.Model.export`.

    Raises:
        ValueError: for an unknown format.
        ImportError: naming the extra to install.
    """
    if format not in NEEDS:
        raise ValueError(
            f"`format` must be one of {list(NEEDS)}. Received: {format!r}."
        )
    modules, extra = NEEDS[format]
    if not all(map(find_spec, modules)):
        raise ImportError(
            f"Exporting as {format} needs {' and '.join(modules)}: "
            f"`pip install keras-rl2x[{extra}]`."
        )
    model = policy_model(outputs, observation_space, num_masked)
    model.export(os.fspath(filepath), format=format, verbose=verbose, **kwargs)


def policy_model(
    outputs: Callable[[Any, Any], dict[str, Any]],
    observation_space: Space,
    num_masked: int = 0,
) -> keras.Model:
    """The policy as a functional model with named inputs and outputs."""
    observation = encoding.inputs(observation_space)
    inputs = (
        dict(observation)
        if isinstance(observation, dict)
        else {"observation": observation}
    )
    example = spaces.zeros(observation_space, 1)
    examples = dict(example) if isinstance(example, dict) else {"observation": example}
    mask = None
    if num_masked:
        mask = inputs["action_mask"] = keras.Input(
            (num_masked,), dtype="bool", name="action_mask"
        )
        examples["action_mask"] = [[True] * num_masked]
    model = keras.Model(inputs, outputs(observation, mask), name="policy")
    # Keras exports what it has seen: one real call.
    model({name: keras.ops.convert_to_tensor(x) for name, x in examples.items()})
    return model
