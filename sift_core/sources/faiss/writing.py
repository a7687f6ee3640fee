"""Changing a Faiss index and its documents so that no death of the process parts them."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from sift_core.errors import CandidateSourceError, InvalidInputError
from sift_core.sources.faiss.batch import checked_batch
from sift_core.sources.faiss.entries import (
    add_entries,
    check_can_grow,
    check_not_on_gpu,
    entry_ids,
    remove_entries,
    takes_ids,
)
from sift_core.sources.faiss.folder import (
    current_documents,
    delete_files,
    folder_lock,
    sweep,
    sweep_snapshots,
    write_index,
)
from sift_core.sources.faiss.loading import check_have_entries
from sift_core.sources.faiss.read_write_lock import ReadWriteLock
from sift_core.sources.faiss.sqlite_changes import IndexState, Transaction
from sift_core.sources.faiss.sqlite_documents import SQLiteDocuments
from sift_core.types import Document, FloatArray, IntArray


class IndexWriter:
    """Writes documents and vectors: first both to SQLite, durably, then to the index in memory.

    The documents file holds a log of the vectors added and the ids removed since the index was
    last written to a file, so loading gives every state that was once reported as stored.
    `complete` writes the index to a new file and clears the log.

    Args:
        index: Changed in place.
        documents: Its documents.
        lock: Held for writing while both change.
        state: As `documents` says; of the last change that is in `index`.
        n_documents: Number of documents in that state.
        folder: Where a manifest names the documents.
        is_loaded: Whether index and documents were read together, so that the log goes with
            the index. Otherwise the first change writes the index to a file.
    """

    def __init__(
        self,
        index: Any,
        documents: SQLiteDocuments,
        lock: ReadWriteLock,
        *,
        state: IndexState,
        n_documents: int,
        folder: Path | None = None,
        is_loaded: bool = False,
    ) -> None:
        self._index = index
        self._documents = documents
        self._lock = lock
        self._state = state
        self._n_documents = n_documents
        self.folder = folder
        self._is_adopted = is_loaded
        self._failure: BaseException | None = None  # of the index, after documents were stored
        self.turn = threading.RLock()  # one writer of this source at a time

    def prepare(self, *, embedder_name: str, dimension: int) -> None:
        """Check that index and documents suit an embedder, and note its name where there is none.

        Raises:
            CandidateSourceError: If the documents file fails, or a write failed halfway.
            InvalidInputError: If the index cannot grow or has another dimension, or the
                documents another embedder or one that is not known.
        """
        self._lock.refuse_if_reading()
        check_can_grow(self._index)
        if dimension != self._index.d:
            raise InvalidInputError(
                f"the index has {self._index.d} dimensions, the embedder {embedder_name!r} makes "
                f"{dimension}; pass that index's embedder, or index into a new folder"
            )
        with self.turn:
            self.check_usable()
            known = self._state.embedder_name
            if known == embedder_name:
                return
            _check_same_embedder(known, embedder_name)
            if self._index.ntotal:
                raise InvalidInputError(
                    f"the index holds {self._index.ntotal} vectors of an embedder that is not "
                    f"known; pass its `embedder_name` when you construct or load the source"
                )
            with self._changing() as transaction:
                _check_same_embedder(transaction.state.embedder_name, embedder_name)
                transaction.state = replace(transaction.state, embedder_name=embedder_name)

    def add(
        self, content_ids: Sequence[str], documents: Sequence[Document], embeddings: FloatArray
    ) -> None:
        """Store documents with embeddings (n, d), durably; equal content ids are replaced.

        Raises:
            CandidateSourceError: If a file or Faiss fails; then all or none are stored.
            InvalidInputError: If lengths or dimension differ, a number is not finite, or JSON
                cannot hold the metadata.
        """
        batch = checked_batch(content_ids, documents, embeddings, self._index.d)
        if not batch.documents:
            return
        check_can_grow(self._index)
        with self._writing():
            with self._storing() as transaction:
                replaced = transaction.ids_of(batch.documents)
                ids = self._new_ids(len(batch.documents))
                transaction.delete(replaced)
                transaction.insert(
                    (key, content, document)
                    for key, (content, document) in zip(ids, batch.documents.items(), strict=True)
                )
                if self._is_durable:
                    transaction.log(
                        chain(_removals(replaced), zip(ids, batch.vectors, strict=True))
                    )
            self._apply(replaced, np.array(ids, dtype=np.int64), batch.vectors)

    def remove(self, content_ids: Iterable[str]) -> None:
        """Delete documents, durably; ids that are not there are ignored.

        Raises:
            CandidateSourceError: If a file or Faiss fails; then all or none are deleted.
        """
        content_ids = list(content_ids)
        if not content_ids:
            return
        with self._writing():
            with self._storing() as transaction:
                removed = transaction.ids_of(content_ids)
                transaction.delete(removed)
                if self._is_durable:
                    transaction.log(_removals(removed))
            self._apply(removed, np.empty(0, dtype=np.int64), np.empty((0, self._index.d)))

    def complete(self) -> None:
        """Write the index to a new file and clear the log, if anything changed since the last.

        Raises:
            CandidateSourceError: If a file cannot be written; then all is as before.
        """
        self._lock.refuse_if_reading()
        if not self._is_durable:
            return
        with self.turn:
            self.check_usable()
            self._check_folder()
            is_same = self._documents.state().generation == self._state.generation
            if self._is_adopted and is_same and not self._documents.has_changes():
                return
            if self._is_adopted:
                if is_same:  # else refused below, for a better reason
                    self._check_complete()
                self._write_snapshot(self._state.generation)
            else:
                self._adopt()
            self._documents.compact()

    def content_ids(self) -> set[str]:
        """Return the content ids of all documents, whoever stored them.

        Raises:
            CandidateSourceError: If the file cannot be read, or a write failed halfway, so that
                a document listed here may lack its vector.
        """
        with self._lock.reading():  # not halfway through a write
            self.check_usable()
        return self._documents.content_ids()

    @property
    def n_deleted(self) -> int:
        """How many vectors of the index have no document any more."""
        return max(0, int(self._index.ntotal) - self._n_documents)

    @property
    def state(self) -> IndexState:
        """What the documents file says, as of the last change that is in the index."""
        return self._state

    @property
    def _is_durable(self) -> bool:
        return self._documents.path is not None

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Be the only one who uses index and documents."""
        self._lock.refuse_if_reading()  # before waiting for a writer that waits for this reader
        check_not_on_gpu(self._index)
        with self.turn:
            self.check_usable()
            self._adopt()
            with self._lock.writing():
                yield

    @contextmanager
    def _storing(self) -> Iterator[Transaction]:
        """Change the documents file; from its commit until `_apply` ends, the index is unusable."""
        known = self._state.generation
        self._failure = InterruptedError("a write was interrupted")
        try:
            with self._changing() as transaction:
                yield transaction
        except BaseException as error:
            # An interrupt may come after the commit; other errors undo what was done.
            if isinstance(error, Exception) or self._documents.state().generation == known:
                self._failure = None
            raise

    def check_usable(self) -> None:
        """Refuse an index that lacks a part of what is stored.

        Raises:
            CandidateSourceError: If Faiss failed, or was interrupted, after documents were stored.
        """
        if self._failure is not None:
            raise CandidateSourceError(
                f"the index in memory lacks documents that are stored, since Faiss failed or was "
                f"interrupted: {self._failure}; load the source again"
            ) from self._failure

    def _check_complete(self) -> int:
        """Refuse an index that lacks entries of documents; return the documents' number."""
        ids = np.fromiter(self._documents, dtype=np.int64)
        check_have_entries(self._index, ids)
        return len(ids)

    def _adopt(self) -> None:
        """Make the index that the user brought the one that changes are relative to."""
        if self._is_adopted:
            return
        generation = self._documents.state().generation  # of what is checked
        n_documents = self._check_complete()
        if self._is_durable:
            self._write_snapshot(generation)
        else:
            with self._changing(generation) as transaction:
                transaction.state = replace(transaction.state, next_id=self._least_new_id())
        self._n_documents = n_documents
        self._is_adopted = True

    def _least_new_id(self) -> int:
        return max(self._state.next_id, int(entry_ids(self._index).max(initial=-1)) + 1)

    def _new_ids(self, n: int) -> list[int]:
        """Return ids that no document ever had, or the next where the index counts."""
        start = self._state.next_id if takes_ids(self._index) else self._index.ntotal
        return list(range(start, start + n))

    @contextmanager
    def _changing(self, generation: int | None = None) -> Iterator[Transaction]:
        """Change the documents file, unless something else changed it or took its place."""
        if self._is_adopted:
            generation = self._state.generation
        with self._documents.transaction(generation=generation) as transaction:
            self._check_folder()
            stored, known = transaction.state.embedder_name, self._state.embedder_name
            if known is not None:
                _check_same_embedder(stored, known)
            transaction.state = replace(transaction.state, embedder_name=known or stored)
            yield transaction
        self._state = transaction.state

    def _check_folder(self) -> None:
        """Refuse to write into documents that the folder no longer names."""
        path = self._documents.path
        if self.folder is None or path is None:
            return
        current = current_documents(self.folder)
        if current is None or current.name != path.name:
            raise CandidateSourceError(
                f"{str(self.folder)!r} was saved anew by something else since this source was "
                f"loaded; load it again"
            )

    def _write_snapshot(self, generation: int) -> None:
        """Write the index, which was found complete at this generation, and clear the log."""
        documents_path = self._documents.path
        assert documents_path is not None  # checked by the callers
        name = f"index-{uuid.uuid4().hex[:12]}.faiss"
        if self.folder is None:  # not among the files that a save into this folder deletes
            name = f"{documents_path.name}.{name}"
        path = documents_path.parent / name
        with nullcontext() if self.folder is None else folder_lock(self.folder):
            written = write_index(self._index, path)
            try:
                with self._changing(generation) as transaction:
                    if not path.exists():
                        raise CandidateSourceError(
                            f"{str(path)!r} was deleted before it was in use, by another process "
                            f"that wrote at the same time; try again"
                        )
                    transaction.clear_log()
                    transaction.state = replace(
                        transaction.state,
                        dimension=written.dimension,
                        snapshot=written.snapshot,
                        snapshot_bytes=written.snapshot_bytes,
                        snapshot_crc=written.snapshot_crc,
                        next_id=max(transaction.state.next_id, self._least_new_id()),
                    )
            except BaseException:
                if self._documents.state().snapshot != name:
                    delete_files([path])
                raise
            if self.folder is not None:
                sweep(self.folder)
            else:
                with suppress(CandidateSourceError):  # the next one deletes them
                    sweep_snapshots(self._documents)

    def _apply(self, removed: list[int], ids: IntArray, vectors: FloatArray) -> None:
        """Bring the index in memory to what is stored."""
        self._n_documents += len(ids) - len(removed)
        try:
            remove_entries(self._index, np.array(removed, dtype=np.int64))
            if len(ids):
                add_entries(self._index, ids, vectors)
        except (RuntimeError, MemoryError) as error:  # an interrupt leaves the mark of `_storing`
            self._failure = error
            raise CandidateSourceError(
                f"the documents are stored, but Faiss could not change the index in memory: "
                f"{error}; load the source again"
            ) from error
        self._failure = None


def _check_same_embedder(stored: str | None, name: str) -> None:
    if stored not in (None, name):
        raise InvalidInputError(
            f"the index holds vectors of {stored!r}, which cannot be mixed with those of "
            f"{name!r}; pass that embedder, or index into a new folder"
        )


def _removals(ids: Iterable[int]) -> Iterator[tuple[int, None]]:
    return ((key, None) for key in ids)
