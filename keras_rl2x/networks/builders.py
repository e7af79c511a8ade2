"""Default networks, built from the spaces."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from gymnasium import spaces as gym_spaces

from keras_rl2x.envs import spaces
from keras_rl2x.layers import DuelingHead
from keras_rl2x.networks import encoding
from keras_rl2x.ops.checks import check_whole


def default_hidden(observation_space: gym_spaces.Space) -> tuple[int, ...]:
    """Widths of the dense layers: one of 512 behind convolutions, else two of 256."""
    parts = spaces.leaves(observation_space).values()
    return (512,) if any(map(spaces.is_image, parts)) else (256, 256)


def q_network(
    observation_space: gym_spaces.Space,
    num_actions: int,
    hidden: Sequence[int] | None = None,
    dueling: bool = False,
    layer_norm: bool = False,
    seed: int | None = None,
) -> keras.Model:
    """Observation to one Q-value per action.

    An MLP for vectors, the Nature CNN for uint8 images in either layout, one-hot
    for Discrete observations, named inputs for a Dict. Bounded vectors are scaled to
    `[-1, 1]`.

    Args:
        observation_space: of one environment.
        num_actions: int, number of outputs.
        hidden: widths of the dense ReLU layers; defaults to `(256, 256)`, or
            `(512,)` behind convolutions.
        dueling: use a `DuelingHead`.
        layer_norm: normalise each dense layer before its ReLU (Ba, Kiros and Hinton,
            2016), which keeps bootstrapped values from running away.
        seed: int or `None`, of the initial weights.

    Returns:
        `keras.Model`: `[B, ...]` to `[B, num_actions]` float32.

    Example:
    ```python
    network = q_network(env.observation_space, env.action_space.n, dueling=True)
    agent = DQN(network)
    ```
    """
    spaces.check_observation_space(observation_space)
    rng = encoding.Seeds(seed)
    observation = encoding.inputs(observation_space)
    x = _hidden(
        encoding.encode(observation_space, observation, rng),
        default_hidden(observation_space) if hidden is None else hidden,
        rng,
        layer_norm,
    )
    # Outputs stay float32 under a mixed precision policy.
    if dueling:
        head = DuelingHead(
            num_actions,
            kernel_initializer=rng.initializer("glorot_uniform"),
            name="q_values",
            dtype="float32",
        )
    else:
        head = keras.layers.Dense(
            int(num_actions),
            kernel_initializer=rng.initializer("glorot_uniform"),
            name="q_values",
            dtype="float32",
        )
    return keras.Model(observation, head(x), name="q_network")


def actor(
    observation_space: gym_spaces.Space,
    action_space: gym_spaces.Box,
    hidden: Sequence[int] | None = None,
    seed: int | None = None,
) -> keras.Model:
    """Observation to a deterministic action in `[-1, 1]` per dimension.

    The last layer starts at ±3e-3, so that tanh starts where its slope is one.

    Source: Lillicrap et al., 2015.

    Args:
        observation_space: of one environment.
        action_space: Box, of one environment.
        hidden: widths of the dense ReLU layers; as in `q_network`.
        seed: int or `None`, of the initial weights.

    Returns:
        `keras.Model`: `[B, ...]` to `[B, A]` float32, after tanh.
    """
    spaces.check_observation_space(observation_space)
    rng = encoding.Seeds(seed)
    observation = encoding.inputs(observation_space)
    x = _hidden(
        encoding.encode(observation_space, observation, rng),
        default_hidden(observation_space) if hidden is None else hidden,
        rng,
    )
    action = keras.layers.Dense(
        int(np.prod(action_space.shape, dtype=int)),
        activation="tanh",
        kernel_initializer=_small(rng),
        name="action",
        dtype="float32",
    )(x)
    return keras.Model(observation, action, name="actor")


def critic(
    observation_space: gym_spaces.Space,
    action_space: gym_spaces.Box,
    hidden: Sequence[int] | None = None,
    seed: int | None = None,
) -> keras.Model:
    """Observation and action to the value of taking it.

    Args:
        observation_space: of one environment.
        action_space: Box, of one environment.
        hidden: widths of the dense ReLU layers; as in `q_network`.
        seed: int or `None`, of the initial weights.

    Returns:
        `keras.Model`: `([B, ...], [B, A] in [-1, 1])` to `[B, 1]` float32.
    """
    spaces.check_observation_space(observation_space)
    rng = encoding.Seeds(seed)
    observation = encoding.inputs(observation_space)
    size = int(np.prod(action_space.shape, dtype=int))
    action = keras.Input((size,), name="action")
    features = encoding.encode(observation_space, observation, rng)
    x = _hidden(
        keras.layers.Concatenate()([features, action]),
        default_hidden(observation_space) if hidden is None else hidden,
        rng,
    )
    value = keras.layers.Dense(
        1, kernel_initializer=_small(rng), name="value", dtype="float32"
    )(x)
    return keras.Model([observation, action], value, name="critic")


def _hidden(
    x: Any, widths: Sequence[int], rng: encoding.Seeds, layer_norm: bool = False
) -> Any:
    if isinstance(widths, str) or not isinstance(widths, Sequence):
        raise ValueError(
            "`hidden` must be the widths of the dense layers, such as `(256, 256)`. "
            f"Received: {widths!r}."
        )
    for width in widths:
        check_whole("hidden", width)
        x = keras.layers.Dense(
            int(width),
            activation=None if layer_norm else "relu",
            kernel_initializer=rng.initializer("he_uniform"),
        )(x)
        if layer_norm:
            x = keras.layers.LayerNormalization()(x)
            x = keras.layers.Activation("relu")(x)
    return x


def _small(rng: encoding.Seeds) -> keras.initializers.Initializer:
    return rng.initializer("random_uniform", minval=-3e-3, maxval=3e-3)
