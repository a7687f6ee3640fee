"""Seeded collections of unit vectors and the problems that selection is timed on."""

from __future__ import annotations

from dataclasses import dataclass

import faiss
import numpy as np

QUERY_NOISE = 1.0  # length of what is added to a document: the query's nearest cosine is about .7

# Each level: groups a 20,000 documents, and the share of a vector that the group gives it, which
# is the cosine that members share. "text" imitates what all-MiniLM-L6-v2 makes of musique's and
# hotpotqa's passages: the 200 nearest have cosines .7 to .2 with the query and .15 on average with
# each other, and most have one close relative. "clusters" is less like text and was here first.
LEVELS = {
    "clusters": ((200, 0.5),),
    "text": ((1, 0.05), (200, 0.25), (2000, 0.15), (7000, 0.2)),
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Problem:
    """One query and what Faiss fetched for it, float32 as Faiss gives it."""

    query: np.ndarray  # (d,)
    pool: np.ndarray  # (n, d)
    ids: np.ndarray  # (n,)
    similarities: np.ndarray  # (n,)


def collection(kind: str, n: int, d: int, generator: np.random.Generator) -> np.ndarray:
    """Return unit vectors, float32, shape (n, d): nested groups as `LEVELS[kind]` has them."""
    levels = LEVELS[kind]
    finest = levels[-1][0]
    group = generator.integers(0, finest, n)
    rows = np.zeros((n, d), dtype=np.float32)
    for count, share in levels:
        centres = generator.standard_normal((count, d), dtype=np.float32)
        rows += np.float32(share**0.5) * centres[group * count // finest]
    left = 1.0 - sum(share for _, share in levels)
    rows += np.float32(left**0.5) * generator.standard_normal((n, d), dtype=np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows


def queries(vectors: np.ndarray, n: int, generator: np.random.Generator) -> np.ndarray:
    """Return unit queries near documents, float32, shape (n, d)."""
    d = vectors.shape[1]
    rows = vectors[generator.choice(len(vectors), n, replace=False)]
    noise = generator.standard_normal((n, d), dtype=np.float32)
    rows = rows + np.float32(QUERY_NOISE) * noise / np.linalg.norm(noise, axis=1, keepdims=True)
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def indexed(kind: str, n: int, d: int, n_queries: int) -> tuple[faiss.IndexFlatIP, np.ndarray]:
    """Return an exact index of `n` vectors and queries near them, always the same."""
    generator = np.random.default_rng([d, n])
    vectors = collection(kind, n, d, generator)
    index = faiss.IndexFlatIP(d)
    index.add(vectors)
    return index, queries(vectors, n_queries, generator)


def fetch_all(index: faiss.Index, points: np.ndarray, n_candidates: int) -> list[Problem]:
    """Return what a Faiss index finds for each query."""
    return [_fetch(index, query, n_candidates) for query in points]


def _fetch(index: faiss.Index, query: np.ndarray, n_candidates: int) -> Problem:
    similarities, ids = index.search(query[None], n_candidates)
    pool = index.reconstruct_batch(ids[0])
    return Problem(query=query, pool=pool, ids=ids[0], similarities=similarities[0])
