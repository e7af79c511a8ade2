"""The callback list of `fit`."""

import contextlib
from typing import Any

import keras

from keras_rl2x.callbacks import callback_state
from keras_rl2x.callbacks.checkpoint import Checkpoint
from keras_rl2x.callbacks.termination import EXIT_CODE
from keras_rl2x.callbacks.termination import Termination

# They remember nothing that a resumed run needs; a history is of one `fit`.
FORGETFUL = (Checkpoint, keras.callbacks.History, keras.callbacks.ProgbarLogger)


class FitCallbacks(keras.callbacks.CallbackList):
    """Keras' own list, with steps that are env steps, for runs that are resumed.

    Keras counts executions in `steps_per_execution` and passes an index beyond the
    end after the last one, which a progress bar would show as 1024/1000; and its
    TensorBoard draws over epochs, where ours is to be env steps.

    A `Checkpoint` comes after all others, so that it writes what they have done.

    Args:
        callbacks: the user's, in their order.
        steps: env steps per epoch.
        session: of this `fit`, with `passing`, `in_epoch`, `begin_epoch` and
            `end_epoch`.
        **params: as in `keras.callbacks.CallbackList`.
    """

    def __init__(self, callbacks: list, steps: int, session: Any, **params: Any):
        callbacks = sorted(callbacks, key=lambda one: isinstance(one, Checkpoint))
        super().__init__(
            [_InMainThread(), *callbacks], add_history=True, steps=steps, **params
        )
        self._steps, self._session = steps, session
        self._is_open = self._is_passing = False
        kind = keras.callbacks.TensorBoard
        self._boards = [board for board in self.callbacks if isinstance(board, kind)]
        self._checkpoints = [c for c in self.callbacks if isinstance(c, Checkpoint)]
        self._resumed: list = []
        self._termination = Termination()

    def on_train_begin(self, logs=None):
        self._is_open = True
        self._termination.begin(sigterm=bool(self._checkpoints))
        super().on_train_begin(logs)
        if self._checkpoints:
            self._before = [callback_state.fields(c) for c in self._remembering()]
        self._set_states()

    def on_train_end(self, logs=None):
        self._is_open = False
        try:
            super().on_train_end(logs)
        finally:
            self._termination.end()
        if self._termination.requested:
            raise SystemExit(EXIT_CODE)

    def clean_up(self) -> None:
        """Ends the training for the callbacks after an error or Ctrl-C.

        Keras does not, so log files would stay open. The first error is the one to
        be seen.
        """
        self._termination.end()
        if self._is_open:
            for callback in self.callbacks:
                with contextlib.suppress(Exception):
                    callback.on_train_end(None)
        for checkpoint in self._checkpoints:
            checkpoint.release()

    def on_train_batch_begin(self, batch, logs=None):
        # Those of before a resume have been seen.
        self._is_passing = self._session.passing > 0
        if not self._is_passing:
            super().on_train_batch_begin(batch, logs)

    def on_train_batch_end(self, batch, logs=None):
        if self._is_passing:
            return
        for board in self._boards:
            # Its only step counter; a profiler's range counts executions, though.
            if not board._should_trace:
                board._global_train_batch = self.model.env_steps
        super().on_train_batch_end(min(batch, self._steps - 1), logs)
        self._exit_if_terminated()

    def on_epoch_begin(self, epoch, logs=None):
        # Where an epoch goes on it has begun before: a schedule of the learning rate
        # must not take its step twice.
        goes_on = self._session.in_epoch
        self._session.begin_epoch(epoch)
        values = self.model.variable_values() if goes_on else []
        super().on_epoch_begin(epoch, logs)
        for variable, value in values:
            variable.assign(value)
        if goes_on:
            self._set_states()
        self._resumed = []

    def on_epoch_end(self, epoch, logs=None):
        logs = {} if logs is None else logs
        for callback in self.callbacks:
            if callback not in self._checkpoints:
                at = self.model.env_steps if callback in self._boards else epoch
                callback.on_epoch_end(at, logs)
        self._session.end_epoch()
        for callback in self._checkpoints:
            callback.on_epoch_end(epoch, logs)
        self._exit_if_terminated()

    def _exit_if_terminated(self) -> None:
        if self._termination.interrupted:
            raise KeyboardInterrupt  # the first one was dropped on its way
        if self._termination.requested:
            for callback in self._checkpoints:
                callback.write_last()
            raise SystemExit(EXIT_CODE)

    # ------------------------------------------------------------ runs that go on

    def get_state(self) -> list[tuple[str, dict]]:
        """What each callback remembers, as plain data, with its class."""
        return [
            (type(callback).__name__, callback_state.get_state(callback, before))
            for callback, before in zip(self._remembering(), self._before, strict=True)
        ]

    def resume(self, states: list[tuple[str, dict]]) -> None:
        """Gives each callback what it remembered, once the training has begun.

        The first of a class gets what the first of that class remembered, and so on;
        new ones begin afresh.
        """
        left = self._remembering()
        for name, state in states:
            same = [callback for callback in left if type(callback).__name__ == name]
            if same:
                self._resumed.append((same[0], state))
                left.remove(same[0])

    def _set_states(self) -> None:
        for callback, state in self._resumed:
            callback_state.set_state(callback, state)

    def _remembering(self) -> list[keras.callbacks.Callback]:
        return [
            callback
            for callback in self.callbacks
            if not isinstance(callback, (_InMainThread, *FORGETFUL))
        ]


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
