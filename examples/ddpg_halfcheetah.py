"""DDPG on HalfCheetah-v5: six joints, four environments, checkpoints, resume.

Needs MuJoCo (`pip install keras-rl2x[mujoco]`). The default is 100 000 steps; run it
again with the same `--dir` to go on after an interruption, or with more `--steps`.
"""

import argparse
from pathlib import Path

import gymnasium as gym
import keras

from keras_rl2x import DDPG
from keras_rl2x import ReplayMemory
from keras_rl2x.callbacks import Checkpoint
from keras_rl2x.exploration import GaussianNoise

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=100_000)
parser.add_argument("--steps-per-epoch", type=int, default=5_000)
parser.add_argument("--warmup", type=int, default=10_000, help="random steps first")
parser.add_argument("--batch-size", type=int, default=256)
parser.add_argument("--envs", type=int, default=4)
parser.add_argument("--eval-episodes", type=int, default=5)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--dir", type=Path, default=Path("runs/halfcheetah"))
args = parser.parse_args()
args.dir.mkdir(parents=True, exist_ok=True)

# One call of a vector env is `--envs` steps, so budgets and learning stay the same.
env = gym.make_vec("HalfCheetah-v5", num_envs=args.envs, vectorization_mode="sync")
eval_env = gym.make("HalfCheetah-v5")

agent = DDPG.from_env(env, seed=args.seed)
agent.compile(
    optimizer=keras.optimizers.Adam(1e-3, global_clipnorm=10.0),
    actor_optimizer=keras.optimizers.Adam(3e-4),
    memory=ReplayMemory(max(args.steps, args.warmup)),
    exploration=GaussianNoise(0.1),
    warmup_steps=args.warmup,
)
agent.summary()

epochs = max(1, (args.steps - args.warmup) // args.steps_per_epoch)
history = agent.fit(
    env,
    epochs=epochs,
    steps_per_epoch=args.steps_per_epoch,
    batch_size=args.batch_size,
    validation_data=eval_env,
    validation_episodes=args.eval_episodes,
    validation_freq=4,
    callbacks=[
        keras.callbacks.ModelCheckpoint(
            args.dir / "best.keras",
            monitor="val_episode_return",
            mode="max",
            save_best_only=True,
        ),
        Checkpoint(args.dir / "checkpoints", every=4 * args.steps_per_epoch),
        keras.callbacks.CSVLogger(args.dir / "log.csv", append=True),
    ],
    seed=args.seed,
    verbose=2,
    resume=args.dir / "checkpoints",
)
print(f"{agent.env_steps:,} steps, {agent.gradient_steps:,} gradient steps")

best = keras.saving.load_model(args.dir / "best.keras")
score = best.evaluate(eval_env, episodes=args.eval_episodes, seed=args.seed + 1)
print(
    f"Best agent, after {best.env_steps:,} steps: mean return "
    f"{score['episode_return']:.0f} ± {score['episode_return_std']:.0f}"
)
