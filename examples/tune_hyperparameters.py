"""Search for settings with Optuna, and stop hopeless trials through a Keras callback.

Needs `pip install optuna`. Each trial is a short run on CartPole; a trial whose
greedy return is below the median of the earlier ones at the same epoch is stopped.
About two minutes on two CPU cores with the defaults.
"""

import argparse

import gymnasium as gym
import keras
import optuna

from keras_rl2x import DQN
from keras_rl2x.callbacks import TargetUpdate

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--trials", type=int, default=8)
parser.add_argument("--epochs", type=int, default=8)
parser.add_argument("--steps-per-epoch", type=int, default=1_000)
parser.add_argument("--startup-trials", type=int, default=3, help="never stopped")
parser.add_argument("--seed", type=int, default=1)
args = parser.parse_args()


class Pruning(keras.callbacks.Callback):
    """Reports the greedy return of each epoch and ends hopeless trials."""

    def __init__(self, trial):
        super().__init__()
        self.trial = trial

    def on_epoch_end(self, epoch, logs=None):
        self.trial.report(logs["val_episode_return"], step=epoch)
        if self.trial.should_prune():
            raise optuna.TrialPruned(f"at epoch {epoch + 1}")


def objective(trial):
    """Trains one agent and returns the mean greedy return of its last epochs."""
    keras.utils.clear_session(free_memory=False)
    env, eval_env = gym.make("CartPole-v1"), gym.make("CartPole-v1")
    width = trial.suggest_categorical("width", [32, 64, 128])
    learning_rate = trial.suggest_float("learning_rate", 1e-4, 3e-3, log=True)
    tau = trial.suggest_float("tau", 1e-3, 0.1, log=True)

    agent = DQN.from_env(env, hidden=(width, width), seed=args.seed)
    agent.compile(optimizer=keras.optimizers.Adam(learning_rate))
    history = agent.fit(
        env,
        epochs=args.epochs,
        steps_per_epoch=args.steps_per_epoch,
        validation_data=eval_env,
        validation_episodes=10,
        callbacks=[TargetUpdate(tau=tau), Pruning(trial)],
        seed=args.seed,  # the same for all: only the settings differ
        verbose=0,
    )
    # One epoch may be luck: the last three count.
    last = history.history["val_episode_return"][-3:]
    return sum(last) / len(last)


study = optuna.create_study(
    direction="maximize",
    sampler=optuna.samplers.TPESampler(seed=args.seed),
    pruner=optuna.pruners.MedianPruner(n_startup_trials=args.startup_trials),
)
study.optimize(objective, n_trials=args.trials)

pruned = study.get_trials(states=[optuna.trial.TrialState.PRUNED])
print(f"{len(study.trials)} trials, {len(pruned)} of them stopped early")
print(f"Best mean return {study.best_value:.1f} with:")
for name, value in study.best_params.items():
    print(f"  {name} = {value:.4g}")
