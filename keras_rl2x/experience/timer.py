"""Where the time goes."""

import time


class Timer:
    """Adds up seconds by name.

    Example:
    ```python
    with timer("memory"):
        memory.add(step)
    timer.seconds        # {"memory": 0.0001}
    ```
    """

    def __init__(self):
        self.seconds: dict[str, float] = {}
        self._name, self._start = "", 0.0

    def __call__(self, name: str) -> "Timer":
        self._name = name
        return self

    def __enter__(self) -> None:
        self._start = time.perf_counter()

    def __exit__(self, *exception: object) -> None:
        elapsed = time.perf_counter() - self._start
        self.seconds[self._name] = self.seconds.get(self._name, 0.0) + elapsed

    def start_clock(self, steps: int) -> None:
        """Begins to measure the rate of steps."""
        self._clock, self._first = time.perf_counter(), steps

    def rate(self, steps: int) -> float:
        """Steps per second since `start_clock`, given the count now."""
        return (steps - self._first) / max(time.perf_counter() - self._clock, 1e-9)
