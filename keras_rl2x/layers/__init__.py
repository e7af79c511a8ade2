"""Keras layers that reinforcement learning needs."""

from keras_rl2x.layers.action_rescaling import ActionRescaling
from keras_rl2x.layers.dueling import DuelingHead
from keras_rl2x.layers.greedy_action import GreedyAction
from keras_rl2x.layers.one_hot import OneHot

__all__ = ["ActionRescaling", "DuelingHead", "GreedyAction", "OneHot"]
