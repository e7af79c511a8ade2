"""Environment steps per second of Stable-Baselines3 or SBX on the benchmark's work.

Runs in an environment of its own, where those libraries are installed:

    pip install torch "stable-baselines3>=2.9" sbx-rl "gymnasium[mujoco]" ale-py \
        opencv-python-headless

`throughput.py --peer-python PATH` starts it; settings that it does not name are those
of the libraries. Prints one line of JSON.
"""

import argparse
import importlib
import json
import time
import warnings

EVERY_STEP = {"learning_starts": 1_000, "train_freq": 1, "gradient_steps": 1}
MLP = {"policy_kwargs": {"net_arch": [256, 256]}, "buffer_size": 100_000}
CNN = {
    "batch_size": 32,
    "buffer_size": 20_000,
    "learning_starts": 1_000,
    "learning_rate": 1e-4,
    "target_update_interval": 1_000,
}
WORKLOADS = {
    # name: (class, environment, environments, settings)
    "dqn-cartpole": ("DQN", "CartPole-v1", 1, {"batch_size": 64, **EVERY_STEP, **MLP}),
    "ddpg-pendulum": (
        "DDPG", "Pendulum-v1", 1, {"batch_size": 256, **EVERY_STEP, **MLP}
    ),
    "dqn-pong": (
        "DQN", "ALE/Pong-v5", 1, {"train_freq": 4, "gradient_steps": 1, **CNN}
    ),
    # One call steps eight environments: two gradient steps are one per four steps.
    "dqn-pong-8": (
        "DQN", "ALE/Pong-v5", 8, {"train_freq": 1, "gradient_steps": 2, **CNN}
    ),
}  # fmt: skip


def make_env(name: str, num_envs: int) -> tuple:
    import gymnasium as gym

    if not name.startswith("ALE/"):
        return gym.make(name), "MlpPolicy"
    import ale_py
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.vec_env import VecFrameStack

    gym.register_envs(ale_py)
    env = make_atari_env(name, n_envs=num_envs, seed=0, env_kwargs={"frameskip": 1})
    return VecFrameStack(env, 4), "CnnPolicy"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", choices=["sb3", "sbx"])
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--threads", type=int, help="of PyTorch")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    import torch

    if args.threads:
        torch.set_num_threads(args.threads)
    name, env_name, num_envs, settings = WORKLOADS[args.workload]
    modules = {"sb3": "stable_baselines3", "sbx": "sbx"}
    env, policy = make_env(env_name, num_envs)
    cls = getattr(importlib.import_module(modules[args.library]), name)
    agent = cls(policy, env, seed=0, device="cpu", **settings)
    agent.learn(1_600)  # fills the memory, compiles
    start = time.perf_counter()
    agent.learn(args.steps, reset_num_timesteps=False)
    rate = args.steps / (time.perf_counter() - start)
    result = {
        "library": args.library, "workload": args.workload, "env_steps_per_s": rate
    }  # fmt: skip
    print(json.dumps(result))


if __name__ == "__main__":
    main()
