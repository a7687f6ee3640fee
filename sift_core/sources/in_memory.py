"""Exact search over arrays: the reference that every other source is tested against."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from sift_core.checks import as_finite_array
from sift_core.errors import InvalidInputError
from sift_core.selection.kernels import cosine_similarities
from sift_core.sources.contract import (
    BatchFetching,
    as_sample,
    check_fetch_arguments,
    check_is_batch,
    check_is_callable,
    check_sample_arguments,
    nothing_to_sample,
)
from sift_core.sources.copied_on_read import CopiedOnRead
from sift_core.types import CandidatePool, DocumentSample, FloatArray, Metadata, Query


class InMemorySource(BatchFetching):
    """Documents and embeddings held in memory; exact nearest neighbours by cosine.

    Read-only after construction, so any number of threads may fetch at once.

    Args:
        embeddings: Shape (n, d), finite; kept as float32.
        texts: n chunks.
        document_ids: n identifiers; "0", "1", ... if left out.
        metadata: n mappings; empty ones if left out.
        embedder_name: Model behind `embeddings`; queries made by another are refused.

    Raises:
        InvalidInputError: If lengths differ or a number is not finite.
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
        ids = [str(i) for i in range(len(texts))] if document_ids is None else document_ids
        with np.errstate(over="ignore"):  # too large for float32: refused as not finite
            embeddings = embeddings.astype(np.float32)
        self._documents = CandidatePool(  # checks lengths; similarities are per query
            document_ids=ids,
            texts=texts,
            embeddings=embeddings,
            similarities=np.zeros(len(ids), dtype=np.float32),
            metadata=metadata,
        )
        self.embedder_name = embedder_name

    def __len__(self) -> int:
        """Return the number of documents."""
        return len(self._documents)

    def fetch(
        self,
        query: Query,
        n_candidates: int,
        *,
        filter: Callable[[Metadata], bool] | None = None,
    ) -> CandidatePool:
        """Return the nearest documents by cosine, nearest first, in O(nd) time.

        Args:
            query: What to look for.
            n_candidates: How many at most, >= 1.
            filter: Called with a document's metadata; only documents for which it is
                true are considered.

        Raises:
            InvalidInputError: If query and documents do not fit together.
        """
        documents = self._documents
        if len(documents) == 0:
            raise InvalidInputError("there are no documents to fetch from; add some first")
        check_is_callable(filter)
        n_candidates = check_fetch_arguments(
            query,
            n_candidates,
            dimension=documents.embeddings.shape[1],
            embedder_name=self.embedder_name,
        )
        cosines = cosine_similarities(query.vector, documents.embeddings)
        order = np.argsort(-cosines, kind="stable")
        if filter is not None:
            order = np.array([i for i in order if filter(documents.metadata[i])], dtype=np.intp)
        nearest = order[:n_candidates]
        return CandidatePool(
            document_ids=[documents.document_ids[i] for i in nearest],
            texts=[documents.texts[i] for i in nearest],
            embeddings=documents.embeddings[nearest],
            similarities=cosines[nearest],
            metadata=CopiedOnRead([documents.metadata[i] for i in nearest]),
        )

    def fetch_batch(
        self,
        queries: Sequence[Query],
        n_candidates: int,
        *,
        filter: Callable[[Metadata], bool] | None = None,
    ) -> list[CandidatePool]:
        """Return what `fetch` returns for each query."""
        check_is_batch(queries)
        return [self.fetch(query, n_candidates, filter=filter) for query in queries]

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
        if len(documents) == 0:
            raise nothing_to_sample("memory")
        rows = generator.permutation(len(documents))[:n_documents]
        return as_sample(
            "memory",
            document_ids=[documents.document_ids[i] for i in rows],
            texts=[documents.texts[i] for i in rows],
            embeddings=documents.embeddings[rows],
            metadata=[dict(documents.metadata[i]) for i in rows],
            n_stored=len(documents),
        )
