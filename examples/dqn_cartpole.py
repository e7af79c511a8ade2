"""Double DQN balances a pole: the whole flow in one script.

Trains with the defaults, evaluates greedily after each epoch, stops once the task
is solved, saves the agent, and loads it again. About two minutes on two CPU cores.
"""

import argparse

import gymnasium as gym
import keras

from keras_rl2x import DQN
from keras_rl2x.callbacks import StopAtReturn

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=50, help="at most so many")
parser.add_argument("--steps-per-epoch", type=int, default=1_000)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--out", default="cartpole.keras", help="where to save the agent")
args = parser.parse_args()

# Evaluation gets an environment of its own: it must not break the training episode.
env, eval_env = gym.make("CartPole-v1"), gym.make("CartPole-v1")

# The network is built from the spaces: 4 numbers in, one Q-value per action out.
agent = DQN.from_env(env, seed=args.seed)
agent.compile()
agent.summary()

# A step is one transition of the environment. `episode_return` is what the exploring
# agent collects, `val_episode_return` what the greedy one does; 500 is the maximum.
history = agent.fit(
    env,
    epochs=args.epochs,
    steps_per_epoch=args.steps_per_epoch,
    validation_data=eval_env,
    validation_episodes=20,
    callbacks=[StopAtReturn(475)],
    seed=args.seed,
    verbose=2,
)
returns = history.history["val_episode_return"]
print("Greedy return after each epoch:", *(f"{value:.0f}" for value in returns))

# A saved agent is an ordinary Keras model, and loads without `custom_objects`.
agent.save(args.out)
restored = keras.saving.load_model(args.out)
score = restored.evaluate(eval_env, episodes=20, seed=args.seed)
print(
    f"{args.out}, after {restored.env_steps:,} steps: mean return over 20 episodes "
    f"{score['episode_return']:.1f} ± {score['episode_return_std']:.1f}"
)
