"""Double DQN with a CNN learns Pong from pixels, and survives interruptions.

Eight copies of the emulator step together; frames are stored once each. Run it again
with the same `--dir` after Ctrl-C, a crash or a reboot: it goes on from the newest
checkpoint. 200 000 steps show the score leaving -20.7, that of random play; one
million steps are a long run. Prints how fast it goes, so that you can tell how long.
"""

import argparse
from pathlib import Path

import keras

from keras_rl2x import DQN
from keras_rl2x import ReplayMemory
from keras_rl2x.callbacks import Checkpoint
from keras_rl2x.envs import make_atari
from keras_rl2x.exploration import EpsilonGreedy

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--game", default="ALE/Pong-v5")
parser.add_argument("--steps", type=int, default=200_000)
parser.add_argument("--steps-per-epoch", type=int, default=5_000)
parser.add_argument("--warmup", type=int, default=5_000, help="steps before learning")
parser.add_argument("--capacity", type=int, default=100_000, help="steps in memory")
parser.add_argument("--envs", type=int, default=8)
parser.add_argument("--eval-episodes", type=int, default=10)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--dir", type=Path, default=Path("runs/atari"))
args = parser.parse_args()
args.dir.mkdir(parents=True, exist_ok=True)

# Scores on Atari mean nothing without the protocol: print it beside them.
env = make_atari(args.game, num_envs=args.envs)
print(env.describe())

# uint8 frames in: cast and division by 255 happen once, inside the network. Three-step
# returns and a short exploration learn faster than the settings of the papers.
agent = DQN.from_env(env, n_step=3, seed=args.seed)
decay = keras.optimizers.schedules.PolynomialDecay(1.0, 50_000, 0.01)
agent.compile(
    optimizer=keras.optimizers.Adam(1e-4, epsilon=1.5e-4),
    memory=ReplayMemory(args.capacity),
    exploration=EpsilonGreedy(decay),
    warmup_steps=args.warmup,
)

agent.fit(
    env,
    epochs=max(1, (args.steps - args.warmup) // args.steps_per_epoch),
    steps_per_epoch=args.steps_per_epoch,
    batch_size=32,
    callbacks=[
        Checkpoint(args.dir / "checkpoints", every=args.steps_per_epoch),
        keras.callbacks.CSVLogger(args.dir / "log.csv", append=True),
    ],
    seed=args.seed,
    verbose=2,
    resume=args.dir / "checkpoints",
)
print(f"{agent.env_steps:,} steps, {agent.gradient_steps:,} gradient steps")
seconds = agent.seconds.items()
print("Seconds by work:", ", ".join(f"{work} {value:.0f}" for work, value in seconds))

# The score of the game itself: rewards are clipped only where they are learned from.
eval_env = make_atari(args.game, num_envs=args.envs)
score = agent.evaluate(
    eval_env, episodes=args.eval_episodes, epsilon=0.01, seed=args.seed + 1
)
print(
    f"Score over {args.eval_episodes} games at epsilon 0.01: "
    f"{score['episode_return']:.1f} ± {score['episode_return_std']:.1f}"
)
agent.save(args.dir / "agent.keras")
