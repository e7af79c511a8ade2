"""Returns over several steps."""

import numpy as np


def n_step_return(
    rewards: np.ndarray,
    ended: np.ndarray,
    terminated: np.ndarray,
    gamma: float,
    available: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """n-step rewards and discounts, cut where an episode ends.

    `R = sum_{k<m} gamma^k r_k`, `discount = gamma^m` (0 where terminated), where
    `m <= n` is the number of steps until the episode ends or data runs out.

    Source: Sutton and Barto, "Reinforcement learning", 2018, section 7.1.
    NumPy, because it runs where the memory is sampled.

    Args:
        rewards: `[B, n]` float, rewards of n consecutive rows.
        ended: `[B, n]` bool, episode over after this row, for whatever reason.
        terminated: `[B, n]` bool, episode over because the task is.
        gamma: discount per step, in `[0, 1]`.
        available: `[B, n]` bool, rows that exist; defaults to all. Row 0 must.

    Returns:
        `(reward [B], discount [B], length [B])`; `length` is `m`, in `1 ... n`.
    """
    n = rewards.shape[1]
    included = np.ones(rewards.shape, bool)
    for k in range(1, n):
        included[:, k] = included[:, k - 1] & ~ended[:, k - 1]
        if available is not None:
            included[:, k] &= available[:, k]
    powers = np.float64(gamma) ** np.arange(n + 1)
    reward = (rewards * included * powers[:n]).sum(axis=1)
    length = included.sum(axis=1)
    last_terminated = terminated[np.arange(len(length)), length - 1]
    discount = np.where(last_terminated, 0.0, powers[length])
    return reward.astype(np.float32), discount.astype(np.float32), length
