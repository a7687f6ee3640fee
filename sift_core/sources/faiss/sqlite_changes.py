"""What a documents file knows of its Faiss index, and the transactions that change both."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from sift_core.types import Document

# No uniqueness of content ids: a user's own collection may hold a document twice.
SCHEMA = """
CREATE TABLE documents (
    id INTEGER PRIMARY KEY,
    content_id TEXT NOT NULL,
    document_id TEXT NOT NULL,
    text TEXT NOT NULL,
    metadata TEXT NOT NULL
);
CREATE INDEX documents_by_content ON documents (content_id);
CREATE TABLE changes (sequence INTEGER PRIMARY KEY, id INTEGER NOT NULL, vector BLOB);
CREATE TABLE state (only_row INTEGER PRIMARY KEY CHECK (only_row = 1), json TEXT NOT NULL);
"""

Row = tuple[int, str, Document]  # id, content id, document


@dataclass(frozen=True, kw_only=True, eq=False)
class Change:
    """A vector (d,) that was added to the index under an id, or None: the id was removed."""

    sequence: int
    key: int
    vector: npt.NDArray[np.float32] | None


@dataclass(frozen=True, kw_only=True)
class IndexState:
    """What the file knows about the Faiss index that belongs to it.

    Args:
        generation: Number of transactions that changed the file, so that a writer notices
            another one.
        next_id: The least id that was never given to a document.
        n_removed: Documents removed so far; their vectors may still be in the index.
        embedder_name: Model behind the vectors.
        dimension: d of the vectors; None where no source has written yet.
        snapshot: File name, in the same folder, of the index to which the logged changes
            are to be applied; None where no source has written yet.
        snapshot_bytes: Its size.
        snapshot_crc: Its CRC-32.
    """

    generation: int = 0
    next_id: int = 0
    n_removed: int = 0
    embedder_name: str | None = None
    dimension: int | None = None
    snapshot: str | None = None
    snapshot_bytes: int = 0
    snapshot_crc: int = 0


class Transaction:
    """Changes that become durable together.

    Args:
        connection: Within a write transaction.
        state: As it is before; assign to `state` to change it.
    """

    def __init__(self, connection: sqlite3.Connection, state: IndexState) -> None:
        self._connection = connection
        self.state = state

    def insert(self, rows: Iterable[Row]) -> None:
        """Store documents; equal ids are replaced."""
        next_id = self.state.next_id

        def columns() -> Iterator[tuple[Any, ...]]:
            nonlocal next_id
            for key, content, document in rows:
                next_id = max(next_id, key + 1)
                metadata = json.dumps(dict(document.metadata), ensure_ascii=False)
                yield key, content, document.document_id, document.text, metadata

        self._connection.executemany(
            "INSERT OR REPLACE INTO documents VALUES (?, ?, ?, ?, ?)", columns()
        )
        self.state = replace(self.state, next_id=next_id)

    def ids_of(self, content_ids: Iterable[str]) -> list[int]:
        """Return the ids of the documents with these content ids."""
        statement = "SELECT id FROM documents WHERE content_id = ?"
        found = (self._connection.execute(statement, (content,)) for content in content_ids)
        return [key for rows in found for (key,) in rows.fetchall()]

    def count(self) -> int:
        """Return the number of documents."""
        count: int = self._connection.execute("SELECT count(*) FROM documents").fetchone()[0]
        return count

    def delete(self, ids: Iterable[int]) -> None:
        """Delete documents and count them as removed."""
        statement = "DELETE FROM documents WHERE id = ?"
        n_removed = self._connection.executemany(statement, ((key,) for key in ids)).rowcount
        self.state = replace(self.state, n_removed=self.state.n_removed + max(n_removed, 0))

    def log(self, changes: Iterable[tuple[int, npt.NDArray[np.float32] | None]]) -> None:
        """Write down changes of the index: an id and its vector (d,), None for a removal."""
        rows = (
            (key, None if vector is None else vector.astype("<f4").tobytes())
            for key, vector in changes
        )
        self._connection.executemany("INSERT INTO changes (id, vector) VALUES (?, ?)", rows)

    def clear_log(self) -> None:
        """Forget the changes that a snapshot holds."""
        self._connection.execute("DELETE FROM changes")


def save_state(connection: sqlite3.Connection, state: IndexState) -> None:
    """Write the state within a transaction."""
    text = json.dumps(asdict(state), ensure_ascii=False)
    connection.execute("INSERT OR REPLACE INTO state VALUES (1, ?)", (text,))
