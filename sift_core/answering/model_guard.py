"""Who may use a model: one thread, and while it is changed, one flow of control."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

from sift_core.errors import InvalidInputError

WAITS_FOR_ITSELF = (
    "the model is in use here already, and another thread would wait for the end of that for "
    "ever; leave that `with` block or callback first, or answer in this thread without a stream"
)

# What this flow of control holds open; an asyncio task in the same thread, which no lock would
# stop, has its own.
_own_holds: ContextVar[tuple[object, ...]] = ContextVar("sift_own_holds", default=())


@dataclass(kw_only=True, eq=False)
class ModelGuard:
    """Keeps others out; see `LanguageModel`."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    owner: int | None = None  # the thread that has the lock
    holds: set[object] = field(default_factory=set)  # one a `with` block that is open
    changed_by: object | None = None  # one of `holds`

    @cached_property
    def worker(self) -> ThreadPoolExecutor:
        """The one thread in which answers are computed beside the caller."""
        return ThreadPoolExecutor(max_workers=1, thread_name_prefix="sift-model")

    @property
    def is_held_here(self) -> bool:
        """Whether this flow of control is inside a `with` block that holds the model."""
        return not self.holds.isdisjoint(_own_holds.get())

    @property
    def is_changed_by_others(self) -> bool:
        """Whether another flow of control has changed the model."""
        return self.changed_by is not None and self.changed_by not in _own_holds.get()

    @contextmanager
    def held(self) -> Iterator[object]:
        """Hold the model for the `with` block.

        Raises:
            InvalidInputError: In another thread on behalf of one that holds the model.
        """
        if self.is_held_here and self.owner != threading.get_ident():
            raise InvalidInputError(WAITS_FOR_ITSELF)
        with self.lock:
            outer, self.owner = self.owner, threading.get_ident()
            hold = object()
            self.holds.add(hold)
            _own_holds.set((*_own_holds.get(), hold))
            try:
                yield hold
            finally:
                _own_holds.set(tuple(h for h in _own_holds.get() if h is not hold))
                self.holds.discard(hold)
                self.owner = outer

    def renew(self) -> None:
        """Forget threads that a child process does not have; what they changed stays refused."""
        vars(self).pop("worker", None)
        if self.owner != threading.get_ident():
            self.lock, self.owner, self.holds = threading.RLock(), None, set()


# One guard a model, whatever wraps it.
_guards: WeakKeyDictionary[Any, ModelGuard] = WeakKeyDictionary()
_guards_lock = threading.Lock()


def guard_of(model: Any) -> ModelGuard:
    """Return the guard of a model, always the same one."""
    with _guards_lock:
        return _guards.setdefault(model, ModelGuard())


def _renew_guards() -> None:
    global _guards_lock
    _guards_lock = threading.Lock()
    for guard in list(_guards.values()):
        guard.renew()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_renew_guards)
