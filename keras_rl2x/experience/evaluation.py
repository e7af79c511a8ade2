"""Greedy episodes, apart from training."""

from collections.abc import Callable
from typing import Any

import numpy as np

from keras_rl2x.envs import EnvStepper
from keras_rl2x.ops.checks import warn

MAX_STEPS = 27_000  # Atari's 108 000 frames


def run_episodes(
    agent: Any,
    env: Any,
    episodes: int,
    *,
    epsilon: float = 0.0,
    seed: int | None = None,
    max_steps: int = MAX_STEPS,
    on_episode: Callable[[int, float, int], None] = lambda *_: None,
) -> tuple[np.ndarray, np.ndarray]:
    """Plays whole episodes and returns their returns and lengths.

    Each environment of a vector env plays the same number of episodes (give or take
    one), since taking the first ones to end would favour short episodes.

    Args:
        agent: with `greedy(observation, action_mask)` and `action_units`.
        env: environment of its own.
        episodes: number of episodes.
        epsilon: probability of a random action.
        seed: of the first reset and of the random actions.
        max_steps: an episode is cut after so many steps, with a warning.
        on_episode: called with `(number, return, length)` after each.

    Returns:
        `(returns, lengths)`, both `[episodes]`.
    """
    stepper, rng = EnvStepper(env), np.random.default_rng(seed)
    count = stepper.num_envs
    quota = np.full(count, episodes // count) + (np.arange(count) < episodes % count)
    returns, lengths, cut = [], [], 0
    total, length = np.zeros(count), np.zeros(count, np.int64)
    stuck = np.zeros(count, bool)
    stepper.reset(seed)
    while quota.any():
        action = _choose(agent, stepper, epsilon, rng)
        outcome = stepper.step(agent.action_units.to_env(action))
        total[outcome.columns] += outcome.reward
        length[outcome.columns] += 1
        ended = np.zeros(count, bool)
        ended[outcome.columns] = outcome.ended
        too_long = (length >= max_steps) & ~ended
        for i in np.flatnonzero(ended | too_long):
            if quota[i] and not stuck[i]:
                returns.append(float(total[i]))
                lengths.append(int(length[i]))
                quota[i] -= 1
                cut += int(too_long[i])
                on_episode(len(returns), returns[-1], lengths[-1])
            total[i], length[i] = 0.0, 0
            stuck[i] = too_long[i]
        # One environment of a vector cannot be reset alone: wait for the others.
        if quota.any() and stuck[quota > 0].all():
            stepper.reset()
            total[:], length[:], stuck[:] = 0.0, 0, False
    if cut:
        warn(
            f"{cut} of {episodes} evaluation episodes were cut after {max_steps:,} "
            "steps; their returns count up to there. Pass `max_steps=` to change the "
            "limit, or add `gymnasium.wrappers.TimeLimit` to the env."
        )
    return np.array(returns), np.array(lengths)


def _choose(
    agent: Any, stepper: EnvStepper, epsilon: float, rng: np.random.Generator
) -> np.ndarray:
    action = agent.greedy(stepper.observation, stepper.action_mask)
    if epsilon == 0.0:
        return action
    random = rng.random(stepper.num_envs) < epsilon
    other = agent.action_units.uniform(stepper.num_envs, rng, stepper.action_mask)
    shape = (-1,) + (1,) * (action.ndim - 1)
    return np.where(random.reshape(shape), other, action)
