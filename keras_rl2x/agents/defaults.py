"""What `compile()` and `fit()` take where they are given nothing."""

import dataclasses
from typing import Any

import keras

from keras_rl2x.callbacks import TargetUpdate


@dataclasses.dataclass
class Defaults:
    """One agent's settings, chosen by measuring.

    Attributes:
        optimizers: learning rate of Adam by optimizer name.
        loss: Keras loss.
        exploration: exploration rule.
        target_update: rule of the target networks.
        updates_per_step: gradient steps per env step.
        warmup_steps: steps in memory before learning.
        batch_size: rows per gradient step.
        steps_per_execution: env steps per compiled call.
    """

    optimizers: dict[str, float]
    exploration: Any
    loss: Any = dataclasses.field(default_factory=keras.losses.Huber)
    target_update: TargetUpdate = dataclasses.field(
        default_factory=lambda: TargetUpdate(tau=0.005)
    )
    updates_per_step: float = 1.0
    warmup_steps: int = 1_000
    batch_size: int = 64
    steps_per_execution: int = 32

    def optimizer(self, name: str) -> keras.optimizers.Optimizer:
        """A new optimizer of a name."""
        return keras.optimizers.Adam(self.optimizers[name])
