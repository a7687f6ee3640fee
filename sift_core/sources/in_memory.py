"""Exact search over arrays: the reference that every other source is tested against."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from sift_core.checks import as_finite_array
from sift_core.errors import InvalidInputError
from sift_core.selection.cosines import cosine_similarities
from sift_core.sources.contract import (
    BatchFetching,
    as_sample,
    check_fetch_arguments,
    check_is_callable,
    check_sample_arguments,
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
        return CandidatePool(
            document_ids=[documents.document_ids[i] for i in nearest],
            texts=[documents.texts[i] for i in nearest],
            embeddings=documents.embeddings[nearest],
            similarities=cosines[nearest],
            metadata=CopiedOnRead([documents.metadata[i] for i in nearest]),
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
