"""A replay memory as plain Python lists, and random experience to compare with."""

import numpy as np

from keras_rl2x.types import Step


class Reference:
    """Keeps everything; says what may be sampled and what a row must look like."""

    def __init__(self, capacity, columns):
        self.per_column = capacity // columns
        self.steps = [[] for _ in range(columns)]

    def add(self, column, step):
        """`step` is a dict with `first` set where it does not follow the last one."""
        steps = self.steps[column]
        if steps and step["first"]:
            steps[-1]["cut"] = True
        steps.append({**step, "cut": False})

    def break_chains(self):
        for steps in self.steps:
            if steps:
                steps[-1]["cut"] = True

    def live(self):
        """Identities of the steps that a memory without waste still holds."""
        return {
            step["id"] for steps in self.steps for step in steps[-self.per_column :]
        }

    def expected(self, identity, gamma, n_step):
        """`(reward, discount, id of the next observation)` of one row."""
        column, number = next(
            (steps, number)
            for steps in self.steps
            for number, step in enumerate(steps)
            if step["id"] == identity
        )
        reward, power = 0.0, 1.0
        for step in column[number : number + n_step]:
            reward += power * step["reward"]
            power *= gamma
            if step["terminated"] or step["truncated"] or step["cut"]:
                break
        return reward, 0.0 if step["terminated"] else power, step["next_id"]


class Experience:
    """Random episodes of several environments.

    Every observation has an identity, a whole number, from which its content
    follows. Episodes end in each way, also without a flag (the next observation
    just does not follow).

    Args:
        rng: source of randomness.
        columns: number of environments.
        lengths: shortest and longest episode.
    """

    def __init__(self, rng, columns, lengths=(1, 9)):
        self.rng, self.lengths = rng, lengths
        self.next_id = 1
        self.left = [0] * columns
        self.now = [None] * columns

    def _new_id(self):
        self.next_id += 1
        return self.next_id

    def step(self, column):
        """The next step of one environment."""
        first = self.left[column] == 0
        if first:
            low, high = self.lengths
            self.left[column] = int(self.rng.integers(low, high + 1))
            self.now[column] = self._new_id()
        self.left[column] -= 1
        terminated = truncated = False
        if self.left[column] == 0:
            how = self.rng.integers(4)  # 3: no flag at all
            terminated, truncated = how in (0, 2), how in (1, 2)
        step = {
            "id": self.now[column],
            "next_id": self._new_id(),
            "first": first,
            "action": int(self.rng.integers(5)),
            "reward": float(np.float32(self.rng.normal())),
            "terminated": terminated,
            "truncated": truncated,
        }
        self.now[column] = step["next_id"]
        return step


def to_step(rows, encode, mask=None):
    """A `Step` of rows, with `encode(ids)` as observations."""
    ids = [row["id"] for row in rows]
    next_ids = [row["next_id"] for row in rows]
    return Step(
        observation=encode(ids),
        action=np.array([row["action"] for row in rows]),
        reward=np.array([row["reward"] for row in rows]),
        terminated=np.array([row["terminated"] for row in rows]),
        truncated=np.array([row["truncated"] for row in rows]),
        next_observation=encode(next_ids),
        action_mask=None if mask is None else mask(ids),
        next_action_mask=None if mask is None else mask(next_ids),
    )
