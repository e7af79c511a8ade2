"""Prints digests of short runs as JSON; `test_contract_determinism` runs it twice."""

import hashlib
import json
import sys

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode

from tests.agents.contract import AGENTS
from tests.agents.walk import Walk


def environment(kind, actions):
    if kind == "single":
        return Walk(actions)
    vector = gym.vector.SyncVectorEnv if kind == "sync" else gym.vector.AsyncVectorEnv
    return vector([lambda: Walk(actions)] * 2, autoreset_mode=AutoresetMode.SAME_STEP)


def digest(case, kind, seed):
    agent = case.make(seed)
    # Everything at its default but the sizes; XLA in one of the runs only.
    agent.compile(
        warmup_steps=16,
        steps_per_execution=8,
        jit_compile="auto" if kind == "single" and case is AGENTS[0] else False,
    )
    env = environment(kind, case.actions)
    history = agent.fit(
        env, epochs=2, steps_per_epoch=24, batch_size=8, seed=seed, verbose=0,
        validation_data=Walk(case.actions) if kind == "sync" else None,
        validation_episodes=2,
    ).history  # fmt: skip
    env.close()
    for name in ("steps_per_second", "val_episode_return", "val_episode_length"):
        history.pop(name, None)
    total = hashlib.sha256(json.dumps(history).encode())
    for variable in agent.variables:
        total.update(np.ascontiguousarray(variable.numpy()).tobytes())
    return total.hexdigest()


if __name__ == "__main__":
    seeds = [int(seed) for seed in sys.argv[1:]]
    print(
        json.dumps(
            {
                f"{case.cls.__name__} {kind} {seed}": digest(case, kind, seed)
                for case in AGENTS
                for kind in ("single", "sync", "async")
                for seed in seeds
                if kind == "sync" or seed == seeds[0]
            }
        )
    )
