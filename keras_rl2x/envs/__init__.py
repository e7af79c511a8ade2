"""The gymnasium side: spaces, true transitions, the Atari recipe."""

from keras_rl2x.envs.atari import make_atari
from keras_rl2x.envs.stepper import EnvStepper

__all__ = ["EnvStepper", "make_atari"]
