"""Exact search for the candidates, and what a method is given of one question."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

N_CANDIDATES = 200  # K of issue 3
QUERIES_AT_ONCE = 64  # so that the matrix of similarities stays small


@dataclass(frozen=True, kw_only=True, eq=False)
class Pool:
    """The candidates of one question, the most similar first.

    `query` (d,) and `embeddings` (n, d) are float32 of unit length, `similarities` (n,) their
    inner products; `rows` (n,) says where the candidates stand among all that was searched.
    """

    query: np.ndarray
    embeddings: np.ndarray
    similarities: np.ndarray
    rows: np.ndarray


def pools(queries: np.ndarray, embeddings: np.ndarray) -> Iterator[Pool]:
    """Yield for every query its `N_CANDIDATES` nearest by inner product, ties by row."""
    for start in range(0, len(queries), QUERIES_AT_ONCE):
        batch = queries[start : start + QUERIES_AT_ONCE]
        for query, similarities in zip(batch, batch @ embeddings.T, strict=True):
            rows = nearest(similarities, N_CANDIDATES)
            yield Pool(
                query=query,
                embeddings=embeddings[rows],
                similarities=similarities[rows],
                rows=rows,
            )


def nearest(similarities: np.ndarray, n: int) -> np.ndarray:
    """Return the positions of the n largest values, largest first, ties by position."""
    n = min(n, len(similarities))
    if n == 0:
        return np.empty(0, dtype=np.intp)
    least = np.partition(similarities, -n)[-n]
    positions = np.flatnonzero(similarities >= least)  # more than n where the least is tied
    order = np.argsort(-similarities[positions], kind="stable")
    return positions[order[:n]]
