"""An index with its documents and their words: read by many threads, changed in step by one."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from sift_core.errors import InvalidInputError
from sift_core.places import heading_of
from sift_core.protocols import Lookup
from sift_core.sources.contract import as_float32
from sift_core.sources.faiss.documents import Documents, DocumentTable, Filter
from sift_core.sources.faiss.entries import (
    add_entries,
    entry_ids,
    is_on_gpu,
    lossy_part,
    remove_entries,
    takes_ids,
)
from sift_core.sources.faiss.read_write_lock import ReadWriteLock
from sift_core.sources.faiss.search import Found, as_pool, find, of_unit_length, stored_vectors
from sift_core.sources.lexical_index import LexicalIndex
from sift_core.types import CandidatePool, Document, FloatArray, IntArray, Query


class Contents:
    """The index, documents and words that a `FaissSource` searches and changes.

    Args:
        index: A trained index.
        documents: The documents of its entries.
        words: Words that were counted before. If it is None, the folder keeps no words, and nothing
            is counted until `count_words` is called.
    """

    def __init__(self, index: Any, documents: Documents, words: LexicalIndex | None) -> None:
        self.index = index
        self.documents = documents
        self.lock: ReadWriteLock = ReadWriteLock()
        self._gpu = threading.Lock() if is_on_gpu(index) else nullcontext()
        self._next_id: int | None = None  # the least that was never given to an entry
        self._n_changes = 0
        self._words = words
        self._words_state: Hashable = None  # of the documents when they were counted
        self._counting = threading.Lock()

    @property
    def has_words(self) -> bool:
        """Whether words can be looked up."""
        return self._words is not None

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Keep writers out; on a GPU everybody."""
        with self.lock.reading(), self._gpu:
            yield

    @contextmanager
    def searching(self) -> Iterator[None]:
        """Read where there are documents.

        Raises:
            InvalidInputError: If there are none.
        """
        with self.reading():
            if not (self.index.ntotal and len(self.documents)):
                raise InvalidInputError("there are no documents to fetch from; add some first")
            yield

    def near(
        self, queries: Sequence[Query], n_candidates: int, keep: Filter | None
    ) -> list[CandidatePool]:
        """Return the nearest documents of each query. Call it within `searching`."""
        vectors = np.stack([as_float32(query.vector) for query in queries])
        found = find(self.index, self.documents, vectors, n_candidates, keep)
        return [as_pool(query, row) for query, row in zip(queries, found, strict=True)]

    def by_words(
        self, query: Query, lookups: Sequence[Lookup], keep: Filter | None
    ) -> list[CandidatePool]:
        """Return one pool for each lookup, empty for vectors. Call it within `searching`."""
        pools = [CandidatePool.empty(dimension=len(query.vector))] * len(lookups)
        wanted = {i: one.words for i, one in enumerate(lookups) if one.words is not None}
        if not wanted or not self.has_words:
            return pools

        def passes(faiss_id: int) -> bool:
            assert keep is not None
            return keep(self._documents([faiss_id])[0].metadata)

        filter_ = None if keep is None else passes
        words = self.count_words()
        ranked = [
            words.search(some, lookups[i].n_candidates, filter_) for i, some in wanted.items()
        ]
        vectors = self._vectors([faiss_id for each in ranked for faiss_id in each.ids])
        ends = np.cumsum([len(each.ids) for each in ranked])
        for i, each, end in zip(wanted, ranked, ends, strict=True):
            rows = vectors[end - len(each.ids) : end]
            found = Found(documents=self._documents(each.ids), vectors=rows)
            pools[i] = replace(as_pool(query, found), scores=each.scores)
        return pools

    def count_words(self) -> LexicalIndex:
        """Return the words of all documents. Nobody may change these meanwhile."""
        state = self._n_changes, int(self.index.ntotal)
        with self._counting:
            if self._words is None or self._words_state != state:
                kept = LexicalIndex.empty() if self._words is None else self._words

                def read(ids: list[int]) -> tuple[list[str], list[str]]:
                    found = self._documents(ids)
                    return [each.text for each in found], [heading_of(d.metadata) for d in found]

                self._words = kept.updated(
                    self.documents.without_deleted(entry_ids(self.index)), read
                )
                self._words_state = state
            return self._words

    def draw(
        self, n_documents: int, generator: np.random.Generator
    ) -> tuple[list[Document], FloatArray, int]:
        """Return random documents, their vectors, and how many are stored."""
        with self.reading():
            entries = entry_ids(self.index)
            ids = self.documents.without_deleted(entries[generator.permutation(len(entries))])
            drawn = ids[:n_documents]
            return self._documents(drawn.tolist()), self._vectors(drawn), len(ids)

    @contextmanager
    def changing(self) -> Iterator[DocumentTable]:
        """Be the only writer while others read; yield the documents."""
        with self.lock.turn():
            table = self.table()
            with self.lock.writing():
                self.documents = table
            yield table

    def table(self) -> DocumentTable:
        """Return the documents of the index's entries with their content ids."""
        return self.documents.as_table(partial(entry_ids, self.index))

    def add(self, table: DocumentTable, rows: dict[str, Document], vectors: FloatArray) -> None:
        """Add documents by content id, with their vectors; equal content ids are replaced.

        Vectors first, then documents: a vector without a document counts as deleted, so an
        interruption between the two loses what was being added and nothing else.
        """
        with self.lock.writing():
            ids = self._new_ids(len(rows))
            self._n_changes += 1
            add_entries(self.index, ids, vectors)
            replaced = table.take_out(rows)
            for faiss_id, (content, document) in zip(ids.tolist(), rows.items(), strict=True):
                table.put(faiss_id, content, document)
            remove_entries(self.index, replaced)

    def remove(self, table: DocumentTable, content_ids: Sequence[str]) -> None:
        """Delete documents by content id; those that are not there are passed over."""
        with self.lock.writing():
            self._n_changes += 1
            remove_entries(self.index, table.take_out(content_ids))

    def _new_ids(self, n: int) -> IntArray:
        """Return ids that no entry ever had, or the next where the index counts.

        Where the largest id of all is taken, they are the least that no entry has.
        """
        start = int(self.index.ntotal)
        if takes_ids(self.index):
            if self._next_id is None:
                self._next_id = int(entry_ids(self.index).max(initial=-1)) + 1
            if self._next_id + n > 1 << 63:
                return np.setdiff1d(np.arange(start + n), entry_ids(self.index))[:n]
            start = self._next_id
            self._next_id += n
        return np.arange(start, start + n, dtype=np.int64)

    def _documents(self, ids: Sequence[int]) -> list[Document]:
        return [each for each in self.documents.of_ids(ids) if each is not None]

    def _vectors(self, ids: Sequence[int] | IntArray) -> FloatArray:
        """Return vectors (n, d); of unit length where the index gives back approximations."""
        vectors = stored_vectors(self.index, ids)
        return vectors if lossy_part(self.index) is None else of_unit_length(vectors)
