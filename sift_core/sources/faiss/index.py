"""Candidates from a Faiss index, with texts kept beside it."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from sift_core.errors import InvalidInputError, LossyVectorsWarning
from sift_core.protocols import Lookup
from sift_core.sources.contract import (
    LexicalFetching,
    as_float32,
    as_sample,
    check_fetch_arguments,
    check_is_callable,
    check_lookups,
    check_sample_arguments,
)
from sift_core.sources.faiss.documents import CallersDocuments, Documents, DocumentTable, Filter
from sift_core.sources.faiss.entries import (
    add_entries,
    check_index,
    check_is_trained,
    check_not_on_gpu,
    checked_rows,
    entry_ids,
    is_on_gpu,
    lossy_part,
    remove_entries,
    takes_ids,
)
from sift_core.sources.faiss.folder import IndexFolder
from sift_core.sources.faiss.nearest import as_pool, find, of_unit_length
from sift_core.sources.faiss.read_write_lock import ReadWriteLock
from sift_core.sources.faiss.search import stored_vectors
from sift_core.sources.faiss.words import DocumentWords, found_by_ids, passing
from sift_core.sources.lexical_index import LexicalIndex
from sift_core.sources.wrapped import VectorLookups
from sift_core.types import (
    CandidatePool,
    Document,
    DocumentSample,
    FloatArray,
    IntArray,
    Query,
)


class FaissSource(LexicalFetching):
    """Nearest neighbours from any Faiss index that can give its vectors back.

    Flat, IVF, HNSW, NSG and codes (PQ, SQ, ...), whatever wraps them (IDMap, PreTransform,
    Refine); none needs a direct map. One that compresses gives back approximations, here of unit
    length: a `LossyVectorsWarning` says so once, and the selection is as approximate as they are.

    A folder keeps the words of its documents. Elsewhere they are counted when words are first
    looked up, which takes 25 to 30 µs for a document.

    Any number of threads may fetch at once; on a GPU they wait for one another. `add` and `remove`
    change index and documents in memory, and a fetch sees the state before or after a call; `save`
    keeps both in a folder. Who needs every write to be durable at once takes `QdrantSource`.

    Args:
        index: A trained index, which `add` and `remove` change in place. Whoever changes it
            otherwise keeps `documents` in step.
        documents: The document of each Faiss id: a sequence for ids 0, 1, ..., or a mapping
            from ids of one's own; of `Document` or plain texts. There may be more than the index
            has. Not changed: the first `add` or `remove` copies them.
        embedder_name: Model behind the index; queries made by another are refused.

    Raises:
        InvalidInputError: If the index holds vectors without documents, is no index of floats,
            or of a kind (IVF fast scan) that does not give its vectors back.
    """

    def __init__(
        self,
        index: Any,
        documents: Sequence[Document | str] | Mapping[int, Document] | Mapping[int, str],
        *,
        embedder_name: str | None = None,
    ) -> None:
        check_index(index)
        callers = CallersDocuments(documents)
        if index.ntotal > len(callers):
            raise InvalidInputError(
                f"the index holds {index.ntotal} vectors but there are {len(callers)} "
                f"`documents`; pass one document for each vector"
            )
        self._begin(index, callers, embedder_name, DocumentWords(LexicalIndex.empty()))
        _warn_if_lossy(index)

    def _begin(
        self,
        index: Any,
        documents: Documents,
        embedder_name: str | None,
        words: DocumentWords,
        folder: IndexFolder | None = None,
    ) -> None:
        self._index = index
        self._documents = documents
        self._words = words
        self._n_changes = 0
        self._lock = ReadWriteLock()
        self._gpu = threading.Lock() if is_on_gpu(index) else nullcontext()
        self._folder = folder  # where `flush` saves
        self._has_changes = False
        self._next_id: int | None = None  # the least that was never given to an entry
        self.embedder_name = embedder_name

    def fetch_batch(
        self, queries: Sequence[Query], n_candidates: int, *, filter: Filter | None = None
    ) -> list[CandidatePool]:
        """Return the index's nearest documents of each query, nearest first by its own metric.

        By one search of Faiss, which takes all cores. `similarities` are cosines, whatever the
        metric. HNSW looks at `n_candidates` nodes at least, whatever its efSearch; IVF returns
        fewer documents where the lists that it probes (nprobe) hold fewer.

        Args:
            queries: What to look for.
            n_candidates: How many at most for each, >= 1.
            filter: Called with a document's metadata; only documents for which it is true are
                returned, as many as without a filter if there are as many. Where a good part
                passes, it is called some 4 times a candidate; where few do, once a document.

        Raises:
            CandidateSourceError: If Faiss fails or an id has no document.
            InvalidInputError: If query and index do not fit together.
        """
        check_is_callable(filter)
        n_candidates = check_fetch_arguments(
            queries, n_candidates, dimension=self._index.d, embedder_name=self.embedder_name
        )
        if not queries:
            return []
        with self._lock.reading(), self._gpu:
            self._check_has_documents()
            return self._near(queries, n_candidates, filter)

    @property
    def has_words(self) -> bool:
        """Whether words can be looked up: always, but in a folder of an older version."""
        return self._words.are_there

    def look_up(
        self, query: Query, lookups: Sequence[Lookup], *, filter: Filter | None = None
    ) -> list[CandidatePool]:
        """Return one pool for each lookup, all of one state of the index.

        A vector finds what `fetch` finds. Words find documents by descending BM25, ties in the
        order of their Faiss ids. In a folder that keeps no words they find nothing, and a
        `MissingWordsWarning` says so once.

        Args:
            query: Whose cosine with each row is in `similarities`.
            lookups: Vectors and words.
            filter: As for `fetch_batch`.

        Raises:
            CandidateSourceError: As `fetch_batch`.
            InvalidInputError: As `fetch_batch`.
        """
        check_is_callable(filter)
        check_lookups(query, lookups, dimension=self._index.d, embedder_name=self.embedder_name)
        vectors = VectorLookups(query, lookups)
        with self._lock.reading(), self._gpu:
            self._check_has_documents()
            near = {n: self._near(queries, n, filter) for n, queries in vectors.queries.items()}
            pools = self._with_words(query, lookups, filter)
        return vectors.put_into(pools, near)

    def _check_has_documents(self) -> None:
        if not (self._index.ntotal and len(self._documents)):
            raise InvalidInputError("there are no documents to fetch from; add some first")

    def _near(
        self, queries: Sequence[Query], n_candidates: int, keep: Filter | None
    ) -> list[CandidatePool]:
        vectors = np.stack([as_float32(query.vector) for query in queries])
        found = find(self._index, self._documents, vectors, n_candidates, keep)
        return [as_pool(query, row) for query, row in zip(queries, found, strict=True)]

    def _with_words(
        self, query: Query, lookups: Sequence[Lookup], keep: Filter | None
    ) -> list[CandidatePool]:
        """Return one pool for each lookup, empty for those of vectors."""
        pools = [CandidatePool.empty(dimension=len(query.vector))] * len(lookups)
        wanted = {i: one.words for i, one in enumerate(lookups) if one.words is not None}
        if not wanted:
            return pools
        if not self._words.are_there:
            self._words.warn(stacklevel=3)  # at the line that calls `look_up`
            return pools
        words, documents = self._counted(), self._documents
        passes = None if keep is None else passing(documents, keep)
        ranked = [words.search(some, lookups[i].n_candidates, passes) for i, some in wanted.items()]
        found = found_by_ids(self._index, documents, [each.ids for each in ranked])
        for i, each, row in zip(wanted, ranked, found, strict=True):
            pools[i] = replace(as_pool(query, row), scores=each.scores)
        return pools

    def _counted(self) -> LexicalIndex:
        """Return the words of all documents, while nobody changes these."""
        return self._words.of(
            self._index, self._documents, (self._n_changes, int(self._index.ntotal))
        )

    def sample(self, n_documents: int, generator: np.random.Generator) -> DocumentSample:
        """Return up to `n_documents` random documents, all in random order where there are fewer.

        Where the index compresses, their vectors are approximations of unit length.

        Args:
            n_documents: >= 1.
            generator: What to draw with.

        Raises:
            CandidateSourceError: If the index cannot give vectors back, an id has no document, or
                a vector is not finite.
            InvalidInputError: If there is no document, or an argument cannot be used.
        """
        n_documents = check_sample_arguments(n_documents, generator)
        with self._lock.reading(), self._gpu:
            entries = entry_ids(self._index)
            ids = self._documents.without_deleted(entries[generator.permutation(len(entries))])
            n_stored, ids = len(ids), ids[:n_documents]
            vectors = stored_vectors(self._index, ids)
            drawn = [each for each in self._documents.of_ids(ids.tolist()) if each is not None]
        return as_sample(
            f"the Faiss {type(self._index).__name__}",
            document_ids=[document.document_id for document in drawn],
            texts=[document.text for document in drawn],
            embeddings=vectors if lossy_part(self._index) is None else of_unit_length(vectors),
            metadata=[dict(document.metadata) for document in drawn],
            n_stored=n_stored,
        )

    def prepare(self, *, embedder_name: str, dimension: int) -> None:
        """Check that the index suits an embedder, and note its name where nothing is stored yet.

        Raises:
            CandidateSourceError: As `add`.
            InvalidInputError: If the index is not trained, or has another dimension or embedder.
        """
        check_is_trained(self._index)
        if dimension != self._index.d:
            raise InvalidInputError(
                f"the index has {self._index.d} dimensions, the embedder {embedder_name!r} makes "
                f"{dimension}; pass that index's embedder, or index into a new folder"
            )
        _check_same_embedder(self.embedder_name, embedder_name)
        if self.embedder_name is None and self._index.ntotal:
            raise InvalidInputError(
                f"the index holds {self._index.ntotal} vectors of an embedder that is not "
                f"known; pass its `embedder_name` when you construct or load the source"
            )
        with self._changing():
            if self.embedder_name is None:
                self.embedder_name = embedder_name
                self._has_changes = True

    def content_ids(self) -> set[str]:
        """Return the content ids of all documents.

        In a FaissSource every document counts as stored by `index_documents`: it deletes those
        that are not among the documents it is given, also ones that somebody else stored.

        Raises:
            InvalidInputError: If JSON cannot hold the metadata of a document.
        """
        return set(self.documents())

    def documents(self) -> dict[str, Document]:
        """Return all documents by content id; of several with one id, one.

        Raises:
            InvalidInputError: If JSON cannot hold the metadata of a document.
        """
        with self._lock.reading():
            return {content: document for _, content, document in self._table().rows()}

    def _table(self) -> DocumentTable:
        """Return the documents of the index's entries with their content ids."""
        return self._documents.as_table(partial(entry_ids, self._index))

    def add(
        self, content_ids: Sequence[str], documents: Sequence[Document], embeddings: FloatArray
    ) -> None:
        """Add documents with embeddings (n, d), in memory; equal content ids are replaced.

        Fetches wait while a batch goes in. Of a source that was loaded from a folder, this and
        `remove` keep other writers out of the folder until `complete`.

        Args:
            content_ids: n names, best made by `content_id`.
            documents: n documents whose metadata JSON can hold.
            embeddings: Shape (n, d), finite; stored as they are, so of unit length where
                the index has an inner product and cosines are meant.

        Raises:
            CandidateSourceError: If Faiss fails (NSG and IVF with an array for a direct map take no
                further vectors), or another writes into the source's folder or has since it was
                loaded.
            InvalidInputError: If the arguments do not fit together or to the index.
        """
        vectors = checked_rows(content_ids, documents, embeddings, self._index.d)
        rows = {content: row for row, content in enumerate(content_ids)}  # the last of equal ones
        if not rows:
            return
        check_is_trained(self._index)
        check_not_on_gpu(self._index)
        with self._changing() as table, self._lock.writing():
            # Vectors first, then documents: a vector without a document counts as deleted, so an
            # interruption between the two loses what was being added and nothing else.
            ids = self._new_ids(len(rows))
            self._has_changes = True
            self._n_changes += 1
            add_entries(self._index, ids, vectors[list(rows.values())])
            replaced = table.take_out(rows)
            for faiss_id, (content, row) in zip(ids.tolist(), rows.items(), strict=True):
                table.put(faiss_id, content, documents[row])
            remove_entries(self._index, replaced)

    def remove(self, content_ids: Sequence[str]) -> None:
        """Delete documents, in memory; ids that are not there are ignored.

        Graphs, and indexes that count their ids, keep the vectors and leave them out of every
        answer: where they become many, searches get slower, and a new index helps.

        Raises:
            CandidateSourceError: As `add`.
        """
        if not content_ids:
            return
        with self._changing() as table, self._lock.writing():
            self._has_changes = True
            self._n_changes += 1
            remove_entries(self._index, table.take_out(content_ids))

    @contextmanager
    def _changing(self) -> Iterator[DocumentTable]:
        """Be the only writer, of the folder as well; gives the documents."""
        with self._lock.turn():
            if self._folder is not None:
                self._folder.acquire()
            table = self._table()
            with self._lock.writing():
                self._documents = table
            yield table

    def _new_ids(self, n: int) -> IntArray:
        """Return ids that no entry ever had, or the next where the index counts."""
        start = int(self._index.ntotal)
        if takes_ids(self._index):
            if self._next_id is None:
                self._next_id = int(entry_ids(self._index).max(initial=-1)) + 1
            start = self._next_id
            self._next_id += n
        return np.arange(start, start + n, dtype=np.int64)

    def flush(self) -> None:
        """Save what was added and removed, if anything, into the folder that this was loaded from.

        A folder without words gets them, also if nothing was added or removed.

        Raises:
            CandidateSourceError: If a file cannot be written; the folder is then as before.
        """
        if self._folder is None or (self.has_words and not self._has_changes):
            return
        with self._changing() as table:
            self._write(self._folder, table)
            self._has_changes = False

    def _write(self, folder: IndexFolder, table: DocumentTable) -> None:
        """Write the state into a folder; its lock must be held, and this source's turn."""
        words = self._counted()
        folder.write(self._index, table.rows(), words, embedder_name=self.embedder_name)

    def complete(self) -> None:
        """Do what `flush` does, with its errors, and let others write into the folder."""
        try:
            self.flush()
        finally:
            with self._lock.turn():
                if self._folder is not None:
                    self._folder.release()

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write index, documents, words and embedder name into a folder, atomically.

        A process that dies at any moment leaves what was there before or the new state, and
        another one that loads meanwhile finds either. Fetches go on. An empty index of flat codes
        is put into an `IndexIDMap2`, so that documents can be removed later. Only documents of ids
        in the index are saved. A source that was loaded from this folder does `complete`.

        Args:
            folder: Created if it is missing. What was saved in it before is replaced; other
                files stay.

        Raises:
            CandidateSourceError: If a file cannot be written, an id has no document, or another
                writes into the folder; what was saved before is untouched.
            InvalidInputError: If JSON cannot hold the metadata of a document, or this is called
                from a filter; nothing is written then.
        """
        if self._folder is not None and self._folder.is_same_as(Path(folder)):
            self.complete()
            return
        check_not_on_gpu(self._index)
        place = IndexFolder(Path(folder))
        with self._lock.turn():
            table = self._table()
            with place.writing():
                self._write(place, table)

    @classmethod
    def load(
        cls, folder: str | os.PathLike[str], *, embedder_name: str | None = None
    ) -> FaissSource:
        """Return the source that was saved in a folder; `flush` saves its changes there.

        Args:
            folder: What `save` was given.
            embedder_name: The model that queries will be embedded with.

        Raises:
            CandidateSourceError: If files are missing, damaged or of another format.
            InvalidInputError: If it was made by another embedder.
        """
        source = cls._loaded(IndexFolder(Path(folder)), embedder_name)
        _warn_if_lossy(source._index)
        return source

    @classmethod
    def open(
        cls, folder: str | os.PathLike[str], empty_index: Any, *, embedder_name: str | None = None
    ) -> FaissSource:
        """Return the source in a folder; where there is none, save an empty index there first.

        Of several processes that do this at once, one begins it and the others load it.

        Args:
            folder: Created if it is missing.
            empty_index: Trained, without vectors; `faiss.IndexFlatIP(384)` for instance.
            embedder_name: The model behind the vectors.

        Raises:
            CandidateSourceError: As `load` and `save`.
            InvalidInputError: If the index holds vectors, or another embedder made what is there.
        """
        place = IndexFolder(Path(folder))
        if not place.holds_index():
            check_index(empty_index)
            if empty_index.ntotal:
                raise InvalidInputError(
                    f"`empty_index` must hold no vectors, got {empty_index.ntotal}; `save` writes "
                    f"an index with its documents"
                )
            with place.writing():
                if not place.holds_index():  # looked at again, now that nobody else writes
                    words = LexicalIndex.empty()
                    place.write(empty_index, (), words, embedder_name=embedder_name)
        source = cls._loaded(place, embedder_name)
        _warn_if_lossy(source._index)
        return source

    @classmethod
    def _loaded(cls, folder: IndexFolder, embedder_name: str | None) -> FaissSource:
        saved = folder.read()
        name = embedder_name or saved.embedder_name
        _check_same_embedder(saved.embedder_name, name)
        check_index(saved.index)
        source = cls.__new__(cls)
        words = DocumentWords(saved.words, place=f"the folder {str(folder.path)!r}")
        source._begin(saved.index, saved.documents, name, words, folder)
        return source


def _warn_if_lossy(index: Any) -> None:
    """Warn whoever calls the method that calls this."""
    if (lossy := lossy_part(index)) is not None:
        warnings.warn(
            f"{lossy} gives back approximations of the vectors that were added, which are brought "
            f"to unit length; for exact ones put IndexRefineFlat around the index, or take Flat, "
            f"IVFFlat or HNSWFlat",
            LossyVectorsWarning,
            stacklevel=3,
        )


def _check_same_embedder(stored: str | None, name: str | None) -> None:
    if stored not in (None, name):
        raise InvalidInputError(
            f"the index holds vectors of {stored!r}, which cannot be mixed with those of "
            f"{name!r}; pass that embedder, or index into a new folder"
        )
