"""One SQLite file that is opened with care: locks, durable transactions, errors of ours."""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sift_core.errors import CandidateSourceError

_logger = logging.getLogger(__name__)

_BUSY_TIMEOUT_S = 10.0  # another process writes for milliseconds, or saves a folder for seconds
_ROWS_A_PAGE = 1000
_FEW_PAGES = 256  # a megabyte: not worth the work
_SMALLEST_PAGE = 512  # bytes; of SQLite's file format


class SQLiteFile:
    """A connection that any number of threads may use, one at a time.

    Args:
        path: The file; None for a database in memory.
        create: Whether to create the file where it is missing. A file that may not be written
            is opened for reading.

    Raises:
        CandidateSourceError: If the file cannot be opened.
    """

    def __init__(self, path: Path | None, *, create: bool = True) -> None:
        self.path = path
        self._lock = threading.RLock()
        place = ":memory:"
        if path is not None:
            place = f"{path.absolute().as_uri()}?mode={'rwc' if create else 'rw'}"
        with self.failures("open"):
            self._connection = sqlite3.connect(
                place,
                uri=True,
                timeout=_BUSY_TIMEOUT_S,
                isolation_level=None,  # transactions are begun by name
                check_same_thread=False,
            )
        self._close = weakref.finalize(self, self._connection.close)
        try:
            with self.failures("open"):
                # EXTRA is FULL and also syncs the folder when the rollback journal is deleted.
                self._connection.execute("PRAGMA synchronous = EXTRA")
                self._opened = None if path is None else path.stat()
            size = _SMALLEST_PAGE if self._opened is None else self._opened.st_size
            if size < _SMALLEST_PAGE and not (create and size == 0):
                raise CandidateSourceError(  # SQLite would take it for new, and overwrite it
                    f"{self} has {size} bytes and is no database; is it the right file?"
                )
        except BaseException:
            self._close()
            raise

    def __str__(self) -> str:
        """Return what error messages call it."""
        return "documents in memory" if self.path is None else repr(str(self.path))

    def close(self) -> None:
        """Close the file; further calls fail, except this one."""
        with self._lock:
            self._close()

    def read(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        with self.failures("read"), self._lock:
            return self._connection.execute(statement, parameters).fetchall()

    def pragma(self, name: str) -> int:
        """Return a number that SQLite keeps in the header of the file."""
        value: int = self.read(f"PRAGMA {name}")[0][0]
        return value

    def pages(
        self, table: str, columns: str, *, after: int = -1
    ) -> Iterator[list[tuple[Any, ...]]]:
        """Yield the rows of a table in the order of its first column, an integer key."""
        key = columns.split(",")[0]
        statement = (
            f"SELECT {columns} FROM {table} WHERE {key} > ? ORDER BY {key} LIMIT {_ROWS_A_PAGE}"
        )
        while page := self.read(statement, (after,)):
            yield page
            after = page[-1][0]

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Do all that is done within, or nothing, durably; other writers wait.

        Raises:
            CandidateSourceError: If the file cannot be written, or another one has taken its
                place since it was opened.
        """
        with self.failures("write to"), self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                self._check_place()
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # some errors roll back by themselves
                    self._connection.execute("ROLLBACK")
                raise

    def compact(self) -> None:
        """Give space back to the system where more than half of the file is unused.

        Takes the time and, for a moment, the space of writing what is used once more. Where
        that cannot be done now, for want of space or since others read, the file stays as it is.
        """
        n_free, n_pages = self.pragma("freelist_count"), self.pragma("page_count")
        if 2 * n_free <= n_pages or n_free < _FEW_PAGES:
            return
        try:
            with self._lock:
                self._connection.execute("VACUUM")
        except sqlite3.OperationalError as error:
            _logger.info("%s keeps %d unused pages: %s", self, n_free, error)

    def _check_place(self) -> None:
        """Refuse to write into a file that nobody will find again."""
        if self.path is None or self._opened is None:
            return
        if not self.path.exists() or not os.path.samestat(self._opened, self.path.stat()):
            raise CandidateSourceError(
                f"{self} was replaced or deleted since it was opened, by another save into its "
                f"folder for instance; load it again"
            )

    @contextmanager
    def failures(self, verb: str) -> Iterator[None]:
        """Raise SQLite's errors as ours, with advice."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise CandidateSourceError(
                f"SQLite could not {verb} {self}: {error}; {_advice(str(error))}"
            ) from error


def _advice(error: str) -> str:
    """Return what to do about an error of SQLite, told by its words: codes need Python 3.11."""
    for words, advice in (
        ("locked", "another process is writing to it: wait, or find the one that hangs"),
        ("readonly", "its file and folder must be writable for this user"),
        ("full", "free some space; what was stored before is whole"),
        ("not a database", "is it the right file?"),
        ("malformed", "the file is damaged: restore it, or index the documents again"),
        ("unable to open", "do its folder and file exist, and may this user open them?"),
        ("closed", "it was closed; open it again"),
    ):
        if words in error:
            return advice
    return "is the disk in order, and is there space on it?"
