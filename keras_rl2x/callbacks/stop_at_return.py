"""Stopping when the task is solved."""

import keras

from keras_rl2x.ops.checks import check_number


class StopAtReturn(keras.callbacks.Callback):
    """Ends training after the first epoch whose return reaches a threshold.

    Args:
        threshold: float, the return to reach.
        monitor: key of the logs; defaults to `val_episode_return` where it is there,
            else `episode_return` (of exploring episodes, which score lower).

    Example:
    ```python
    agent.fit(env, epochs=100, validation_data=eval_env,
              callbacks=[StopAtReturn(475)])
    ```
    """

    def __init__(self, threshold: float, monitor: str | None = None):
        super().__init__()
        self.threshold, self.monitor = check_number("threshold", threshold), monitor

    def on_epoch_end(self, epoch, logs=None):
        logs = logs or {}
        default = "episode_return"
        if "val_episode_return" in logs:
            default = "val_episode_return"
        monitor = self.monitor or default
        value = logs.get(monitor)
        if value is not None and value >= self.threshold:
            self.model.stop_training = True
            if self.params.get("verbose", 0) != 0:
                print(f"Stopped: {monitor} {value:g} has reached {self.threshold:g}")
