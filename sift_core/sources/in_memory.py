"""Exact search over arrays: the reference that every other source is tested against."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import numpy as np

from sift_core.checks import as_finite_array
from sift_core.errors import InvalidInputError
from sift_core.protocols import Lookup
from sift_core.selection.cosines import cosine_similarities
from sift_core.sources.contract import (
    CopiedOnRead,
    LexicalFetching,
    as_sample,
    check_fetch_arguments,
    check_is_callable,
    check_lookups,
    check_sample_arguments,
    query_of,
    with_cosines,
)
from sift_core.sources.lexical_index import LexicalIndex
from sift_core.types import (
    CandidatePool,
    DocumentSample,
    FloatArray,
    IntArray,
    Metadata,
    Query,
)


class InMemorySource(LexicalFetching):
    """Documents and embeddings held in memory; exact nearest neighbours by cosine.

    Read-only after construction, so any number of threads may fetch at once. Words are counted
    when they are first looked up, which takes 25 to 30 µs for a document.

    Args:
        embeddings: Shape (n, d), finite; kept as float32.
        texts: n chunks.
        document_ids: n identifiers; "0", "1", ... if left out.
        metadata: n mappings; empty ones if left out.
        embedder_name: Model behind `embeddings`; queries made by another are refused.

    Raises:
        InvalidInputError: If lengths differ or a number is not finite.

    Example:
        >>> vectors = embedder.embed_documents(texts)
        >>> source = InMemorySource(vectors, texts, embedder_name=embedder.name)
        >>> source.fetch(query, n_candidates=1).texts
        ('A ticket for the ferry costs four crowns.',)
    """

    def __init__(
        self,
        embeddings: FloatArray,
        texts: Sequence[str],
        *,
        document_ids: Sequence[str] | None = None,
        metadata: Sequence[Metadata] = (),
        embedder_name: str | None = None,
    ) -> None:
        embeddings = as_finite_array("embeddings", embeddings, n_dimensions=2)
        ids = [str(i) for i in range(len(embeddings))] if document_ids is None else document_ids
        with np.errstate(over="ignore"):  # too large for float32: refused as not finite
            embeddings = embeddings.astype(np.float32)
        self._documents = CandidatePool(  # checks lengths; similarities are per query
            document_ids=ids,
            texts=texts,
            embeddings=embeddings,
            similarities=np.zeros(len(embeddings), dtype=np.float32),
            metadata=metadata,
        )
        self.embedder_name = embedder_name
        self._words: LexicalIndex | None = None
        self._mutex = threading.Lock()

    def __len__(self) -> int:
        """Return the number of documents."""
        return len(self._documents)

    def fetch_batch(
        self,
        queries: Sequence[Query],
        n_candidates: int,
        *,
        filter: Callable[[Metadata], bool] | None = None,
    ) -> list[CandidatePool]:
        """Return the nearest documents of each query by cosine, nearest first, in O(nd) time each.

        Args:
            queries: What to look for.
            n_candidates: How many at most for each, >= 1.
            filter: Called with a document's metadata; only documents for which it is
                true are considered.

        Raises:
            InvalidInputError: If a query and the documents do not fit together.
        """
        check_is_callable(filter)
        if queries and not len(self):
            raise InvalidInputError("there are no documents to fetch from; add some first")
        n_candidates = check_fetch_arguments(
            queries,
            n_candidates,
            dimension=self._documents.embeddings.shape[1],
            embedder_name=self.embedder_name,
        )
        return [self._nearest(query, n_candidates, filter) for query in queries]

    @property
    def has_words(self) -> bool:
        """Whether words can be looked up: always."""
        return True

    def look_up(
        self,
        query: Query,
        lookups: Sequence[Lookup],
        *,
        filter: Callable[[Metadata], bool] | None = None,
    ) -> list[CandidatePool]:
        """Return one pool for each lookup, of words by descending BM25, ties in the order given.

        Args:
            query: Whose cosine with each row is in `similarities`.
            lookups: Vectors and words.
            filter: As for `fetch_batch`.

        Raises:
            InvalidInputError: If query, lookups and documents do not fit together.
        """
        check_is_callable(filter)
        if not len(self):
            raise InvalidInputError("there are no documents to fetch from; add some first")
        dimension = self._documents.embeddings.shape[1]
        check_lookups(query, lookups, dimension=dimension, embedder_name=self.embedder_name)
        return [self._found(query, lookup, filter) for lookup in lookups]

    def _found(
        self, query: Query, lookup: Lookup, keep: Callable[[Metadata], bool] | None
    ) -> CandidatePool:
        if lookup.words is None:
            near = query_of(query, lookup)
            pool = self._nearest(near, lookup.n_candidates, keep)
            return pool if near is query else with_cosines(query, pool)
        documents = self._documents
        ranked = self._indexed().search(
            lookup.words,
            lookup.n_candidates,
            None if keep is None else lambda row: keep(documents.metadata[row]),
        )
        rows = np.array(ranked.ids, dtype=np.intp)
        cosines = cosine_similarities(query.vector, documents.embeddings[rows])
        return self._pool(rows, cosines, ranked.scores)

    def _indexed(self) -> LexicalIndex:
        """Return the words of all documents, counted by the first call."""
        with self._mutex:
            if self._words is None:
                documents = self._documents
                self._words = LexicalIndex.empty().updated(
                    np.arange(len(documents)),
                    lambda rows: (
                        [documents.texts[row] for row in rows],
                        list(map(documents.heading, rows)),
                    ),
                )
            return self._words

    def _nearest(
        self, query: Query, n_candidates: int, keep: Callable[[Metadata], bool] | None
    ) -> CandidatePool:
        documents = self._documents
        cosines = cosine_similarities(query.vector, documents.embeddings)
        nearest = np.argsort(-cosines, kind="stable")
        if keep is not None:
            kept = [i for i in nearest if keep(documents.metadata[i])]
            nearest = np.array(kept, dtype=np.intp)
        nearest = nearest[:n_candidates]
        return self._pool(nearest, cosines[nearest])

    def _pool(
        self, rows: IntArray, cosines: FloatArray, scores: Sequence[float] = ()
    ) -> CandidatePool:
        documents = self._documents
        return CandidatePool(
            document_ids=[documents.document_ids[i] for i in rows],
            texts=[documents.texts[i] for i in rows],
            embeddings=documents.embeddings[rows],
            similarities=cosines,
            metadata=CopiedOnRead([documents.metadata[i] for i in rows]),
            scores=scores,
        )

    def sample(self, n_documents: int, generator: np.random.Generator) -> DocumentSample:
        """Return up to `n_documents` random documents, all in random order where there are fewer.

        Args:
            n_documents: >= 1.
            generator: What to draw with.

        Raises:
            InvalidInputError: If there is no document, or an argument cannot be used.
        """
        n_documents = check_sample_arguments(n_documents, generator)
        documents = self._documents
        rows = generator.permutation(len(documents))[:n_documents]
        return as_sample(
            "memory",
            document_ids=[documents.document_ids[i] for i in rows],
            texts=[documents.texts[i] for i in rows],
            embeddings=documents.embeddings[rows],
            metadata=[dict(documents.metadata[i]) for i in rows],
            n_stored=len(documents),
        )
