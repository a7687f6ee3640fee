"""A lock that many readers share and one writer has alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from sift_core.errors import InvalidInputError


class ReadWriteLock:
    """Readers run side by side; a writer waits until they have left and then is alone.

    Faiss searches on one core for one query, so that readers who waited for one another would
    leave the other cores idle. Readers that come later wait for a writer that waits already: a
    steady stream of queries does not starve it.
    """

    def __init__(self) -> None:
        self._writer = threading.RLock()
        self._gate = threading.Lock()  # held by a writer that waits or writes
        self._left = threading.Condition()
        self._n_readings = 0
        self._mine = threading.local()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Keep writers out; may be nested within one thread."""
        depth = self._depth
        with nullcontext() if depth else self._gate, self._left:
            self._n_readings += 1
        self._mine.depth = depth + 1
        try:
            yield
        finally:
            self._mine.depth = depth
            with self._left:
                self._n_readings -= 1
                self._left.notify_all()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Keep other writers out, while readers go on; may be nested within one thread.

        Raises:
            InvalidInputError: If this thread is reading: it could wait for itself.
        """
        if self._depth:
            raise InvalidInputError(
                "a source cannot be written to while it is being read in the same thread, for "
                "instance from within a filter; write after the fetch"
            )
        with self._writer:
            yield

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Keep everybody else out.

        Raises:
            InvalidInputError: As `turn`.
        """
        with self.turn(), self._gate, self._left:
            self._left.wait_for(lambda: self._n_readings == 0)
            yield

    @property
    def _depth(self) -> int:
        """How many times this thread is reading."""
        return getattr(self._mine, "depth", 0)
