"""What an agent remembers besides its weights, in plain objects.

Every attribute that is set on a `keras.Model` goes through Keras' tracking, which
costs half a millisecond for a growing list; so what changes while an agent runs
lives here.
"""

import dataclasses
from typing import Any

import keras
import numpy as np


@dataclasses.dataclass
class Progress:
    """Counters of a run.

    Attributes:
        env_steps: environment transitions, warm-up included.
        gradient_steps: updates of the networks.
        surplus: transitions already taken beyond the last budget.
        update_credit: gradient steps that are due, a fraction below one.
        last_update_step: `env_steps` at the last gradient step.
        epoch: epochs begun so far in the current `fit`, and
        epoch_steps: env steps taken in the current one.
        episode_means: last known means of ended episodes, for the logs.
    """

    env_steps: int = 0
    gradient_steps: int = 0
    surplus: int = 0
    update_credit: float = 0.0
    last_update_step: int = 0
    epoch: int = 0
    epoch_steps: int = 0
    episode_means: dict[str, float] = dataclasses.field(default_factory=dict)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Progress":
        """Counters from `vars` of others, if they are all there and numbers."""
        default = cls()
        for name, value in vars(default).items():
            numbers = int | float if isinstance(value, float) else type(value)
            if not isinstance(config[name], numbers):
                raise TypeError(f"{name} is {config[name]!r}")
        return cls(**config)


class RandomStreams:
    """Independent generators: exploring, and sampling with warm-up.

    Args:
        seed: int or `None` for fresh entropy.
    """

    def __init__(self, seed: int | None = None):
        explore, sample = np.random.SeedSequence(seed).spawn(2)
        self.explore = np.random.default_rng(explore)
        self.sample = np.random.default_rng(sample)

    def get_state(self) -> dict[str, Any]:
        """JSON-ready state of both."""
        return {
            "explore": self.explore.bit_generator.state,
            "sample": self.sample.bit_generator.state,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Takes back what `get_state` gave."""
        self.explore.bit_generator.state = state["explore"]
        self.sample.bit_generator.state = state["sample"]


class Run:
    """Everything that changes while an agent runs.

    Attributes:
        progress: counters.
        streams: random generators.
        observation_space: of one environment, and
        action_space: likewise; `None` until they are known.
        action_units: conversion of actions.
        memory: from `compile`, as are `exploration`, `loss`, `updates_per_step`,
            `warmup_steps` and `configured_execution` (its `steps_per_execution`).
        compile_arguments: for saving.
        target_update: rule of the target networks.
        engine: compiled functions.
        session: the present or last `fit`.
        trackers: means of the numbers that `train_step` tracks.
        dry_gradients: where gradients go while nothing may change, else `None`.
        dry_losses: where losses go while no gradient is asked for, else `None`.
        mismatch: why a file that is being loaded does not fit, else `None`.
    """

    def __init__(self):
        self.progress, self.streams = Progress(), RandomStreams()
        self.observation_space = self.action_space = self.action_units = None
        self.memory = self.exploration = self.loss = None
        self.updates_per_step, self.warmup_steps = 1.0, 0
        self.configured_execution: int | None = None
        self.compile_arguments: dict[str, Any] = {}
        self.has_metrics = False
        self.target_update = self.engine = self.session = None
        self.trackers: dict[str, keras.metrics.Mean] = {}
        self.dry_gradients: dict[str, Any] | None = None
        self.dry_losses: dict[str, Any] | None = None
        self.mismatch: str | None = None
