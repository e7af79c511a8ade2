"""Double DQN plays Pong to +15: the long run, resumable.

Eight environments without sticky actions, three-step returns, a short exploration; all
else as `from_env` and `compile` make it for images. Every 25 000 steps eight greedy
games are played, and the run ends when they bring 16 points, or after a million steps;
then 20 games are the score. Run it again with the same `--dir` to go on. Writes the
log, one line per 25 000 steps, into `--dir`, and with the extra `plot` a curve.
"""

import argparse
import csv
from pathlib import Path

import keras

from keras_rl2x import DQN
from keras_rl2x import ReplayMemory
from keras_rl2x.callbacks import Checkpoint
from keras_rl2x.callbacks import StopAtReturn
from keras_rl2x.envs import make_atari
from keras_rl2x.exploration import EpsilonGreedy

EPOCH, WARMUP = 25_000, 5_000


def plot(log: Path, picture: Path) -> None:
    """Scores of training and of greedy games over env steps."""
    import matplotlib.pyplot as plt

    rows = list(csv.DictReader(log.open()))
    steps = [WARMUP + EPOCH * (int(row["epoch"]) + 1) for row in rows]
    figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
    for key, label in (
        ("episode_return", "training games, exploring"),
        ("val_episode_return", "8 greedy games"),
    ):
        axes.plot(steps, [float(row[key]) for row in rows], label=label)
    axes.axhline(15, color="grey", linestyle=":", linewidth=1)
    axes.set(xlabel="env steps", ylabel="score", title="Pong, Double DQN")
    axes.legend()
    figure.savefig(picture, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", type=Path, default=Path("runs/pong"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=1_000_000)
    args = parser.parse_args()
    args.dir.mkdir(parents=True, exist_ok=True)
    game = {"num_envs": 8, "sticky_actions": 0.0}
    env, eval_env = make_atari("ALE/Pong-v5", **game), make_atari("ALE/Pong-v5", **game)
    print(env.describe())
    agent = DQN.from_env(env, n_step=3, seed=args.seed)
    decay = keras.optimizers.schedules.PolynomialDecay(1.0, 40_000, 0.01)
    agent.compile(
        optimizer=keras.optimizers.Adam(2e-4, epsilon=1.5e-4),
        memory=ReplayMemory(100_000),
        exploration=EpsilonGreedy(decay),
        warmup_steps=WARMUP,
    )
    log = args.dir / "log.csv"
    agent.fit(
        env,
        epochs=(args.steps - WARMUP) // EPOCH,
        steps_per_epoch=EPOCH,
        validation_data=eval_env,
        validation_episodes=8,
        callbacks=[
            Checkpoint(args.dir / "checkpoints", every=EPOCH),
            keras.callbacks.CSVLogger(log, append=True),
            StopAtReturn(16),
        ],
        seed=args.seed,
        verbose=2,
        resume=args.dir / "checkpoints",
    )
    score = agent.evaluate(eval_env, episodes=20, seed=args.seed + 1)
    print(
        f"{agent.env_steps:,} steps: {score['episode_return']:.1f} ± "
        f"{score['episode_return_std']:.1f} over 20 greedy games"
    )
    agent.save(args.dir / "agent.keras")
    plot(log, args.dir / "curve.png")


if __name__ == "__main__":
    main()
