"""Seeded random pools on which two selectors are compared: ordinary ones and awkward ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks.selection_data import collection, queries

LARGEST = 300  # candidates, where the kind does not ask for more
NOISE_VARIANCES = (1.0, 0.1, 0.01, 1e-3, 1e-4)


@dataclass(frozen=True, kw_only=True, eq=False)
class Pool:
    """One comparison: what both selectors are given."""

    kind: str
    query: np.ndarray  # (d,), float32, unit length
    rows: np.ndarray  # (n, d), float32, unit rows
    n_select: int
    noise_variance: float


def pools(n_per_kind: int, seed: int = 0) -> Iterator[Pool]:
    """Yield `n_per_kind` pools of every kind; a pool does not depend on their number."""
    for kind, make in KINDS.items():
        for i in range(n_per_kind):
            generator = np.random.default_rng([seed, *kind.encode(), i])
            yield make(kind, generator)


def real_pools(texts: np.ndarray, points: np.ndarray, n: int, seed: int = 0) -> Iterator[Pool]:
    """Yield pools of the texts nearest to each query, both embeddings by a real model."""
    generator = np.random.default_rng(seed)
    texts, points = (unit(np.asarray(x, dtype=np.float32)) for x in (texts, points))
    for query in points[:n]:
        nearest = np.argsort(-(texts @ query), kind="stable")[: min(200, len(texts))]
        yield Pool(
            kind="real embeddings",
            query=query,
            rows=texts[nearest],
            n_select=50,
            noise_variance=float(generator.choice(NOISE_VARIANCES)),
        )


def unit(rows: np.ndarray) -> np.ndarray:
    """Return float32 rows of unit length."""
    return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)


def _pool(
    kind: str,
    generator: np.random.Generator,
    query: np.ndarray,
    rows: np.ndarray,
    *,
    n_select: int | None = None,
    noise_variance: float | None = None,
) -> Pool:
    return Pool(
        kind=kind,
        query=query,
        rows=np.ascontiguousarray(rows),
        n_select=int(generator.integers(1, 51)) if n_select is None else n_select,
        noise_variance=noise_variance or float(generator.choice(NOISE_VARIANCES)),
    )


def _directions(kind: str, generator: np.random.Generator) -> Pool:
    d = int(generator.choice([2, 8, 64, 384]))
    vectors = unit(generator.normal(size=(int(generator.integers(2, LARGEST + 1)) + 1, d)))
    return _pool(kind, generator, vectors[0], vectors[1:])


def _nearest(
    data: str, n_candidates: int | None = None, n_select: int | None = None
) -> Callable[[str, np.random.Generator], Pool]:
    """Return a maker of pools as a search leaves them: the nearest of a larger collection."""

    def make(kind: str, generator: np.random.Generator) -> Pool:
        vectors = collection(data, 2000, int(generator.choice([64, 384])), generator)
        query = queries(vectors, 1, generator)[0]
        n = n_candidates or int(generator.integers(51, LARGEST + 1))
        nearest = np.argsort(-(vectors @ query), kind="stable")[:n]
        return _pool(kind, generator, query, vectors[nearest], n_select=n_select)

    return make


def _with_copies(kind: str, generator: np.random.Generator) -> Pool:
    pool = _nearest("text", 60)(kind, generator)
    copied = np.repeat(pool.rows, generator.integers(1, 5, len(pool.rows)), axis=0)
    return _pool(kind, generator, pool.query, generator.permutation(copied))


def _more_than_there_are(kind: str, generator: np.random.Generator) -> Pool:
    n = int(generator.integers(2, 21))
    vectors = unit(generator.normal(size=(n + 1, 64)))
    return _pool(kind, generator, vectors[0], vectors[1:], n_select=n + 30)


def _one_candidate(kind: str, generator: np.random.Generator) -> Pool:
    vectors = unit(generator.normal(size=(2, 64)))
    return _pool(kind, generator, vectors[0], vectors[1:])


def _query_among_them(kind: str, generator: np.random.Generator) -> Pool:
    pool = _nearest("text")(kind, generator)
    rows = generator.permutation(np.vstack([pool.rows, pool.query[None]]))
    return _pool(kind, generator, pool.query, rows)


def _little_noise(kind: str, generator: np.random.Generator) -> Pool:
    d = int(generator.choice([8, 64]))  # with few dimensions little variance is left to gain
    vectors = unit(generator.normal(size=(int(generator.integers(2, LARGEST + 1)) + 1, d)))
    noise_variance = 10.0 ** generator.uniform(-9, -5)
    return _pool(kind, generator, vectors[0], vectors[1:], noise_variance=noise_variance)


KINDS: dict[str, Callable[[str, np.random.Generator], Pool]] = {
    "random directions": _directions,
    "clusters": _nearest("clusters"),
    "like text": _nearest("text"),
    "with copies": _with_copies,
    "N > K": _more_than_there_are,
    "K = 1": _one_candidate,
    "query among them": _query_among_them,
    "λ 1e-9 to 1e-5": _little_noise,
    "K = 1200": _nearest("text", 1200, 20),
}
