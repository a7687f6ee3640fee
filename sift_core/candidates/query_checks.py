"""What every source asks of a query, and the similarity that every pool states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sift_core.errors import InvalidInputError
from sift_core.types import FloatArray, Query, as_count


def check_fetch_arguments(
    query: Query, n_candidates: int, *, dimension: int, embedder_name: str | None
) -> int:
    """Return `n_candidates` as an int, for a query that such a store can answer.

    Raises:
        InvalidInputError: If `n_candidates` is not an integer >= 1, the dimension differs,
            or both sides name their embedder and the names differ.
    """
    n_candidates = as_count("n_candidates", n_candidates, minimum=1)
    if len(query.embedding) != dimension:
        raise InvalidInputError(
            f"the query has {len(query.embedding)} dimensions, the store has {dimension}; "
            f"were both embedded by one model?"
        )
    if None not in (embedder_name, query.embedder_name) and embedder_name != query.embedder_name:
        raise InvalidInputError(
            f"the query was embedded by {query.embedder_name!r}, the store by "
            f"{embedder_name!r}; embed the query with the store's model"
        )
    return n_candidates


def check_is_callable(filter: object) -> None:
    """Refuse a filter that is not a function of a document's metadata.

    Raises:
        InvalidInputError: If it is neither callable nor None.
    """
    if filter is not None and not callable(filter):
        raise InvalidInputError(
            f"`filter` must be a function of a document's metadata, got "
            f"{type(filter).__name__}; each kind of store has its own kind of filter"
        )


def near_and_opposite(n_candidates: int) -> tuple[int, int]:
    """Return how many of n candidates are near the query and how many near its opposite.

    Half each, the odd one near the query.
    """
    return n_candidates - n_candidates // 2, n_candidates // 2


def with_opposite(near: Sequence[Any], opposite: Sequence[Any], n_candidates: int) -> list[Any]:
    """Return hits near a query, then those near its opposite, the most opposite last.

    Each once, `n_candidates` at most; both come nearest first to what was asked.

    Args:
        near: Hits with an `id`.
        opposite: Likewise.
        n_candidates: >= 1.
    """
    seen = {hit.id for hit in near}
    others = [hit for hit in opposite if hit.id not in seen]
    return [*near, *reversed(others[: n_candidates - len(near)])]


def cosine_similarities(query: FloatArray, embeddings: FloatArray) -> FloatArray:
    """Return the cosine of `query` (d,) and every row of `embeddings` (n, d), shape (n,).

    float32, in [-1, 1]; 0 where a vector is all zero. Equal rows have equal cosines, which
    a product by BLAS does not promise: `einsum` sums every row in the same order.
    """
    direction = query.astype(np.float64)  # squares of float32 leave its range
    length = float(np.linalg.norm(direction))
    direction = direction / length if length > 0 else direction
    rows = embeddings.astype(np.float64)
    lengths = np.sqrt(np.einsum("nd,nd->n", rows, rows))
    products = np.einsum("nd,d->n", rows, direction)
    cosines = np.divide(products, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    clipped: FloatArray = np.clip(cosines, -1.0, 1.0).astype(np.float32)
    return clipped
