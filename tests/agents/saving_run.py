"""Loads agents in a process of its own; `test_contract_saving` runs it.

Prints as JSON what is found in each file, then trains on.
"""

import json
import sys

import keras
import numpy as np

import keras_rl2x  # registers the agents
from tests.agents.contract import OBSERVATIONS
from tests.agents.contract import account
from tests.agents.walk import Walk

assert keras_rl2x.DQN


def go_on(path, actions):
    agent = keras.saving.load_model(path)
    found = account(agent)
    history = agent.fit(
        Walk(actions), epochs=1, steps_per_epoch=8, batch_size=8, seed=3, verbose=0
    ).history
    return found, {
        "env_steps": agent.env_steps,
        "gradient_steps": agent.gradient_steps,
        "iterations": int(agent.optimizer.iterations.numpy()),
        "loss": history["loss"],
        "exploration": {name: history[name] for name in agent.exploration.values(0)},
        "acts": np.asarray(agent.act(OBSERVATIONS)).shape,
    }


if __name__ == "__main__":
    results = {}
    for argument in sys.argv[1:]:
        path, actions = argument.split(",")
        results[path] = go_on(path, actions)
    print(json.dumps(results))
