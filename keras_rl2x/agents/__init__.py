"""Agents: one file per algorithm."""

from keras_rl2x.agents.agent import Agent
from keras_rl2x.agents.ddpg import DDPG
from keras_rl2x.agents.dqn import DQN

__all__ = ["DDPG", "DQN", "Agent"]
