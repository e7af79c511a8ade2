"""Keras' own callbacks watch, save, slow down and stop an agent.

Nothing here is written for reinforcement learning. Logs hold `loss`, the agent's own
numbers and the returns; with `validation_data` also `val_episode_return`. One to
two minutes on two CPU cores.
"""

import argparse
import csv
from importlib.util import find_spec
from pathlib import Path

import gymnasium as gym
import keras

from keras_rl2x import DQN

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=30, help="at most so many")
parser.add_argument("--steps-per-epoch", type=int, default=1_000)
parser.add_argument("--patience", type=int, default=10, help="epochs without a best")
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--dir", type=Path, default=Path("runs/callbacks"))
args = parser.parse_args()
args.dir.mkdir(parents=True, exist_ok=True)

env, eval_env = gym.make("CartPole-v1"), gym.make("CartPole-v1")
agent = DQN.from_env(env, seed=args.seed)
agent.compile()

# A return is better when it is higher, which Keras cannot guess from the name.
by_return = {"monitor": "val_episode_return", "mode": "max"}
callbacks = [
    keras.callbacks.ModelCheckpoint(
        args.dir / "best.keras", save_best_only=True, **by_return
    ),
    keras.callbacks.ReduceLROnPlateau(
        factor=0.5, patience=max(1, args.patience // 2), **by_return
    ),
    keras.callbacks.EarlyStopping(
        patience=args.patience, restore_best_weights=True, **by_return
    ),
    keras.callbacks.CSVLogger(args.dir / "log.csv"),
    keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: print(
            f"epoch {epoch + 1:2d}: return {logs['val_episode_return']:5.1f}, "
            f"learning rate {logs['learning_rate']:.1e}"
        )
    ),
]
if find_spec("tensorboard"):  # a package of its own since TensorFlow 2.21
    # Its x-axis is env steps. Look with `tensorboard --logdir runs/callbacks`.
    callbacks.append(keras.callbacks.TensorBoard(args.dir / "board"))

history = agent.fit(
    env,
    epochs=args.epochs,
    steps_per_epoch=args.steps_per_epoch,
    validation_data=eval_env,
    validation_episodes=10,
    callbacks=callbacks,
    seed=args.seed,
    verbose=0,
)
returns = history.history["val_episode_return"]
print(f"Best of {len(returns)} epochs: {max(returns):.1f}")

with open(args.dir / "log.csv") as file:
    rows = list(csv.DictReader(file))
print(f"log.csv: {len(rows)} rows of {', '.join(rows[0])}")

best = keras.saving.load_model(args.dir / "best.keras")
score = best.evaluate(eval_env, episodes=20, seed=args.seed)
print(f"best.keras: mean return {score['episode_return']:.1f} over 20 episodes")
