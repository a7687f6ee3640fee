"""Who computes with a model: a lock in the order of asking, and a bounded number of threads."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeAlias
from weakref import WeakKeyDictionary

from sift_core.errors import BusyError
from sift_core.tracing import carried

N_WORKERS = 4  # guess; each that fine-tunes holds an adapter and Adam's two moments of it
MAX_QUEUED = 64  # guess: several minutes of fine-tuning on a GPU

P = ParamSpec("P")
Submit: TypeAlias = Callable[..., Future[None]]
"""Runs a function with arguments in another thread, like an executor's `submit`."""


class FairLock:
    """A lock that the thread which has waited longest gets next. May be nested in one thread.

    A model is big enough to keep all cores busy by itself, so two computations at once would
    only slow each other. Each holds the lock for a training step or a token at a time.
    """

    def __init__(self) -> None:
        self.renew()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock for the `with` block."""
        if self._owner == threading.get_ident():
            yield
            return
        self._acquire()
        try:
            yield
        finally:
            self._release()

    @contextmanager
    def released(self) -> Iterator[None]:
        """Let others have the lock for the `with` block, then wait for it again.

        Code of the caller's runs in such a block: it may be slow, and use the model itself.
        """
        if self._owner != threading.get_ident():
            yield
            return
        self._release()
        try:
            yield
        finally:
            self._acquire()

    def yield_to_waiting(self) -> None:
        """Let everyone who waits have the lock first; costs nothing where nobody does."""
        if self._waiting:
            with self.released():
                pass

    def renew(self) -> None:
        """Forget threads that a child process does not have."""
        me = threading.get_ident()
        self._owner = me if getattr(self, "_owner", None) == me else None
        self._mutex = threading.Lock()
        self._waiting: deque[tuple[threading.Event, int]] = deque()

    def _acquire(self) -> None:
        me = threading.get_ident()
        with self._mutex:
            if self._owner is None:
                self._owner = me
                return
            waiter = (threading.Event(), me)
            self._waiting.append(waiter)
        try:
            waiter[0].wait()
        except BaseException:  # KeyboardInterrupt in the main thread
            with self._mutex:
                if waiter in self._waiting:
                    self._waiting.remove(waiter)
                    raise
            self._release()  # it came at the same moment
            raise

    def _release(self) -> None:
        with self._mutex:
            if self._owner != threading.get_ident():
                return  # an interrupt ended the wait
            self._owner = None
            if self._waiting:
                event, self._owner = self._waiting.popleft()
                event.set()


class Workers:
    """`N_WORKERS` threads that compute answers, and a bounded queue before them."""

    def __init__(self) -> None:
        self.renew()

    def submit(self, call: Callable[P, None], *args: P.args, **options: P.kwargs) -> Future[None]:
        """Run `call` in a worker thread, as a part of the current span.

        Raises:
            BusyError: If `MAX_QUEUED` calls wait already.
        """
        places = self._places
        if not places.acquire(blocking=False):
            raise BusyError(
                f"{MAX_QUEUED} answers wait for this model already; ask again later, or ask fewer "
                f"at once"
            )
        try:
            job: Future[None] = self._pool.submit(carried(call), *args, **options)
        except BaseException:
            places.release()
            raise
        job.add_done_callback(lambda _: places.release())
        return job

    def renew(self) -> None:
        """Forget threads that a child process does not have."""
        self._places = threading.BoundedSemaphore(MAX_QUEUED + N_WORKERS)
        self._pool = ThreadPoolExecutor(max_workers=N_WORKERS, thread_name_prefix="sift-model")


# One of each a model, whatever wraps it.
_shared: WeakKeyDictionary[Any, tuple[FairLock, Workers]] = WeakKeyDictionary()
_shared_mutex = threading.Lock()


def lock_and_workers(model: Any) -> tuple[FairLock, Workers]:
    """Return the lock and the workers of a model, always the same."""
    with _shared_mutex:
        if model not in _shared:
            _shared[model] = (FairLock(), Workers())
        return _shared[model]


def _renew() -> None:
    global _shared_mutex
    _shared_mutex = threading.Lock()
    for lock, workers in list(_shared.values()):
        lock.renew()
        workers.renew()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_renew)
