"""The callback list of `fit`."""

import contextlib
from typing import Any

import keras


class FitCallbacks(keras.callbacks.CallbackList):
    """Keras' own list, with steps that are env steps.

    Keras counts executions in `steps_per_execution` and passes an index beyond the
    end after the last one, which a progress bar would show as 1024/1000; and its
    TensorBoard draws over epochs, where ours is to be env steps.

    Args:
        callbacks: the user's, in their order.
        steps: env steps per epoch.
        **params: as in `keras.callbacks.CallbackList`.
    """

    def __init__(self, callbacks: list, steps: int, **params: Any):
        super().__init__(
            [_InMainThread(), *callbacks], add_history=True, steps=steps, **params
        )
        self._steps = steps
        self._is_open = False
        kind = keras.callbacks.TensorBoard
        self._boards = [board for board in self.callbacks if isinstance(board, kind)]

    def on_train_begin(self, logs=None):
        self._is_open = True
        super().on_train_begin(logs)

    def on_train_end(self, logs=None):
        self._is_open = False
        super().on_train_end(logs)

    def clean_up(self) -> None:
        """Ends the training for the callbacks after an error or Ctrl-C.

        Keras does not, so log files would stay open. The first error is the one to
        be seen.
        """
        if self._is_open:
            for callback in self.callbacks:
                with contextlib.suppress(Exception):
                    callback.on_train_end(None)

    def on_train_batch_end(self, batch, logs=None):
        for board in self._boards:
            # Its only step counter; a profiler's range counts executions, though.
            if not board._should_trace:
                board._global_train_batch = self.model.env_steps
        super().on_train_batch_end(min(batch, self._steps - 1), logs)

    def on_epoch_end(self, epoch, logs=None):
        logs = {} if logs is None else logs
        for callback in self.callbacks:
            at = self.model.env_steps if callback in self._boards else epoch
            callback.on_epoch_end(at, logs)


class _InMainThread(keras.callbacks.Callback):
    """Keeps callbacks in the main thread.

    Keras moves them to another one where none defines the hooks of a batch; an
    environment, a debugger or a plot does not expect that.
    """

    def on_train_batch_end(self, batch, logs=None):
        """Defined, so that Keras stays in the main thread."""

    def on_test_batch_end(self, batch, logs=None):
        """Defined, so that Keras stays in the main thread."""

    def on_predict_batch_end(self, batch, logs=None):
        """Defined, so that Keras stays in the main thread."""

    def on_epoch_begin(self, epoch, logs=None):
        self.model.begin_epoch(epoch)
