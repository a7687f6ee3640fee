"""One `sift index` at a time writes into a folder."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from sift_core.errors import CandidateSourceError

NAME = "index.lock"


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder; a process that dies lets go of it.

    Args:
        folder: Exists. Where no lock can be made, none is held: writing will tell why not.

    Raises:
        CandidateSourceError: If another process holds it, at once.
    """
    try:
        # SQLite's locks work on every system.
        connection = sqlite3.connect(folder / NAME, timeout=0, isolation_level=None)
    except sqlite3.Error:
        yield
        return
    with closing(connection):
        try:
            connection.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                raise CandidateSourceError(
                    f"another sift index is writing into {str(folder)!r}; wait until it has "
                    f"ended, then run this again"
                ) from error
        yield
