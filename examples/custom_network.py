"""Bring your own network: a dueling head, and a trunk that is kept frozen.

A first agent learns CartPole with a network of your own. A second one takes over the
trunk, frozen, and learns only a new head, for a pole that is twice as long. One to
two minutes on two CPU cores.
"""

import argparse

import gymnasium as gym
import keras
import numpy as np

from keras_rl2x import DQN
from keras_rl2x.layers import DuelingHead

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=15)
parser.add_argument("--steps-per-epoch", type=int, default=1_000)
parser.add_argument("--seed", type=int, default=1)
args = parser.parse_args()
keras.utils.set_random_seed(args.seed)  # the initial weights of our own layers


def train(agent, env):
    """Trains and returns the greedy return over 20 episodes."""
    agent.compile()
    agent.fit(
        env,
        epochs=args.epochs,
        steps_per_epoch=args.steps_per_epoch,
        seed=args.seed,
        verbose=2,
    )
    return agent.evaluate(env, episodes=20, seed=args.seed)["episode_return"]


# Any model from observations to one Q-value per action: Sequential, functional or
# subclassed. No softmax at the end: Q-values are returns, not probabilities.
trunk = keras.Sequential(
    [
        keras.Input((4,)),
        keras.layers.Dense(128, activation="relu"),
        keras.layers.Dense(128, activation="relu"),
    ],
    name="trunk",
)
observation = keras.Input((4,))
q_values = DuelingHead(2, units=64)(trunk(observation))
network = keras.Model(observation, q_values)

env = gym.make("CartPole-v1")
first = train(DQN(network, double=True, gamma=0.99), env)

# The agent copies the network for its target network; nothing in yours is rewired.
longer = gym.make("CartPole-v1")
longer.unwrapped.length *= 2.0
longer.unwrapped.polemass_length *= 2.0

trunk.trainable = False  # before `compile`: the optimizer sees only what may learn
before = [weight.numpy() for weight in trunk.weights]
features = keras.Input((4,))
new_network = keras.Model(features, DuelingHead(2)(trunk(features)))
agent = DQN(new_network)
second = train(agent, longer)

unchanged = all(map(np.array_equal, before, trunk.get_weights()))
learned = sum(w.numpy().size for w in new_network.trainable_weights)
print(f"CartPole with our own network: mean return {first:.0f}")
print(f"Longer pole: mean return {second:.0f}")
print(f"There, {learned:,} of {new_network.count_params():,} weights learn; ", end="")
print(f"the frozen trunk is unchanged: {unchanged}")
