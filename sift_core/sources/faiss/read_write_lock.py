"""A lock that many readers share and one writer has alone."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from sift_core.errors import InvalidInputError


class ReadWriteLock:
    """Readers run side by side; a writer waits until they have left and then is alone.

    A waiting writer goes before readers that come later, so that a steady stream of queries
    does not starve it. Reading costs some microseconds.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._readings: Counter[int] = Counter()  # by thread
        self._is_writing = False
        self._n_writers_waiting = 0

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Keep writers out; may be nested within one thread."""
        me = threading.get_ident()
        with self._changed:
            if me not in self._readings:  # else a writer already waits for this thread
                while self._is_writing or self._n_writers_waiting:
                    self._changed.wait()
            self._readings[me] += 1
        try:
            yield
        finally:
            with self._changed:
                self._readings[me] -= 1
                if not self._readings[me]:
                    del self._readings[me]
                    if not self._readings:
                        self._changed.notify_all()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Keep everybody else out.

        Raises:
            InvalidInputError: If this thread is reading: it would wait for itself.
        """
        self.refuse_if_reading()
        with self._changed:
            self._n_writers_waiting += 1
            try:
                while self._is_writing or self._readings:
                    self._changed.wait()
                self._is_writing = True
            finally:
                self._n_writers_waiting -= 1
                self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._is_writing = False
                self._changed.notify_all()

    def refuse_if_reading(self) -> None:
        """Refuse a thread that reads and wants to write: it would wait for itself.

        Raises:
            InvalidInputError: If this thread is reading.
        """
        with self._changed:
            if threading.get_ident() in self._readings:
                raise InvalidInputError(
                    "a source cannot be written to while it is being read in the same thread, "
                    "for instance from within a filter; write after the fetch"
                )
