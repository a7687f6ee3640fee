"""The values that pass between a store and a pool, and what every store shares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from langchain_core.documents import Document

from sift_core import CandidatePool, CandidateSourceError, InvalidInputError, Query

FloatArray: TypeAlias = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Search:
    """What to ask a store for.

    Args:
        query: The question and its embedding, finite.
        n_candidates: How many documents at most, >= 1.
        filter: The store's own kind of filter; None for no restriction.
        options: Further arguments in the store's own words.
    """

    query: Query
    n_candidates: int
    filter: Any
    options: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidates:
    """Documents with their embeddings; row i belongs to document i.

    Args:
        documents: n documents, nearest first. They may alias what the store keeps.
        embeddings: Shape (n, d).
        scores: n numbers, the store's own: cosines, distances, fused ranks. None where the
            store gives none.
        relevance: Shape (n,), the scores where they say more than the cosine does.
    """

    documents: Sequence[Document]
    embeddings: FloatArray
    scores: Sequence[float | None] | None = None
    relevance: FloatArray | None = None

    def pool(self, query: Query) -> CandidatePool:
        """Return the columns of a pool; `metadata` holds "document" and, where known, "score".

        Raises:
            InvalidInputError: If an embedding is not finite, or has another dimension than
                the question's.
        """
        if not self.documents:
            return CandidatePool.empty(dimension=len(query.vector))
        if self.embeddings.ndim == 2 and self.embeddings.shape[1] != len(query.vector):
            raise InvalidInputError(
                f"the question has {len(query.vector)} dimensions, the documents have "
                f"{self.embeddings.shape[1]}; were both embedded by one model?"
            )
        scores = self.scores or [None] * len(self.documents)
        return CandidatePool(
            document_ids=[str(i if d.id is None else d.id) for i, d in enumerate(self.documents)],
            texts=[document.page_content for document in self.documents],
            embeddings=self.embeddings,
            similarities=cosines(query.vector[np.newaxis], self.embeddings)[0],
            metadata=[
                {"document": document} | ({} if score is None else {"score": float(score)})
                for document, score in zip(self.documents, scores, strict=True)
            ],
            relevance=self.relevance,
        )


@contextmanager
def store_failures(store: object, place: str, advice: str) -> Iterator[None]:
    """Turn whatever a store raises inside the block into an error that says what to do.

    Args:
        store: The store, named by its class.
        place: What was searched, for instance "collection 'docs'".
        advice: What to check.

    Raises:
        CandidateSourceError: If the block raises; the store's exception is its cause.
    """
    try:
        yield
    except Exception as error:  # stores share no ancestor: ValueError, RpcError, AssertionError, …
        raise CandidateSourceError(
            f"{type(store).__name__} could not search {place}: {error!r}; {advice}"
        ) from error


def refuse_options(store: object, names: set[str]) -> None:
    """Refuse search options that would be ignored or would clash.

    Raises:
        InvalidInputError: If `names` is not empty.
    """
    if names:
        raise InvalidInputError(
            f"{type(store).__name__} cannot be searched by SIFT with the option(s) "
            f"{sorted(names)}; leave them out of `search_kwargs` and of the call"
        )


def refuse_filter(store: object, filter: object, expected: str) -> None:
    """Refuse a filter of the wrong kind.

    Raises:
        InvalidInputError: Always.
    """
    raise InvalidInputError(
        f"`filter` for {type(store).__name__} must be {expected}, got "
        f"{type(filter).__name__}; each kind of store has its own kind of filter"
    )


def cosines(rows: FloatArray, others: FloatArray) -> FloatArray:
    """Return the cosine of each of `rows` (m, d) with each of `others` (n, d), shape (m, n).

    float64, in [-1, 1]; 0 where a vector is all zero, NaN where one is not finite.
    """
    products: FloatArray = _unit(rows) @ _unit(others).T
    return np.clip(products, -1.0, 1.0)


def _unit(rows: FloatArray) -> FloatArray:
    scaled: FloatArray = rows.astype(np.float64)
    with np.errstate(invalid="ignore"):  # who builds a pool of them refuses infinite numbers
        for lengths in (np.abs(scaled).max(axis=1), None):  # first so that squares stay in range
            size = np.linalg.norm(scaled, axis=1) if lengths is None else lengths
            scaled = scaled / np.where(size > 0, size, 1.0)[:, np.newaxis]
    return scaled
