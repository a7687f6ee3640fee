"""Candidates from a Faiss index, with texts kept beside it."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sift_core.errors import InvalidInputError, LossyVectorsWarning
from sift_core.sources.batches import BatchFetching
from sift_core.sources.checks import (
    as_float32,
    check_fetch_arguments,
    check_is_batch,
    check_is_callable,
)
from sift_core.sources.faiss.documents import DocumentLookup, DocumentTable
from sift_core.sources.faiss.entries import check_can_grow, check_not_on_gpu, entry_ids
from sift_core.sources.faiss.folder import IndexFolder
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
from sift_core.sources.faiss.writing import IndexWriter
from sift_core.sources.sampling import check_sample_arguments
from sift_core.types import CandidatePool, Document, DocumentSample, FloatArray, Query


class FaissSource(BatchFetching):
    """Nearest neighbours from any Faiss index that can give its vectors back.

    Flat, IVF, HNSW, NSG and codes (PQ, SQ, ...), whatever wraps them (IDMap, PreTransform,
    Refine); none needs a direct map. An index that compresses gives back approximations: they are
    brought to unit length, a `LossyVectorsWarning` says so once, and the selection is as
    approximate as they are.

    Any number of threads may fetch at once; searches on a GPU wait for one another, as
    Faiss demands. `add` and `remove` change index and documents in memory, and a fetch sees the
    state before or after a call; `save` keeps both in a folder. Who needs every write to be
    durable at once is better served by a database, `QdrantSource` for instance.

    Args:
        index: A trained index, which `add` and `remove` change in place. Whoever changes it
            otherwise keeps `documents` in step.
        documents: The document of each Faiss id: a sequence for ids 0, 1, ..., or a mapping
            from ids of one's own; of `Document` or plain texts. A mapping that has
            `get_many(ids)` is asked once a query. There may be more than the index has. Not
            changed: the first `add` or `remove` copies them.
        embedder_name: Model behind the index; queries made by another are refused.
        include_opposite: Whether half of the candidates, the smaller, are those nearest
            to the opposite of the query. Needs an inner product.

    Raises:
        InvalidInputError: If the index holds vectors without documents or is no index of
            floats, or its metric does not allow `include_opposite`.
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
        if index.ntotal > len(lookup) and lookup.table is None:
            raise InvalidInputError(
                f"the index holds {index.ntotal} vectors but there are {len(lookup)} "
                f"`documents`; pass one document for each vector"
            )
        if include_opposite and index.metric_type != faiss.METRIC_INNER_PRODUCT:
            raise InvalidInputError(
                f"`include_opposite` needs an index with METRIC_INNER_PRODUCT, this "
                f"{type(index).__name__} has metric {index.metric_type}"
            )
        self._index = index
        self._lookup = lookup
        self._lock = ReadWriteLock()
        self._writer = IndexWriter(index, lookup, self._lock, folder=None)
        self._name = embedder_name
        self._include_opposite = include_opposite
        self._nearest = NearestDocuments(index, lookup)
        if self._nearest.lossy_part is not None:
            warnings.warn(
                f"{self._nearest.lossy_part} gives back approximations of the vectors that were "
                f"added, which are brought to unit length; for exact ones put IndexRefineFlat "
                f"around the index, or take Flat, IVFFlat or HNSWFlat",
                LossyVectorsWarning,
                stacklevel=2 if lookup.table is None else 3,  # `load` has a table
            )

    @property
    def embedder_name(self) -> str | None:
        """Name of the model behind the vectors; None where it is not known."""
        return self._name

    def fetch_batch(
        self, queries: Sequence[Query], n_candidates: int, *, filter: Filter | None = None
    ) -> list[CandidatePool]:
        """Return the index's nearest documents of each query, nearest first by its own metric.

        By one search of Faiss, which is faster than one by one: an exact index multiplies
        matrices, and Faiss takes all cores. `similarities` are cosines, whatever the metric; with
        `include_opposite`, the order is theirs. HNSW looks at `n_candidates` nodes at least,
        whatever its efSearch; IVF returns fewer documents where the lists that it probes (nprobe)
        hold fewer.

        Args:
            queries: What to look for.
            n_candidates: How many at most for each, >= 1.
            filter: Called with a document's metadata; only documents for which it is
                true are returned, as many as without a filter if there are as many. Where a
                good part passes, it is called some 4 times for each candidate; where few do,
                once for every document, which are all read, and their vectors compared.

        Raises:
            CandidateSourceError: If Faiss fails or an id has no document.
            InvalidInputError: If query and index do not fit together.
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

    def _find(self, vectors: FloatArray, n_candidates: int, keep: Filter | None) -> list[Found]:
        k = min(n_candidates, self._index.ntotal)
        n_deleted = 0
        if self._lookup.table is not None:
            n_deleted = max(0, int(self._index.ntotal) - len(self._lookup))
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
            CandidateSourceError: If another writes into the source's folder, or has since it was
                loaded.
            InvalidInputError: If the index is not trained or cannot grow, or it has another
                dimension or embedder.
        """
        check_can_grow(self._index)
        if dimension != self._index.d:
            raise InvalidInputError(
                f"the index has {self._index.d} dimensions, the embedder {embedder_name!r} makes "
                f"{dimension}; pass that index's embedder, or index into a new folder"
            )
        _check_same_embedder(self._name, embedder_name)
        if self._name is None and self._index.ntotal:
            raise InvalidInputError(
                f"the index holds {self._index.ntotal} vectors of an embedder that is not "
                f"known; pass its `embedder_name` when you construct or load the source"
            )
        with self._writer.changing():
            if self._name is None:
                self._name = embedder_name
                self._writer.has_changes = True

    def content_ids(self) -> set[str]:
        """Return the content ids of all documents.

        In a FaissSource every document counts as stored by `index_documents`: it deletes those
        that are not among the documents it is given, also ones that somebody else stored.

        Raises:
            InvalidInputError: If JSON cannot hold the metadata of a document.
        """
        with self._lock.reading():
            return self._table().content_ids()

    def documents(self) -> dict[str, Document]:
        """Return all documents by content id; of several with one id, one.

        Raises:
            InvalidInputError: If JSON cannot hold the metadata of a document.
        """
        with self._lock.reading():
            return {content: document for _, content, document in self._table().rows()}

    def _table(self) -> DocumentTable:
        """Return the documents of the index's entries with their content ids."""
        return self._lookup.as_table(np.unique(entry_ids(self._index)))

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
            CandidateSourceError: If Faiss fails, or another writes into the source's folder or
                has since it was loaded.
            InvalidInputError: If the arguments do not fit together or to the index, or it cannot
                grow.
        """
        self._writer.add(content_ids, documents, embeddings)

    def remove(self, content_ids: Sequence[str]) -> None:
        """Delete documents, in memory; ids that are not there are ignored.

        Graphs, and indexes that count their ids, keep the vectors and leave them out of every
        answer: searches get slower as they become many. Build a new index of what is left then.

        Raises:
            CandidateSourceError: As `add`.
        """
        self._writer.remove(content_ids)

    def flush(self) -> None:
        """Save what was added and removed into the folder that this source was loaded from.

        Writes index and documents anew, as `save` does; fetches go on meanwhile. Does nothing
        where nothing changed, or there is no such folder.

        Raises:
            CandidateSourceError: If a file cannot be written; the folder is then as before.
        """
        check_not_on_gpu(self._index)
        self._writer.flush(self._name)

    def complete(self) -> None:
        """Do what `flush` does, and let others write into the folder.

        Raises:
            CandidateSourceError: As `flush`.
        """
        try:
            self.flush()
        finally:
            self._writer.release()

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write index, documents and embedder name into a folder, atomically.

        A process that dies at any moment leaves what was there before or the new state, and so
        does another one that loads meanwhile. Fetches go on. An empty index of flat codes is put
        into an `IndexIDMap2`, so that documents can be removed later.

        Only documents of ids in the index are saved. This source stays as it is; one that was
        loaded from this folder does what `complete` does.

        Args:
            folder: Created if it is missing. What was saved in it before is replaced; other
                files stay.

        Raises:
            CandidateSourceError: If a file cannot be written, an id has no document, or another
                writes into the folder; what was saved before is untouched.
            InvalidInputError: If JSON cannot hold the metadata of a document, the index is
                on a GPU, or this is called from a filter; nothing is written then.
        """
        check_not_on_gpu(self._index)
        home = self._writer.folder
        if home is not None and home.is_same_as(Path(folder)):
            self.complete()
            return
        place = IndexFolder(Path(folder))
        with self._writer.turn():
            table = self._table()
            with place.writing():
                place.write(self._index, table.rows(), embedder_name=self._name)

    @classmethod
    def load(
        cls,
        folder: str | os.PathLike[str],
        *,
        embedder_name: str | None = None,
        include_opposite: bool = False,
    ) -> FaissSource:
        """Return the source that was saved in a folder; `flush` saves its changes there.

        Takes the time to read the files twice, once for their checksums.

        Args:
            folder: What `save` was given.
            embedder_name: The model that queries will be embedded with.
            include_opposite: As for the constructor.

        Raises:
            CandidateSourceError: If files are missing, damaged or of another format.
            InvalidInputError: If it was made by another embedder.
        """
        place = IndexFolder(Path(folder))
        saved = place.read()
        _check_same_embedder(saved.embedder_name, embedder_name or saved.embedder_name)
        source = cls(
            saved.index,
            saved.documents,
            embedder_name=embedder_name or saved.embedder_name,
            include_opposite=include_opposite,
        )
        source._writer.folder = place
        return source

    @classmethod
    def open(
        cls, folder: str | os.PathLike[str], empty_index: Any, *, embedder_name: str | None = None
    ) -> FaissSource:
        """Return the source in a folder; where there is none, save an empty index there first.

        Of several processes that do this at once, one begins the collection and the others load
        it.

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
            begun = cls(empty_index, DocumentTable(), embedder_name=embedder_name)
            if empty_index.ntotal:
                raise InvalidInputError(
                    f"`empty_index` must hold no vectors, got {empty_index.ntotal}; `save` writes "
                    f"an index with its documents"
                )
            with place.writing():
                if not place.holds_index():  # looked at again, now that nobody else writes
                    place.write(begun._index, (), embedder_name=embedder_name)
        return cls.load(folder, embedder_name=embedder_name)


def _check_same_embedder(stored: str | None, name: str | None) -> None:
    if stored not in (None, name):
        raise InvalidInputError(
            f"the index holds vectors of {stored!r}, which cannot be mixed with those of "
            f"{name!r}; pass that embedder, or index into a new folder"
        )
