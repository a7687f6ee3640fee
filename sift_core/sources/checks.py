"""What every source asks of a query."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sift_core.checks import as_count
from sift_core.errors import InvalidInputError
from sift_core.types import FloatArray, Query


def check_fetch_arguments(
    query: Query, n_candidates: int, *, dimension: int | None, embedder_name: str | None
) -> int:
    """Return `n_candidates` as an int, for a query that such a store can answer.

    Args:
        query: Anything.
        n_candidates: Likewise.
        dimension: The store's; None where only the store knows, and says so itself.
        embedder_name: The store's; None where it is not known.

    Raises:
        InvalidInputError: If `query` is no Query, `n_candidates` is not an integer >= 1, the
            dimension differs, or both sides name their embedder and the names differ.
    """
    if not isinstance(query, Query):
        raise InvalidInputError(
            f"`query` must be a sift_core.Query, got {type(query).__name__}; make one of text and "
            f"embedding"
        )
    n_candidates = as_count("n_candidates", n_candidates, minimum=1)
    if dimension not in (None, len(query.vector)):
        raise InvalidInputError(
            f"the query has {len(query.vector)} dimensions, the store has {dimension}; "
            f"were both embedded by one model?"
        )
    if None not in (embedder_name, query.embedder_name) and embedder_name != query.embedder_name:
        raise InvalidInputError(
            f"the query was embedded by {query.embedder_name!r}, the store by "
            f"{embedder_name!r}; embed the query with the store's model"
        )
    return n_candidates


def check_is_batch(queries: object) -> None:
    """Refuse what is no sequence of queries.

    Raises:
        InvalidInputError: If it is one query, or nothing to go through.
    """
    if isinstance(queries, Query | str) or not isinstance(queries, Sequence):
        raise InvalidInputError(
            f"`queries` must be a sequence of Query, got {type(queries).__name__}; `fetch` takes "
            f"one"
        )


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


def as_float32(embedding: FloatArray) -> FloatArray:
    """Return a query's embedding in the precision that stores compare.

    Raises:
        InvalidInputError: If a number is too large for it.
    """
    with np.errstate(over="ignore"):  # becomes infinite, which is refused
        narrow: FloatArray = embedding.astype(np.float32)
    if not np.isfinite(narrow).all():
        raise InvalidInputError(
            f"the query's `embedding` must fit float32, which the store compares, got numbers up "
            f"to {np.max(np.abs(embedding)):g}; scale it down"
        )
    return narrow
