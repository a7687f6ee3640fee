"""Calls that may never come back: httpx times each read, so a trickling server can hold one."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TypeVar

T = TypeVar("T")


class Deadline:
    """A moment some seconds from now, or never.

    Args:
        seconds: From now; None for never.
    """

    def __init__(self, seconds: float | None) -> None:
        self._moment = None if seconds is None else time.monotonic() + seconds

    @property
    def left_s(self) -> float | None:
        """Seconds until then, >= 0; None if there is no such moment."""
        return None if self._moment is None else max(0.0, self._moment - time.monotonic())


def within(seconds: float | None, call: Callable[[], T]) -> T:
    """Return what `call` returns, or raise TimeoutError after some seconds.

    The call runs in a thread of its own (some 70 µs), in a copy of the caller's context. One
    that is given up goes on until it ends by itself; it keeps no interpreter from exiting.

    Args:
        seconds: Longest time to wait; None to call in this very thread.
        call: What to do.

    Raises:
        TimeoutError: If there is no result in time.
    """
    if seconds is None:
        return call()
    future: Future[T] = Future()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            future.set_result(context.run(call))
        except BaseException as error:  # the caller's to handle, whatever it is
            future.set_exception(error)

    threading.Thread(target=run, name="sift-deadline", daemon=True).start()
    try:
        return future.result(seconds)
    except FutureTimeoutError as error:
        if future.done():  # the call's own error, of the same kind
            raise
        raise _late(seconds) from error


async def awithin(seconds: float | None, call: Awaitable[T]) -> T:
    """Return what `call` returns, or cancel it and raise TimeoutError after some seconds."""
    try:
        return await asyncio.wait_for(call, seconds)
    except asyncio.TimeoutError as error:  # from Python 3.11 on the same as TimeoutError
        raise _late(seconds) from error


def _late(seconds: float | None) -> TimeoutError:
    return TimeoutError(f"no complete answer within {seconds:.3g} s")
