"""Experience from environments: for learning and for evaluation."""

from keras_rl2x.experience.evaluation import run_episodes
from keras_rl2x.experience.replay_generator import ReplayGenerator

__all__ = ["ReplayGenerator", "run_episodes"]
