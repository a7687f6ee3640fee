"""Candidates from a Faiss index, with texts kept beside it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from sift_core.checks import warn
from sift_core.errors import InvalidInputError, MissingWordsWarning, SeenFacts
from sift_core.protocols import Lookup
from sift_core.sources.contract import (
    LexicalFetching,
    VectorLookups,
    as_sample,
    check_fetch_arguments,
    check_is_callable,
    check_lookups,
    check_sample_arguments,
)
from sift_core.sources.faiss.contents import Contents
from sift_core.sources.faiss.documents import CallersDocuments, DocumentTable, Filter
from sift_core.sources.faiss.entries import (
    check_index,
    check_is_trained,
    check_not_on_gpu,
    check_same_embedder,
    checked_rows,
    warn_if_lossy,
)
from sift_core.sources.faiss.folder import IndexFolder
from sift_core.sources.lexical_index import LexicalIndex
from sift_core.types import CandidatePool, Document, DocumentSample, FloatArray, Query


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
            from ids of one's own (any integer of 64 bits); of `Document` or plain texts. There may
            be more than the index has. Not changed: the first `add` or `remove` copies them.
        embedder_name: Model behind the index; queries made by another are refused.

    Raises:
        InvalidInputError: If the index holds vectors without documents, is no index of floats,
            or of a kind (IVF fast scan) that does not give its vectors back.

    Example:
        >>> import faiss
        >>> index = faiss.IndexFlatIP(256)
        >>> index.add(embedder.embed_documents(texts))
        >>> source = FaissSource(index, texts, embedder_name=embedder.name)
        >>> source.fetch(query, n_candidates=1).texts
        ('A ticket for the ferry costs four crowns.',)
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
        self._begin(Contents(index, callers, LexicalIndex.empty()), embedder_name)
        warn_if_lossy(index, stacklevel=3)

    def _begin(
        self, contents: Contents, embedder_name: str | None, folder: IndexFolder | None = None
    ) -> None:
        self._contents = contents
        self._folder = folder  # where `flush` saves
        self._has_changes = False
        self._seen = SeenFacts()
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
        contents, name = self._contents, self.embedder_name
        n_candidates = check_fetch_arguments(
            queries, n_candidates, dimension=contents.index.d, embedder_name=name
        )
        if not queries:
            return []
        with contents.searching():
            return contents.near(queries, n_candidates, filter)

    @property
    def has_words(self) -> bool:
        """Whether words can be looked up: always, but in a folder of an older version."""
        return self._contents.has_words

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
        contents, name = self._contents, self.embedder_name
        check_lookups(query, lookups, dimension=contents.index.d, embedder_name=name)
        vectors = VectorLookups(query, lookups)
        with contents.searching():
            near = {n: contents.near(some, n, filter) for n, some in vectors.queries.items()}
            pools = contents.by_words(query, lookups, filter)
        asks_words = any(one.words is not None for one in lookups)
        message = (
            f"the folder {str(self._folder and self._folder.path)!r} keeps no words, so "
            f"documents are found by vectors alone; run `sift index` again with the same "
            f"paths, or call the source's `complete`, to add them"
        )
        if asks_words and not self.has_words and self._seen.add(message):
            warn(message, MissingWordsWarning)
        return vectors.put_into(pools, near)

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
        drawn, vectors, n_stored = self._contents.draw(n_documents, generator)
        return as_sample(
            f"the Faiss {type(self._contents.index).__name__}",
            document_ids=[document.document_id for document in drawn],
            texts=[document.text for document in drawn],
            embeddings=vectors,
            metadata=[dict(document.metadata) for document in drawn],
            n_stored=n_stored,
        )

    def prepare(self, *, embedder_name: str, dimension: int) -> None:
        """Check that the index suits an embedder, and note its name where nothing is stored yet.

        Raises:
            CandidateSourceError: As `add`.
            InvalidInputError: If the index is not trained, or has another dimension or embedder.
        """
        index = self._contents.index
        check_is_trained(index)
        if dimension != index.d:
            raise InvalidInputError(
                f"the index has {index.d} dimensions, the embedder {embedder_name!r} makes "
                f"{dimension}; pass that index's embedder, or index into a new folder"
            )
        check_same_embedder(self.embedder_name, embedder_name)
        if self.embedder_name is None and index.ntotal:
            raise InvalidInputError(
                f"the index holds {index.ntotal} vectors of an embedder that is not known; pass "
                f"its `embedder_name` when you construct or load the source"
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
        with self._contents.lock.reading():
            return {content: document for _, content, document in self._contents.table().rows()}

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
        vectors = checked_rows(content_ids, documents, embeddings, self._contents.index.d)
        rows = {content: row for row, content in enumerate(content_ids)}  # the last of equal ones
        if not rows:
            return
        check_is_trained(self._contents.index)
        check_not_on_gpu(self._contents.index)
        with self._changing() as table:
            self._has_changes = True
            found = {content: documents[row] for content, row in rows.items()}
            self._contents.add(table, found, vectors[list(rows.values())])

    def remove(self, content_ids: Sequence[str]) -> None:
        """Delete documents, in memory; ids that are not there are ignored.

        Graphs, and indexes that count their ids, keep the vectors and leave them out of every
        answer: where they become many, searches get slower, and a new index helps.

        Raises:
            CandidateSourceError: As `add`.
        """
        if not content_ids:
            return
        with self._changing() as table:
            self._has_changes = True
            self._contents.remove(table, content_ids)

    @contextmanager
    def _changing(self) -> Iterator[DocumentTable]:
        """Be the only writer, of the folder as well; gives the documents."""
        with self._contents.changing() as table:
            if self._folder is not None:
                self._folder.acquire()
            yield table

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
        contents, name = self._contents, self.embedder_name
        folder.write(contents.index, table.rows(), contents.count_words(), embedder_name=name)

    def complete(self) -> None:
        """Do what `flush` does, with its errors, and let others write into the folder."""
        try:
            self.flush()
        finally:
            with self._contents.lock.turn():
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
        check_not_on_gpu(self._contents.index)
        place = IndexFolder(Path(folder))
        with self._contents.lock.turn():
            table = self._contents.table()
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
        return cls._loaded(IndexFolder(Path(folder)), embedder_name)

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
        return cls._loaded(place, embedder_name)

    @classmethod
    def _loaded(cls, folder: IndexFolder, embedder_name: str | None) -> FaissSource:
        saved = folder.read()
        name = embedder_name or saved.embedder_name
        check_same_embedder(saved.embedder_name, name)
        check_index(saved.index)
        source = cls.__new__(cls)
        source._begin(Contents(saved.index, saved.documents, saved.words), name, folder)
        warn_if_lossy(saved.index, stacklevel=4)  # at the line that loads or opens the folder
        return source
