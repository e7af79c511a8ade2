"""Keras layers that reinforcement learning needs."""

from keras_rl2x.layers.action_rescaling import ActionRescaling
from keras_rl2x.layers.dueling import DuelingHead
from keras_rl2x.layers.greedy_action import GreedyAction
from keras_rl2x.layers.one_hot import OneHot
from keras_rl2x.layers.running_normalization import RunningNormalization
from keras_rl2x.layers.space_to_depth import SpaceToDepth

__all__ = [
    "ActionRescaling",
    "DuelingHead",
    "GreedyAction",
    "OneHot",
    "RunningNormalization",
    "SpaceToDepth",
]
