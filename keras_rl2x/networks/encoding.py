"""From observations to features: the inputs of the default networks."""

from typing import Any

import keras
import numpy as np
from gymnasium import spaces as gym_spaces

from keras_rl2x.envs import spaces
from keras_rl2x.layers import OneHot
from keras_rl2x.layers import SpaceToDepth

MAX_BOUND = 1e3  # of a float observation that is scaled by its bounds


def inputs(space: gym_spaces.Space) -> Any:
    """Symbolic inputs for raw observations: one tensor, or a dict of named ones."""
    parts = {
        name: keras.Input(part.shape, dtype=_input_dtype(part), name=name)
        for name, part in spaces.leaves(space).items()
    }
    return parts if isinstance(space, gym_spaces.Dict) else parts["observation"]


def encode(space: gym_spaces.Space, observation: Any, rng: "Seeds") -> Any:
    """Float features `[B, F]` of symbolic observations.

    Images go through the convolutions of `cnn`, integers through a one-hot layer,
    and bounded vectors are scaled to `[-1, 1]`; the parts of a Dict are joined in its
    order.
    """
    parts = observation if isinstance(observation, dict) else {"": observation}
    part_spaces = spaces.leaves(space).values()
    features = [
        _encode_part(part_space, part, rng)
        for part_space, part in zip(part_spaces, parts.values(), strict=True)
    ]
    return features[0] if len(features) == 1 else keras.layers.Concatenate()(features)


def _input_dtype(space: gym_spaces.Space) -> str:
    # Keras' inputs know no float64 policy of the env's: floats are float32.
    if np.issubdtype(space.dtype, np.floating):
        return "float32"
    return np.dtype(space.dtype).name


def _encode_part(space: gym_spaces.Space, x: Any, rng: "Seeds") -> Any:
    if isinstance(space, gym_spaces.Discrete):
        return OneHot([space.n], [space.start])(x)
    if isinstance(space, gym_spaces.MultiDiscrete):
        return OneHot(space.nvec, space.start)(x)
    if spaces.is_image(space):
        return cnn(space.shape, x, rng)
    if spaces.is_pixels(space):
        x = keras.layers.Rescaling(1.0 / 255.0)(x)
    elif not np.issubdtype(space.dtype, np.floating):
        x = keras.layers.Rescaling(1.0)(x)  # a cast
    elif len(space.shape) == 1:
        x = _scale_to_unit(space, x)
    return keras.layers.Reshape((-1,))(x) if len(space.shape) != 1 else x


def _scale_to_unit(space: gym_spaces.Box, x: Any) -> Any:
    """Maps what has bounds to `[-1, 1]`, so that no dimension drowns another.

    A pole's angle of ±0.2 and a cart's way of ±2.4 count alike then. Bounds beyond
    a thousand say more about the range of floats than about the task: left alone, as
    is what has none.
    """
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    bounded = (np.maximum(abs(low), abs(high)) <= MAX_BOUND) & (low < high)
    low, high = np.where(bounded, low, -1.0), np.where(bounded, high, 1.0)
    scale = 2.0 / (high - low)
    offset = -1.0 - low * scale
    if (scale == 1.0).all() and (offset == 0.0).all():
        return x
    return keras.layers.Rescaling(scale.tolist(), offset.tolist())(x)


def cnn(shape: tuple[int, int, int], image: Any, rng: "Seeds") -> Any:
    """Convolutional features of uint8 images in either layout.

    The network of Mnih et al. (2015) for 36×36 pixels and more; for smaller ones two
    layers of 3×3 filters. The cast and the division by 255 happen here, once.
    Channels-first frames are turned round, since TensorFlow does not convolve them on
    every CPU.
    """
    channels_first = spaces.is_channels_first(shape)
    if min(sorted(shape)[1:]) < 36:
        x = keras.layers.Permute((2, 3, 1))(image) if channels_first else image
        x = keras.layers.Rescaling(1.0 / 255.0, name="scale_pixels")(x)
        x = _convolution(32, 3, rng, padding="same")(x)
        x = _convolution(64, 3, rng, padding="same")(x)
        return keras.layers.Flatten(data_format="channels_last")(x)
    # 32 filters of 8×8 with stride 4, 64 of 4×4 with stride 2, 64 of 3×3.
    x = SpaceToDepth(4, channels_first, dtype="uint8", name="patches_4x4")(image)
    x = keras.layers.Rescaling(1.0 / 255.0, name="scale_pixels")(x)
    x = _convolution(32, 2, rng)(x)
    x = SpaceToDepth(2, name="patches_2x2")(x)
    x = _convolution(64, 2, rng)(x)
    x = _convolution(64, 3, rng)(x)
    return keras.layers.Flatten(data_format="channels_last")(x)


def _convolution(
    filters: int, kernel: int, rng: "Seeds", padding: str = "valid"
) -> keras.layers.Layer:
    return keras.layers.Conv2D(
        filters,
        kernel,
        padding=padding,
        activation="relu",
        data_format="channels_last",
        kernel_initializer=rng.initializer("he_uniform"),
    )


class Seeds:
    """Initializers with consecutive seeds, so that equal layers start different.

    Args:
        seed: int or `None` for Keras' global randomness.
    """

    def __init__(self, seed: int | None):
        self._seeds = None if seed is None else np.random.SeedSequence(seed)

    def initializer(self, name: Any, **kwargs: Any) -> keras.initializers.Initializer:
        """The next initializer of a kind, such as `"he_uniform"`."""
        config = {"class_name": name, "config": kwargs}
        initializer = keras.initializers.get(config)
        if self._seeds is None:
            return initializer
        seed = int(self._seeds.spawn(1)[0].generate_state(1)[0])
        return type(initializer).from_config({**initializer.get_config(), "seed": seed})
