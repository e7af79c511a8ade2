"""Deep reinforcement learning as it should feel in Keras."""

from keras_rl2x import _backend  # noqa: F401  (first: it may refuse)
from keras_rl2x import callbacks
from keras_rl2x import diagnostics
from keras_rl2x import envs
from keras_rl2x import exploration
from keras_rl2x import layers
from keras_rl2x import memories
from keras_rl2x import networks
from keras_rl2x import ops
from keras_rl2x import types
from keras_rl2x._version import __version__
from keras_rl2x.agents import DDPG
from keras_rl2x.agents import DQN
from keras_rl2x.agents import Agent
from keras_rl2x.memories import ReplayMemory

__all__ = [
    "__version__",
    "DDPG",
    "DQN",
    "Agent",
    "ReplayMemory",
    "callbacks",
    "diagnostics",
    "envs",
    "exploration",
    "layers",
    "memories",
    "networks",
    "ops",
    "types",
]
