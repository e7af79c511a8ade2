"""Small builders of default networks."""

from keras_rl2x.networks.builders import actor
from keras_rl2x.networks.builders import critic
from keras_rl2x.networks.builders import q_network

__all__ = ["actor", "critic", "q_network"]
