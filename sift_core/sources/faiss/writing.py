"""Changing a Faiss index and its documents together, in memory and in the folder of both."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from sift_core.checks import as_finite_array, check_text
from sift_core.errors import CandidateSourceError, InvalidInputError
from sift_core.sources.content_ids import content_id
from sift_core.sources.faiss.documents import DocumentLookup, DocumentTable
from sift_core.sources.faiss.entries import (
    add_entries,
    check_can_grow,
    entry_ids,
    remove_entries,
    takes_ids,
)
from sift_core.sources.faiss.folder import IndexFolder
from sift_core.sources.faiss.read_write_lock import ReadWriteLock
from sift_core.types import Document, FloatArray, IntArray


class IndexWriter:
    """The writing side of `FaissSource`: vectors first, then documents, then the folder.

    A vector without a document counts as deleted, so an interruption between the two loses
    what was being added and nothing else.

    Args:
        index: Changed in place.
        lookup: Its documents; a table takes their place at the first change.
        lock: Held for writing while both change.
        folder: Where `flush` saves; None for nowhere.
    """

    def __init__(
        self,
        index: Any,
        lookup: DocumentLookup,
        lock: ReadWriteLock,
        *,
        folder: IndexFolder | None,
    ) -> None:
        self._index = index
        self._lookup = lookup
        self._lock = lock
        self.folder = folder
        self._next_id: int | None = None  # the least that was never given to an entry
        self.has_changes = False
        self._turn = threading.RLock()  # one writer of this source at a time

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Keep index and documents as they are for a block; fetches go on.

        Raises:
            InvalidInputError: If this thread is fetching: it could wait for itself.
        """
        self._lock.refuse_if_reading()  # before waiting for a writer that waits for this reader
        with self._turn:
            yield

    @contextmanager
    def changing(self) -> Iterator[DocumentTable]:
        """Be the only writer, of the folder as well; gives the documents.

        Raises:
            CandidateSourceError: If another writes into the folder, or has since it was read.
            InvalidInputError: If this thread is fetching, or JSON cannot hold a document.
        """
        with self.turn():
            if self.folder is not None:
                self.folder.acquire()
            table = self._lookup.as_table(np.unique(entry_ids(self._index)))
            if self._lookup.table is None:
                with self._lock.writing():
                    self._lookup.replace(table)
            yield table

    def add(
        self, content_ids: Sequence[str], documents: Sequence[Document], embeddings: FloatArray
    ) -> None:
        """Add documents with embeddings (n, d); equal content ids are replaced.

        Raises:
            CandidateSourceError: If Faiss fails, or another process writes into the folder.
            InvalidInputError: If the index cannot grow, lengths or dimension differ, a number is
                not finite, or JSON cannot hold the metadata.
        """
        vectors = checked_rows(content_ids, documents, embeddings, self._index.d)
        rows = {content: row for row, content in enumerate(content_ids)}  # the last of equal ones
        if not rows:
            return
        check_can_grow(self._index)
        with self.changing() as table, self._lock.writing():
            ids = self._new_ids(len(rows))
            self._change(add_entries, ids, vectors[list(rows.values())])
            replaced = table.take_out(rows)
            for key, (content, row) in zip(ids.tolist(), rows.items(), strict=True):
                table.put(key, content, documents[row])
            self._change(remove_entries, np.array(replaced, dtype=np.int64))

    def remove(self, content_ids: Sequence[str]) -> None:
        """Delete documents; ids that are not there are ignored.

        Raises:
            CandidateSourceError: As `add`.
        """
        content_ids = list(content_ids)
        if not content_ids:
            return
        with self.changing() as table, self._lock.writing():
            removed = table.take_out(content_ids)
            self._change(remove_entries, np.array(removed, dtype=np.int64))

    def flush(self, embedder_name: str | None) -> None:
        """Save into the folder what changed since the last time.

        Raises:
            CandidateSourceError: If it cannot be written; the folder is then as before.
        """
        if self.folder is None or not self.has_changes:
            return
        with self.changing() as table:
            self.folder.write(self._index, table.rows(), embedder_name=embedder_name)
            self.has_changes = False

    def release(self) -> None:
        """Let others write into the folder."""
        with self.turn():
            if self.folder is not None:
                self.folder.release()

    def _new_ids(self, n: int) -> IntArray:
        """Return ids that no entry ever had, or the next where the index counts."""
        start = self._index.ntotal
        if takes_ids(self._index):
            if self._next_id is None:
                self._next_id = int(entry_ids(self._index).max(initial=-1)) + 1
            start = self._next_id
            self._next_id += n
        return np.arange(start, start + n, dtype=np.int64)

    def _change(self, change: Any, *arguments: Any) -> None:
        self.has_changes = True
        try:
            change(self._index, *arguments)
        except (RuntimeError, MemoryError) as error:
            raise CandidateSourceError(
                f"Faiss could not change the index in memory: {error}; load the source again"
            ) from error


def checked_rows(
    content_ids: Sequence[str], documents: Sequence[Document], embeddings: FloatArray, d: int
) -> FloatArray:
    """Return embeddings (n, d) as float32, fit to be added with n documents.

    Raises:
        InvalidInputError: If lengths or dimension differ, a number is not finite, or JSON
            cannot hold the metadata.
    """
    vectors = as_finite_array("embeddings", embeddings, n_dimensions=2)
    if not len(content_ids) == len(documents) == len(vectors):
        raise InvalidInputError(
            f"`content_ids`, `documents` and `embeddings` must have one row a document, got "
            f"{len(content_ids)}, {len(documents)} and {len(vectors)}"
        )
    if len(vectors) and vectors.shape[1] != d:
        raise InvalidInputError(
            f"`embeddings` must have {d} columns like the index, got {vectors.shape[1]}; were "
            f"both made by one model?"
        )
    for content, document in zip(content_ids, documents, strict=True):
        check_text("content id", content)
        content_id(document)  # refuses what JSON cannot hold
    with np.errstate(over="ignore"):  # becomes infinite, which is refused
        narrow: FloatArray = np.ascontiguousarray(vectors, dtype=np.float32)
    return as_finite_array("embeddings as float32", narrow, n_dimensions=2)
