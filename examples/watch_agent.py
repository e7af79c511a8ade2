"""Watch an agent play, on a machine without a display.

Takes an agent that another example saved (`cartpole.keras` by default), plays one
greedy episode and writes a video: by gymnasium's RecordVideo where moviepy is
installed, else a GIF. Needs `pip install keras-rl2x[video]`.
"""

import argparse
from importlib.util import find_spec
from pathlib import Path

import gymnasium as gym
import keras
from PIL import Image

import keras_rl2x  # noqa: F401  (registers the agents with Keras)

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("agent", nargs="?", default="cartpole.keras")
parser.add_argument("--env", default="CartPole-v1")
parser.add_argument("--max-steps", type=int, default=500)
parser.add_argument("--every", type=int, default=2, help="keep one frame of so many")
parser.add_argument("--gif", action="store_true", help="a GIF, also with moviepy")
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--out", type=Path, default=Path("runs/video"))
args = parser.parse_args()
args.out.mkdir(parents=True, exist_ok=True)

agent = keras.saving.load_model(args.agent)

# Rendering is chosen when the environment is made; training never renders.
env = gym.make(args.env, render_mode="rgb_array", max_episode_steps=args.max_steps)
as_gif = args.gif or not find_spec("moviepy")
if not as_gif:
    env = gym.wrappers.RecordVideo(env, args.out, name_prefix="episode")

frames, episode_return, ended = [], 0.0, False
observation, info = env.reset(seed=args.seed)
while not ended:
    if as_gif:
        frames.append(Image.fromarray(env.render()))
    observation, reward, terminated, truncated, info = env.step(agent.act(observation))
    episode_return += reward
    ended = terminated or truncated
env.close()

if as_gif:
    path = args.out / "episode.gif"
    milliseconds = 1_000 * args.every // env.metadata.get("render_fps", 30)
    first, *rest = frames[:: args.every]
    first.save(path, save_all=True, append_images=rest, duration=milliseconds, loop=0)
    print(f"{path}: {1 + len(rest)} frames of {first.width}×{first.height}")
else:
    print("Wrote", *sorted(args.out.glob("*.mp4")))
print(f"Return of the episode: {episode_return:.0f}")
