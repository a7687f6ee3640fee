"""Who computes with a model now: one flow of control at a time, for one step or token each."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ParamSpec
from weakref import WeakKeyDictionary

from sift_core.errors import BusyError

N_WORKERS = 4  # guess; each that fine-tunes holds an adapter and Adam's two moments of it
MAX_QUEUED = 64  # guess: several minutes of fine-tuning on a GPU

P = ParamSpec("P")


@dataclass(kw_only=True, eq=False)
class Turns:
    """A lock that is passed on in the order of asking, with the workers of one model.

    A model is big enough to keep all cores busy by itself, so two computations at once would
    only slow each other. They take turns instead, a training step or a token each.
    """

    _mutex: threading.Lock = field(default_factory=threading.Lock)
    _waiting: deque[tuple[threading.Event, int]] = field(default_factory=deque)
    _owner: int | None = None
    _queued: int = 0

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Compute for the `with` block; others wait. May be nested in one thread."""
        if self._owner == threading.get_ident():
            yield
            return
        self._take()
        try:
            yield
        finally:
            self._give()

    @contextmanager
    def given_up(self) -> Iterator[None]:
        """Let others compute for the `with` block, then wait for one's turn again.

        Code of the caller's runs in such a block: it may be slow, and use the model itself.
        """
        if self._owner != threading.get_ident():
            yield
            return
        self._give()
        try:
            yield
        finally:
            self._take()

    def pass_on(self) -> None:
        """Let everyone who waits have a turn first; costs nothing where nobody does."""
        if self._waiting:
            with self.given_up():
                pass

    def submit(self, call: Callable[P, None], *args: P.args, **options: P.kwargs) -> Future[None]:
        """Run `call` in a worker thread, of which there are `N_WORKERS`.

        Raises:
            BusyError: If `MAX_QUEUED` calls wait already.
        """
        with self._mutex:
            if self._queued >= MAX_QUEUED + N_WORKERS:
                raise BusyError(
                    f"{MAX_QUEUED} answers wait for this model already; ask again later, or ask "
                    f"fewer at once"
                )
            self._queued += 1
        try:
            job: Future[None] = self._workers.submit(call, *args, **options)
        except BaseException:
            self._forget(None)
            raise
        job.add_done_callback(self._forget)
        return job

    @cached_property
    def _workers(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(max_workers=N_WORKERS, thread_name_prefix="sift-model")

    def _forget(self, _: Future[None] | None) -> None:
        with self._mutex:
            self._queued -= 1

    def _take(self) -> None:
        me = threading.get_ident()
        with self._mutex:
            if self._owner is None:
                self._owner = me
                return
            turn = threading.Event()
            self._waiting.append((turn, me))
        try:
            turn.wait()
        except BaseException:  # KeyboardInterrupt in the main thread
            with self._mutex:
                if (turn, me) in self._waiting:
                    self._waiting.remove((turn, me))
                    raise
            self._give()  # it came at the same moment
            raise

    def _give(self) -> None:
        with self._mutex:
            if self._owner != threading.get_ident():
                return  # an interrupt ended the wait for a turn
            self._owner = None
            if self._waiting:
                turn, self._owner = self._waiting.popleft()
                turn.set()

    def renew(self) -> None:
        """Forget threads that a child process does not have."""
        own = self._owner == threading.get_ident()
        self._mutex, self._waiting, self._queued = threading.Lock(), deque(), 0
        self._owner = threading.get_ident() if own else None
        vars(self).pop("_workers", None)


# One a model, whatever wraps it.
_turns: WeakKeyDictionary[Any, Turns] = WeakKeyDictionary()
_turns_lock = threading.Lock()


def turns_of(model: Any) -> Turns:
    """Return the turns of a model, always the same."""
    with _turns_lock:
        return _turns.setdefault(model, Turns())


def _renew() -> None:
    global _turns_lock
    _turns_lock = threading.Lock()
    for turns in list(_turns.values()):
        turns.renew()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_renew)
