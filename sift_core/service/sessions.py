"""What conversations have learned, by the name that a client gave them."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from sift_core.errors import MissingDependencyError
from sift_core.service.metrics import Metrics

try:
    from cachetools import TTLCache
except ImportError as error:
    raise MissingDependencyError("cachetools", extra="serve") from error

if TYPE_CHECKING:
    from sift_core.answering import Session


class Sessions:
    """Sessions by key, the least recently used and those that nobody asks dropped.

    For one event loop.

    Args:
        n_kept: At most.
        seconds: After which an unused one is dropped.
        metrics: Told of hits and misses.
    """

    def __init__(self, n_kept: int, seconds: float, metrics: Metrics) -> None:
        self._kept: TTLCache[Hashable, Session] = TTLCache(n_kept, seconds)
        self._locks: WeakValueDictionary[Hashable, asyncio.Lock] = WeakValueDictionary()
        self._metrics = metrics

    def being_made(self, key: Hashable) -> asyncio.Lock:
        """Return the lock that whoever makes this session holds, so that it is made once."""
        return self._locks.setdefault(key, asyncio.Lock())

    def get(self, key: Hashable) -> Session | None:
        """Return a session, and count its time anew; None if there is none."""
        found: Session | None = self._kept.get(key)
        self._metrics.looked_up("sessions", hits=int(found is not None), misses=int(found is None))
        if found is not None:
            self._kept[key] = found
        return found

    def put(self, key: Hashable, session: Session) -> None:
        """Keep a session."""
        self._kept[key] = session
