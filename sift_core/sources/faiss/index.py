"""Candidates from a Faiss index, with texts kept beside it."""

from __future__ import annotations

import asyncio
import os
import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from sift_core.errors import InvalidInputError, LossyVectorsWarning
from sift_core.sources.checks import (
    as_float32,
    check_fetch_arguments,
    check_is_batch,
    check_is_callable,
)
from sift_core.sources.faiss.documents import DocumentLookup
from sift_core.sources.faiss.entries import check_not_on_gpu, entry_ids
from sift_core.sources.faiss.folder import folder_lock, is_saved_in, save_folder, sweep
from sift_core.sources.faiss.loading import agreed_name, check_has_all, open_index
from sift_core.sources.faiss.nearest import (
    Filter,
    Found,
    NearestDocuments,
    as_pool,
    with_opposites,
)
from sift_core.sources.faiss.read_write_lock import ReadWriteLock
from sift_core.sources.faiss.sampling import sample_index
from sift_core.sources.faiss.search import check_index, faiss
from sift_core.sources.faiss.sqlite_documents import SQLiteDocuments
from sift_core.sources.faiss.writing import IndexWriter
from sift_core.sources.sampling import check_sample_arguments
from sift_core.types import CandidatePool, Document, DocumentSample, FloatArray, Query


