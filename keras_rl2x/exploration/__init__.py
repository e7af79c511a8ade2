"""How an agent tries things: rules that turn network outputs into actions."""

from keras_rl2x.exploration.boltzmann import Boltzmann
from keras_rl2x.exploration.epsilon_greedy import EpsilonGreedy
from keras_rl2x.exploration.exploration import Exploration
from keras_rl2x.exploration.gaussian_noise import GaussianNoise
from keras_rl2x.exploration.ornstein_uhlenbeck_noise import OrnsteinUhlenbeckNoise

__all__ = [
    "Boltzmann",
    "EpsilonGreedy",
    "Exploration",
    "GaussianNoise",
    "OrnsteinUhlenbeckNoise",
]
