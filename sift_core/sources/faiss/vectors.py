"""The vectors of a Faiss index for whoever holds one: by row, or along with a search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sift_core.checks import as_count, as_finite_array
from sift_core.errors import CandidateSourceError, InvalidInputError
from sift_core.sources.checks import as_float32
from sift_core.sources.faiss.search import (
    FAULTS,
    check_index,
    failed_search,
    search,
    vectors_by_id,
)
from sift_core.types import FloatArray, IntArray


@dataclass(frozen=True, kw_only=True, eq=False)
class Hits:
    """Nearest neighbours of one query, nearest first.

    Args:
        rows: Shape (n,), the index's ids.
        scores: Shape (n,), inner products or distances, by the index's own metric.
        embeddings: Shape (n, d), float32; approximations where the index compresses.
    """

    rows: IntArray
    scores: FloatArray
    embeddings: FloatArray


def stored_vectors(index: Any, rows: Sequence[int] | IntArray) -> FloatArray:
    """Return the vectors of rows of an index, shape (n, d), float32, in the order asked for.

    Whatever wraps the index: an `IndexIDMap` and an IVF index without a direct map are read too,
    in O(ntotal). One that compresses gives back approximations.

    Args:
        index: Any Faiss index of floats.
        rows: n ids of the index; one may come twice.

    Raises:
        CandidateSourceError: If the index has no such row, cannot give vectors back, or fails.
        InvalidInputError: If `index` is none, or a row is no integer.
    """
    check_index(index)
    ids = np.asarray(rows)
    if ids.size and (ids.ndim != 1 or ids.dtype.kind not in "iu"):
        raise InvalidInputError(
            f"`rows` must be integers, shape (n,), got {ids.dtype} of shape {ids.shape}"
        )
    if not ids.size:
        return np.empty((0, index.d), dtype=np.float32)
    try:
        return vectors_by_id(index, np.ascontiguousarray(ids, dtype=np.int64))
    except LookupError as error:
        raise CandidateSourceError(
            f"Faiss {type(index).__name__} of {index.ntotal} vectors does not hold what was asked "
            f"for: {error}; do the index and what names its rows belong together?"
        ) from error
    except FAULTS as error:
        raise failed_search(index, error) from error


def search_with_vectors(
    index: Any, query: FloatArray, n: int, *, allowed: Sequence[int] | IntArray | None = None
) -> Hits:
    """Return the nearest rows of an index with their vectors, in one search where it can.

    Flat, IVF, HNSW, NSG and codes, whatever wraps them; none needs a direct map. HNSW looks at
    n nodes at least, whatever its efSearch; IVF returns fewer rows where the lists that it probes
    (nprobe) hold fewer.

    Args:
        index: Any trained Faiss index of floats.
        query: Shape (d,), as the index's vectors are scaled.
        n: How many rows at most, >= 1.
        allowed: The only rows that may be returned. Costs O(ntotal) more; graphs (HNSW) are left
            aside then, and all allowed rows compared.

    Raises:
        CandidateSourceError: If Faiss fails, or the index cannot give vectors back.
        InvalidInputError: If an argument cannot be used, or the dimensions differ.
    """
    check_index(index)
    n = as_count("n", n, minimum=1)
    vector = as_float32(as_finite_array("query", query, n_dimensions=1))
    if len(vector) != index.d:
        raise InvalidInputError(
            f"the query has {len(vector)} dimensions, the Faiss index has {index.d}; were both "
            f"embedded by one model?"
        )
    ids = None if allowed is None else np.asarray(allowed, dtype=np.int64)
    n = min(n, index.ntotal if ids is None else len(ids))
    if n == 0:
        empty = np.empty((0, index.d), dtype=np.float32)
        return Hits(rows=np.empty(0, dtype=np.int64), scores=empty[:, 0], embeddings=empty)
    try:
        hits = search(index, np.ascontiguousarray(vector[np.newaxis]), n, allowed=ids)
    except FAULTS as error:
        raise failed_search(index, error) from error
    is_hit = hits.ids[0] >= 0
    return Hits(
        rows=hits.ids[0][is_hit],
        scores=hits.scores[0][is_hit],
        embeddings=hits.vectors[0][is_hit],
    )
