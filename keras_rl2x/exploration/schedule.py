"""Numbers that change with the env step."""

from typing import Any

import keras
import numpy as np

BLOCK = 1024


class ScheduledValue:
    """A constant, or a Keras schedule read at env steps.

    One eager call of a Keras schedule costs half a millisecond, as much as a
    training step, but it accepts a vector: so a block of steps is evaluated at
    once and read from there.

    Args:
        value: float or `keras.optimizers.schedules.LearningRateSchedule`.
        name: what to call it in error messages.
        minimum: lowest value allowed.
        maximum: highest value allowed.

    Raises:
        ValueError: for a value (or a schedule's first value) out of range.
        TypeError: for anything else.
    """

    def __init__(
        self,
        value: Any,
        name: str,
        minimum: float = 0.0,
        maximum: float = np.inf,
    ):
        schedule = keras.optimizers.schedules.LearningRateSchedule
        if isinstance(value, dict):
            value = keras.saving.deserialize_keras_object(value)
        if not isinstance(value, schedule | int | float | np.number) or isinstance(
            value, bool
        ):
            raise TypeError(
                f"`{name}` must be a number or a schedule of "
                f"`keras.optimizers.schedules`. Received: {value!r}."
            )
        self.value = value
        self._is_schedule = isinstance(value, schedule)
        self._start, self._block = 0, np.empty(0)
        first = self(0)
        if not minimum <= first <= maximum:
            raise ValueError(
                f"`{name}` must lie in [{minimum:g}, {maximum:g}]. Received: {first:g}."
            )

    def __call__(self, step: int) -> float:
        """The value at an env step."""
        if not self._is_schedule:
            return float(self.value)
        at = step - self._start
        if not 0 <= at < len(self._block):
            self._start, self._block = self._evaluate(step)
        return float(self._block[step - self._start])

    def _evaluate(self, step: int) -> tuple[int, np.ndarray]:
        """First step and values of a block; of one step where schedules branch on it.

        Blocks lie at fixed places: the last bit of a value depends on its place among
        those that are computed together, and a resumed run is to see the same.
        """
        start = step - step % BLOCK
        try:
            steps = np.arange(start, start + BLOCK, dtype=np.float32)
            values = keras.ops.convert_to_numpy(self.value(steps))
            return start, np.broadcast_to(values, BLOCK)
        except (ValueError, TypeError):
            return step, np.reshape(keras.ops.convert_to_numpy(self.value(step)), 1)

    def serialize(self) -> Any:
        """A number, or the schedule's config."""
        if self._is_schedule:
            return keras.saving.serialize_keras_object(self.value)
        return self.value