class FaissSource:
    """Nearest neighbours from any Faiss index that can give its vectors back.

    Flat, IVF, HNSW, NSG and codes (PQ, SQ, ...), whatever wraps them (IDMap, PreTransform,
    Refine); none needs a direct map. An index that compresses gives back approximations: they are
    brought to unit length, a `LossyVectorsWarning` says so once, and the selection is as
    approximate as they are.

    Any number of threads may fetch at once; searches on a GPU wait for one another, as
    Faiss demands. Where `documents` are a `SQLiteDocuments` the source can be written to
    (`index_documents`), and a fetch sees the state before or after a write.

    Args:
        index: A trained index. Whoever changes it otherwise keeps `documents` in step.
        documents: The document of each Faiss id: a sequence for ids 0, 1, ..., or a mapping
            from ids of one's own; of `Document` or plain texts. A mapping that has
            `get_many(ids)` is asked once a query. There may be more than the index has.
        embedder_name: Model behind the index; queries made by another are refused.
        include_opposite: Whether half of the candidates, the smaller, are those nearest
            to the opposite of the query. Needs an inner product.

    Raises:
        CandidateSourceError: If the documents' file cannot be read.
        InvalidInputError: If the index holds vectors without documents or is no index of
            floats, its metric does not allow `include_opposite`, or the documents' file names
            another embedder.
    """

    def __init__(
        self,
        index: Any,
        documents: Sequence[Document | str] | Mapping[int, Document] | Mapping[int, str],
        *,
        embedder_name: str | None = None,
        include_opposite: bool = False,
    ) -> None:
        check_index(index)
        lookup = DocumentLookup(documents)
        writer = None
        lock = ReadWriteLock()
        n_documents, n_removed = len(lookup), 0
        if isinstance(documents, SQLiteDocuments):
            state = documents.state()
            state = replace(state, embedder_name=agreed_name(embedder_name, documents, state))
            writer = IndexWriter(index, documents, lock, state=state, n_documents=n_documents)
            n_removed = state.n_removed
            check_has_all(index, documents, state, n_documents)
        if index.ntotal > n_documents + n_removed:
            raise InvalidInputError(
                f"the index holds {index.ntotal} vectors but there are {n_documents} "
                f"`documents`; pass one document for each vector"
            )
        self._set_up(index, lookup, lock, writer, embedder_name, include_opposite)

    def _set_up(
        self,
        index: Any,
        lookup: DocumentLookup,
        lock: ReadWriteLock,
        writer: IndexWriter | None,
        embedder_name: str | None,
        include_opposite: bool,
    ) -> None:
        """Take the parts over; the caller's caller is told where vectors are lossy."""
        if include_opposite and index.metric_type != faiss.METRIC_INNER_PRODUCT:
            raise InvalidInputError(
                f"`include_opposite` needs an index with METRIC_INNER_PRODUCT, this "
                f"{type(index).__name__} has metric {index.metric_type}"
            )
        self._index = index
        self._lookup = lookup
        self._lock = lock
        self._writer = writer
        self._name = embedder_name
        self._include_opposite = include_opposite
        self._nearest = NearestDocuments(index, lookup)
        if self._nearest.lossy_part is not None:
            warnings.warn(
                f"{self._nearest.lossy_part} gives back approximations of the vectors that were "
                f"added, which are brought to unit length; for exact ones put IndexRefineFlat "
                f"around the index, or take Flat, IVFFlat or HNSWFlat",
                LossyVectorsWarning,
                stacklevel=3,
            )

    @property
    def embedder_name(self) -> str | None:
        """Name of the model behind the vectors; None where it is not known."""
        return self._name if self._writer is None else self._writer.state.embedder_name

    def fetch(
        self, query: Query, n_candidates: int, *, filter: Filter | None = None
    ) -> CandidatePool:
        """Return the index's nearest documents, nearest first by the index's own metric.

        `similarities` are cosines, whatever the metric; with `include_opposite`, the order is
        theirs. HNSW looks at `n_candidates` nodes at least, whatever its efSearch; IVF returns
        fewer documents where the lists that it probes (nprobe) hold fewer.

        Args:
            query: What to look for.
            n_candidates: How many at most, >= 1.
            filter: Called with a document's metadata; only documents for which it is
                true are returned, as many as without a filter if there are as many. Where a
                good part passes, it is called some 4 times for each candidate; where few do,
                once for every document, which are all read, and their vectors compared.

        Raises:
            CandidateSourceError: If Faiss fails or an id has no document.
            InvalidInputError: If query and index do not fit together.
        """
        return self.fetch_batch([query], n_candidates, filter=filter)[0]

    async def afetch(
        self, query: Query, n_candidates: int, *, filter: Filter | None = None
    ) -> CandidatePool:
        """Return what `fetch` returns; the search runs in a worker thread."""
        return await asyncio.to_thread(self.fetch, query, n_candidates, filter=filter)

    def fetch_batch(
        self, queries: Sequence[Query], n_candidates: int, *, filter: Filter | None = None
    ) -> list[CandidatePool]:
        """Return what `fetch` returns for each query, by one search of Faiss.

        Faster than one by one: an exact index multiplies matrices, and Faiss takes all cores.

        Raises:
            CandidateSourceError: As `fetch`.
            InvalidInputError: As `fetch`.
        """
        check_is_callable(filter)
        check_is_batch(queries)
        for query in queries:
            n_candidates = check_fetch_arguments(
                query, n_candidates, dimension=self._index.d, embedder_name=self.embedder_name
            )
        if not queries:
            return []
        vectors = np.stack([as_float32(query.vector) for query in queries])
        with self._lock.reading():
            found = self._find(vectors, n_candidates, filter)
        pools = [as_pool(query, row) for query, row in zip(queries, found, strict=True)]
        if not self._include_opposite:
            return pools
        return [pool.take(np.argsort(-pool.similarities, kind="stable")) for pool in pools]

    async def afetch_batch(
        self, queries: Sequence[Query], n_candidates: int, *, filter: Filter | None = None
    ) -> list[CandidatePool]:
        """Return what `fetch_batch` returns; the search runs in a worker thread."""
        return await asyncio.to_thread(self.fetch_batch, queries, n_candidates, filter=filter)

    def _find(self, vectors: FloatArray, n_candidates: int, keep: Filter | None) -> list[Found]:
        k = min(n_candidates, self._index.ntotal)
        n_deleted = 0 if self._writer is None else self._writer.n_deleted
        if k == 0 or n_deleted == self._index.ntotal:
            raise InvalidInputError("there are no documents to fetch from; add some first")
        if not self._include_opposite:
            return self._nearest.find(vectors, k, keep=keep, n_deleted=n_deleted)
        both = np.concatenate([vectors, -vectors])
        found = self._nearest.find(both, k, keep=keep, n_deleted=n_deleted)
        near, opposite = found[: len(vectors)], found[len(vectors) :]
        return [with_opposites(*pair, k) for pair in zip(near, opposite, strict=True)]

    def sample(self, n_documents: int, generator: np.random.Generator) -> DocumentSample:
        """Return up to `n_documents` random documents, all in random order where there are fewer.

        Reads the drawn documents and their vectors alone; where the index compresses, these are
        approximations of unit length.

        Args:
            n_documents: >= 1.
            generator: What to draw with.

        Raises:
            CandidateSourceError: If the index cannot give vectors back, an id has no document, or
                a vector is not finite.
            InvalidInputError: If there is no document, an argument cannot be used, or the index
                is of a kind (IVF fast scan) whose entries cannot be drawn.
        """
        n_documents = check_sample_arguments(n_documents, generator)
        with self._lock.reading(), self._nearest.turn:
            return sample_index(self._index, self._lookup, n_documents, generator)

    def prepare(self, *, embedder_name: str, dimension: int) -> None:
        """Check that the index suits an embedder, and note its name where nothing is stored yet.

        Raises:
            CandidateSourceError: If the documents' file fails, or a write failed or was
                interrupted halfway.
            InvalidInputError: If documents are not in a `SQLiteDocuments`, the index is not
                trained or cannot grow, or it has another dimension or embedder.
        """
        self._writing_side().prepare(embedder_name=embedder_name, dimension=dimension)

    def content_ids(self) -> set[str]:
        """Return the content ids of all documents.

        In a FaissSource every document counts as stored by `index_documents`: it deletes those
        that are not among the documents it is given, also ones that `save` or
        `SQLiteDocuments.update` stored.

        Raises:
            CandidateSourceError: If the documents' file cannot be read, or a write failed or was
                interrupted halfway.
            InvalidInputError: If documents are not in a `SQLiteDocuments`.
        """
        return self._writing_side().content_ids()

    def add(
        self, content_ids: Sequence[str], documents: Sequence[Document], embeddings: FloatArray
    ) -> None:
        """Store documents with embeddings (n, d), durably; equal content ids are replaced.

        Fetches wait while a batch goes in. A call that was interrupted (Ctrl-C) has stored all
        or none; where it stored them, this source is to be loaded again.

        Args:
            content_ids: n names, best made by `content_id`.
            documents: n documents whose metadata JSON can hold.
            embeddings: Shape (n, d), finite; stored as they are, so of unit length where
                the index has an inner product and cosines are meant.

        Raises:
            CandidateSourceError: If a file or Faiss fails, or another process has written since
                this source was loaded; then all or none are stored.
            InvalidInputError: If the arguments do not fit together or to the index, or documents
                are not in a `SQLiteDocuments`.
        """
        self._writing_side().add(content_ids, documents, embeddings)

    def remove(self, content_ids: Sequence[str]) -> None:
        """Delete documents, durably; ids that are not there are ignored.

        Graphs, and indexes that count their ids, keep the vectors and leave them out of every
        answer: searches get slower as they become many. Save what is left as a new index then.

        Raises:
            CandidateSourceError: As `add`.
            InvalidInputError: If documents are not in a `SQLiteDocuments`.
        """
        self._writing_side().remove(content_ids)

    def complete(self) -> None:
        """Write the index to a file of its own, so that loading need not repeat the changes.

        Fetches go on while the index is written; they wait, a second or so, while the documents'
        file then gives the space of the changes back.

        Raises:
            CandidateSourceError: As `add`; what was stored stays.
            InvalidInputError: If documents are not in a `SQLiteDocuments`.
        """
        self._writing_side().complete()

    def _writing_side(self) -> IndexWriter:
        if self._writer is None:
            raise InvalidInputError(
                f"a FaissSource can be written to where its documents are a SQLiteDocuments, these "
                f"are in a {self._lookup.kind}; call its `save(folder)` and take "
                f"`FaissSource.load(folder)`, or construct it with a SQLiteDocuments"
            )
        return self._writer

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write index, documents and embedder name into a folder, atomically.

        A process that dies at any moment leaves what was there before or the new state, and so
        does another one that loads meanwhile. Fetches go on; of a source that was loaded from
        this folder they wait as `complete` says. An empty index of flat codes is put into an
        `IndexIDMap2`, so that documents can be removed later:
        `FaissSource(faiss.IndexFlatIP(384), []).save(folder)` begins a collection that
        `FaissSource.load(folder)` opens for `index_documents`.

        Only documents of ids in the index are saved. This source itself stays as it is; one that
        was loaded from this folder does what `complete` does.

        Args:
            folder: Created if it is missing. What was saved in it before is replaced; other
                files stay.

        Raises:
            CandidateSourceError: If a file cannot be written, an id has no document, or a write
                failed or was interrupted halfway; what was saved before is untouched.
            InvalidInputError: If JSON cannot hold the metadata of a document, the index is
                on a GPU, or this is called from a filter; nothing is written then.
        """
        path = Path(folder)
        check_not_on_gpu(self._index)
        self._lock.refuse_if_reading()
        with nullcontext() if self._writer is None else self._writer.turn:
            if self._writer is not None:
                self._writer.check_usable()
            if self._writer is not None and is_saved_in(path, self._writer.folder):
                self._writer.complete()
                with folder_lock(path):
                    sweep(path)
                return
            rows = self._lookup.rows(np.unique(entry_ids(self._index)))
            save_folder(
                path,
                self._index,
                rows,
                embedder_name=self.embedder_name,
                source=self._lookup.path,
            )

    @classmethod
    def load(
        cls,
        folder: str | os.PathLike[str],
        *,
        embedder_name: str | None = None,
        include_opposite: bool = False,
    ) -> FaissSource:
        """Return the source that was saved in a folder; it can be written to.

        Takes the time to read the index file twice (once for its checksum) and to repeat the
        changes made since the last `save` or `complete`. Documents stay in their file.

        Args:
            folder: What `save` was given, or the file of a `SQLiteDocuments` that a source
                has written to.
            embedder_name: The model that queries will be embedded with.
            include_opposite: As for the constructor.

        Raises:
            CandidateSourceError: If files are missing, cut short, of a newer format, or do
                not belong together.
            InvalidInputError: If it was made by another embedder.
        """
        opened = open_index(Path(folder).absolute())
        try:
            name = agreed_name(embedder_name, opened.documents, opened.state)
            lock = ReadWriteLock()
            writer = IndexWriter(
                opened.index,
                opened.documents,
                lock,
                state=replace(opened.state, embedder_name=name),
                n_documents=opened.n_documents,
                folder=opened.folder,
                is_loaded=True,
            )
            source = cls.__new__(cls)
            lookup = DocumentLookup(opened.documents)
            source._set_up(opened.index, lookup, lock, writer, name, include_opposite)
        except BaseException:
            opened.documents.close()
            raise
        return source
