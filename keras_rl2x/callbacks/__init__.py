"""Keras callbacks that agents use or that users ask for."""

from keras_rl2x.callbacks.checkpoint import Checkpoint
from keras_rl2x.callbacks.stop_at_return import StopAtReturn
from keras_rl2x.callbacks.target_update import TargetUpdate

__all__ = ["Checkpoint", "StopAtReturn", "TargetUpdate"]
