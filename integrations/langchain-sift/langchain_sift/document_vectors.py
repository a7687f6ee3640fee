"""A pool from documents that were found already: vectors from where there are some."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
from langchain_core.documents import Document
from langchain_core.vectorstores import VectorStore

from langchain_sift.candidates import Candidates, FloatArray
from langchain_sift.stored_vectors import stored_vectors
from sift_core import CandidatePool, InvalidInputError, Query

logger = logging.getLogger(__name__)

Vectors: TypeAlias = Sequence[FloatArray | None]


def known_vectors(
    documents: Sequence[Document], vectorstore: VectorStore | None, *, dimension: int
) -> Vectors:
    """Return a vector (d,) for each document that has one somewhere, None for the others.

    Args:
        documents: What was found.
        vectorstore: Asked first, by document id; None for no store.
        dimension: Of the question. Vectors of this many numbers that one of LangChain's own
            filters has left on a document count too, as they do for its other filters.

    Raises:
        CandidateSourceError: If the store fails.
    """
    stored: Vectors = [None] * len(documents)
    if vectorstore is not None:
        stored = stored_vectors(vectorstore, documents)
    return [
        _left_by_a_filter(document, dimension) if vector is None else vector
        for document, vector in zip(documents, stored, strict=True)
    ]


def texts_to_embed(documents: Sequence[Document], vectors: Vectors) -> list[str]:
    """Return the texts of documents without vector; logs a warning with their number."""
    texts = [
        document.page_content
        for document, vector in zip(documents, vectors, strict=True)
        if vector is None
    ]
    if texts:
        logger.warning(
            "no stored vector for %d of %d documents: embedding their texts for this query",
            len(texts),
            len(documents),
        )
    return texts


def pool_of(
    documents: Sequence[Document],
    query: Query,
    vectors: Vectors,
    embedded: FloatArray | None,
    *,
    relevance_key: str | None,
) -> CandidatePool:
    """Return documents and vectors as a pool.

    Args:
        documents: n documents.
        query: The question.
        vectors: n vectors (d,), None for those that were embedded.
        embedded: The embedded ones in their order, shape (m, d); None if m is 0.
        relevance_key: Key of an earlier reranker's scores in the metadata, or None.

    Raises:
        InvalidInputError: If a vector is not finite, or its dimension is not the question's.
    """
    rest: Iterator[Any] = iter(() if embedded is None else embedded)
    rows = [next(rest) if vector is None else vector for vector in vectors]
    lengths = {len(row) for row in rows}
    if lengths != {len(query.vector)}:
        raise InvalidInputError(
            f"the question has {len(query.vector)} dimensions, the documents have "
            f"{sorted(lengths)}; were all embedded by one model?"
        )
    relevance = None if relevance_key is None else _relevance(documents, relevance_key)
    found = Candidates(
        documents=documents,
        embeddings=np.array(rows),
        scores=[_score(document) for document in documents],
        relevance=relevance,
    )
    return found.pool(query)


def _relevance(documents: Sequence[Document], key: str) -> FloatArray | None:
    """Return an earlier reranker's scores, shape (n,); None unless all documents have one."""
    scores = [document.metadata.get(key) for document in documents]
    return np.array(scores, dtype=np.float64) if all(map(_is_number, scores)) else None


def _score(document: Document) -> float | None:
    """Return the store's score that `SIFTRetriever` has kept, if it was there before."""
    earlier = document.metadata.get("sift")
    score: Any = earlier.get("score") if isinstance(earlier, dict) else None
    return float(score) if _is_number(score) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def _left_by_a_filter(document: Document, dimension: int) -> FloatArray | None:
    """Return the embedding that an `EmbeddingsRedundantFilter` keeps in a document's state."""
    state = getattr(document, "state", None)
    vector: Any = state.get("embedded_doc") if isinstance(state, dict) else None
    return np.asarray(vector) if np.shape(vector) == (dimension,) else None
