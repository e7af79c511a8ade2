"""The rule of the target networks."""

from typing import Any

import keras
import tensorflow as tf

from keras_rl2x.ops import polyak_average
from keras_rl2x.ops.checks import check_number
from keras_rl2x.ops.checks import check_whole


@keras.saving.register_keras_serializable(package="keras_rl2x")
class TargetUpdate(keras.callbacks.Callback):
    """Lets target networks follow the online networks.

    Soft: `target <- tau * online + (1 - tau) * target` once per gradient step.
    Hard: `target <- online` at the gradient step where the count of env steps
    crosses a multiple of `period`. All weights follow, BatchNorm statistics
    included.

    A callback, so that it can be passed to `fit`, replaced or subclassed; but the
    blend runs inside the compiled training step, so the numbers do not depend on
    `steps_per_execution`. One that is passed to `fit` becomes the agent's own and is
    saved with it.

    Source: Mnih et al., 2015 (hard); Lillicrap et al., 2015 (soft).

    Args:
        tau: float in `(0, 1]`. Higher follows faster and is less stable.
        period: int, *env steps* between two copies. Higher is more stable and slower.

    Raises:
        ValueError: unless exactly one of the two is given, in range.

    Example:
    ```python
    class Momentum(TargetUpdate):
        def blend(self, target, online):            # runs compiled
            for slow, fast in zip(target.variables, online.variables):
                slow.assign(0.99 * slow + 0.01 * fast)

    agent.fit(env, callbacks=[Momentum(tau=0.01)])
    ```
    """

    def __init__(self, tau: float | None = None, period: int | None = None):
        super().__init__()
        if (tau is None) == (period is None):
            raise ValueError(
                "`TargetUpdate` takes either `tau` (soft) or `period` (hard). "
                f"Received: tau={tau}, period={period}."
            )
        if tau is not None and check_number("tau", tau, 0.0, 1.0) == 0.0:
            raise ValueError("`tau` must be above 0: the target would never move.")
        self.tau = None if tau is None else float(tau)
        self.period = None if period is None else check_whole("period", period)

    def set_model(self, model: Any) -> None:
        """Becomes the rule of an agent; Keras calls this at the start of `fit`."""
        super().set_model(model)
        model.target_update = self

    def due(self, step: Any, previous: Any) -> Any:
        """Whether to blend at this gradient step. Traced.

        Args:
            step: int64 scalar, env steps at this gradient step.
            previous: int64 scalar, env steps at the one before.

        Returns:
            `True`, or a bool tensor.
        """
        if self.period is None:
            return True
        return step // self.period > previous // self.period

    def blend(self, target: keras.Model, online: keras.Model) -> None:
        """Moves one target network. Traced; what a subclass overrides.

        Args:
            target: network to change.
            online: network to follow.
        """
        tau = 1.0 if self.tau is None else self.tau
        for slow, fast in zip(target.variables, online.variables, strict=True):
            if tau == 1.0:
                slow.assign(fast)
            elif keras.backend.is_float_dtype(slow.dtype):
                # Random seeds and integer counters are no averages.
                slow.assign(polyak_average(slow, fast, tau))

    def apply(self, pairs: list, step: Any, previous: Any) -> None:
        """Blends every `(target, online)` pair if it is due. Traced."""

        def blend_all() -> tf.Tensor:
            for target, online in pairs:
                self._blend(target, online)
            return tf.constant(True)

        due = self.due(step, previous)
        if due is True:
            blend_all()
        else:
            tf.cond(tf.cast(due, tf.bool), blend_all, lambda: tf.constant(False))

    def _blend(self, target: keras.Model, online: keras.Model) -> None:
        try:
            self.blend(target, online)
        except (NotImplementedError, AttributeError) as error:
            if "numpy" not in str(error):
                raise
            raise ValueError(
                f"`{type(self).__name__}.blend` runs inside the compiled step, "
                "where weights are no NumPy arrays (`get_weights`, `set_weights`, "
                "`.numpy()`). Use `target.variables` and `assign`, or "
                "`compile(run_eagerly=True)`."
            ) from error

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {"tau": self.tau, "period": self.period}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "TargetUpdate":
        """A rule made from `get_config()`."""
        return cls(**config)
