"""Storage of experience in main memory."""

from keras_rl2x.memories.replay_memory import ReplayMemory

__all__ = ["ReplayMemory"]
