"""Signals that end a run: SIGTERM, and a Ctrl-C that got lost."""

import signal
import threading
from typing import Any

EXIT_CODE = 128 + signal.SIGTERM  # as shells have it: 143


class Termination:
    """Notes signals between `begin` and `end`; only the main thread may.

    SIGTERM, by which a computer that is needed elsewhere says good-bye, does nothing
    but be noted. Ctrl-C raises `KeyboardInterrupt` as ever; but C code that calls
    Python (TensorFlow, HDF5) sometimes drops it, and a run would go on for ever.

    Attributes:
        requested: whether SIGTERM has come.
        interrupted: whether Ctrl-C has been pressed.
    """

    def __init__(self):
        self.requested = self.interrupted = False
        self._previous: dict[int, Any] = {}

    def begin(self, sigterm: bool) -> None:
        """Takes the place of the handlers: of SIGTERM if wanted, of Ctrl-C if usual."""
        if threading.current_thread() is not threading.main_thread():
            return
        if sigterm:
            self._previous[signal.SIGTERM] = signal.signal(
                signal.SIGTERM, self._note_termination
            )
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._previous[signal.SIGINT] = signal.signal(
                signal.SIGINT, self._note_interrupt
            )

    def end(self) -> None:
        """Puts the former handlers back."""
        while self._previous:
            number, handler = self._previous.popitem()
            # `None` stands for a handler that was not set from Python.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _note_termination(self, number: int, frame: Any) -> None:
        self.requested = True

    def _note_interrupt(self, number: int, frame: Any) -> None:
        self.interrupted = True
        signal.default_int_handler(number, frame)
