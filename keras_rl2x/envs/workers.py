"""Environments in processes of their own that die, fail or hang.

gymnasium's `AsyncVectorEnv` leaves the others running when one fails, says of a killed
one no more than "broken pipe", and waits for ever for one that hangs.
"""

import contextlib
import signal
import threading
import time
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
from gymnasium.vector.async_vector_env import AsyncState

GRACE = 0.5  # seconds in which a worker that does not hang answers
DEAD = (EOFError, BrokenPipeError, ConnectionResetError)
FORKED = (
    " If the environment itself uses TensorFlow, which hangs in a forked process, make "
    'them with `AsyncVectorEnv(..., context="spawn")`.'
)


def guarded(
    env: Any, function: Callable, *args: Any, timeout: float | None, **kwargs: Any
) -> Any:
    """Calls a method of an env; if that fails, no worker process stays behind.

    Args:
        env: any environment.
        function: its `step` or `reset`.
        *args: of the function.
        timeout: seconds, or `None`.
        **kwargs: of the function.

    Raises:
        RuntimeError: naming the worker that died, and of what.
        TimeoutError: naming the worker that did not answer.
        Whatever the env raises, unchanged but for a note that names the worker.
    """
    workers = env.unwrapped
    if not isinstance(workers, gym.vector.AsyncVectorEnv):
        with time_limit(timeout, "The environment"):
            return function(*args, **kwargs)
    try:
        with time_limit(timeout, "The environment"):
            return function(*args, **kwargs)
    except TimeoutError:
        silent, forked = _silent(workers), _is_forked(workers)
        stop(workers)
        raise TimeoutError(
            f"Env {_listed(silent)} of {type(workers).__name__} did not answer within "
            f"{timeout:g} s (`step_timeout`). All of its processes were stopped."
            f"{FORKED if forked else ''}"
        ) from None
    except DEAD as error:
        dead = _dead(workers)
        stop(workers)
        if not dead:
            raise
        raise RuntimeError(
            f"The process of env {_listed(dead)} of {type(workers).__name__} died. "
            "Often the main memory was full. All others were stopped."
        ) from error
    except BaseException as error:
        # gymnasium takes away the pipe of a worker that has raised.
        failed = [i for i, pipe in enumerate(workers.parent_pipes) if pipe is None]
        stop(workers)
        if failed:
            error.add_note(f"Raised in env {_listed(failed)}; all were stopped.")
        raise


@contextlib.contextmanager
def time_limit(seconds: float | None, what: str) -> Iterator[None]:
    """Raises `TimeoutError` within, after so many seconds; in the main thread only."""
    main = threading.current_thread() is threading.main_thread()
    if seconds is None or not main or not hasattr(signal, "setitimer"):
        yield
        return

    def expire(number: int, frame: Any) -> None:
        raise TimeoutError(
            f"{what} did not answer within {seconds:g} s (`step_timeout`)."
        )

    previous = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def stop(workers: gym.vector.AsyncVectorEnv) -> None:
    """Ends all processes of a vector env, whatever they are doing, and closes it."""
    if workers.closed:
        return
    for process in workers.processes:
        process.kill()
    for process in workers.processes:
        process.join(GRACE)
    workers._state = AsyncState.DEFAULT  # or `close` would wait for an answer
    with contextlib.suppress(Exception):
        workers.close(terminate=True)


def _is_forked(workers: gym.vector.AsyncVectorEnv) -> bool:
    return any(type(process).__name__ == "ForkProcess" for process in workers.processes)


def _dead(workers: gym.vector.AsyncVectorEnv) -> dict[int, str]:
    """What ended the workers that are not alive, by number."""
    dead, until = {}, time.monotonic() + GRACE
    while not dead and time.monotonic() < until:
        for i, process in enumerate(workers.processes):
            process.join(0.01)  # its pipe is closed before it is gone
            if not process.is_alive():
                dead[i] = _cause(process.exitcode)
    return dead


def _cause(code: int | None) -> str:
    if code is not None and code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"exit code {code}"


def _silent(workers: gym.vector.AsyncVectorEnv) -> dict[int, str]:
    """Workers that answer nothing, by number; the others have or do so at once."""
    asked = []
    for i, pipe in enumerate(workers.parent_pipes):
        if not pipe.poll(0):
            with contextlib.suppress(OSError):
                pipe.send(("reset-noop", None))
            asked.append((i, pipe))
    until = time.monotonic() + GRACE
    return {
        i: "hangs"
        for i, pipe in asked
        if not pipe.poll(max(0.0, until - time.monotonic()))
    }


def _listed(numbers: Any) -> str:
    """`1 (killed by SIGKILL), 3 (hangs)`, or only the numbers."""
    if isinstance(numbers, dict):
        return ", ".join(f"{i} ({cause})" for i, cause in numbers.items())
    return ", ".join(map(str, numbers))
