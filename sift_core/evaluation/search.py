"""Exact search of a corpus, as it is or with noisy copies of every embedding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from sift_core.checks import as_count
from sift_core.errors import InvalidInputError
from sift_core.evaluation.data import Passage
from sift_core.evaluation.embedding_cache import EmbeddingCache
from sift_core.types import FloatArray, IntArray

N_CANDIDATES = 200  # the paper's K
QUERIES_AT_ONCE = 64  # so that the matrix of similarities stays small
UNIT = 1e-5  # a length this close to 1 is 1 up to rounding in float32
NOISE_LENGTH = 0.3  # guess: of the direction added to a copy, cosine 1/√1.09 = 0.958


@dataclass(frozen=True, kw_only=True, eq=False)
class Versions:
    """All embeddings that a search can find in one condition.

    Args:
        condition: Its name.
        embeddings: float32 unit rows, shape (n, d).
        originals: Row of the corpus that each is a version of, shape (n,).
    """

    condition: str
    embeddings: FloatArray
    originals: IntArray


def as_is(passages: Sequence[Passage], cache: EmbeddingCache) -> Versions:
    """Return the corpus without redundancy: "as is".

    Raises:
        InvalidInputError: As `EmbeddingCache.embed`, or if an embedding is zero.
    """
    embedded = cache.embed([passage.to_embed for passage in passages], "passages")
    return Versions(
        condition="as is",
        embeddings=unit_rows(embedded, "passage"),
        originals=np.arange(len(passages)),
    )


def noisy_copies(plain: Versions, n_copies: int, seed: int) -> Versions:
    """Return every embedding `n_copies` times, each with a random direction: "duplicates n".

    None of them is the embedding itself. Fewer copies are the first of more. Each is of unit
    length, at a cosine of about 1/√(1 + NOISE_LENGTH²) to the embedding.

    Raises:
        InvalidInputError: If `n_copies` is not a whole number of at least 1.
    """
    n_copies = as_count("n_copies", n_copies, minimum=1)
    generator = np.random.default_rng(seed)
    copies = []
    for _ in range(n_copies):
        noise = generator.standard_normal(plain.embeddings.shape, dtype=np.float32)
        noise *= NOISE_LENGTH / np.linalg.norm(noise, axis=1, keepdims=True)
        noise += plain.embeddings
        copies.append(noise / np.linalg.norm(noise, axis=1, keepdims=True))
    return Versions(
        condition=f"duplicates {n_copies}",
        embeddings=np.concatenate(copies),
        originals=np.tile(plain.originals, n_copies),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Pool:
    """The candidates of one question, the most similar first.

    Args:
        query: float32 of unit length, shape (d,).
        embeddings: float32 unit rows, shape (n, d).
        similarities: Inner products with the query, shape (n,).
        rows: Position of each candidate among all that was searched, shape (n,).
    """

    query: FloatArray
    embeddings: FloatArray
    similarities: FloatArray
    rows: IntArray


def pools(
    queries: FloatArray,
    embeddings: FloatArray,
    n_candidates: int = N_CANDIDATES,
    *,
    left_out: Sequence[Sequence[int] | IntArray] = (),
) -> Iterator[Pool]:
    """Yield for every query its nearest by inner product, ties by row.

    Takes O(m · d) time a query and O(m) memory.

    Args:
        queries: Unit rows, shape (n, d).
        embeddings: Unit rows, shape (m, d).
        n_candidates: How many at most, at least 1.
        left_out: Rows of `embeddings` that are no candidates, for each query. Default: none.
    """
    for start in range(0, len(queries), QUERIES_AT_ONCE):
        batch = queries[start : start + QUERIES_AT_ONCE]
        for i, (query, similarities) in enumerate(zip(batch, batch @ embeddings.T, strict=True)):
            own = left_out[start + i] if left_out else ()
            rows = nearest(similarities, n_candidates + len(own))
            if len(own):
                rows = rows[~np.isin(rows, own)][:n_candidates]
            yield Pool(
                query=query,
                embeddings=embeddings[rows],
                similarities=similarities[rows],
                rows=rows,
            )


def nearest(similarities: FloatArray, n: int) -> IntArray:
    """Return the positions of the n largest values, largest first, ties by position."""
    n = min(n, len(similarities))
    if n == 0:
        return np.empty(0, dtype=np.intp)
    least = np.partition(similarities, -n)[-n]
    positions = np.flatnonzero(similarities >= least)  # more than n if the least is tied
    order = np.argsort(-similarities[positions], kind="stable")
    found: IntArray = positions[order[:n]]
    return found


def unit_rows(embeddings: FloatArray, noun: str) -> FloatArray:
    """Return the rows with unit length; rows that have it up to rounding stay as they are.

    Args:
        embeddings: Shape (n, d).
        noun: Names a row in an error.

    Raises:
        InvalidInputError: If a row is all zeros.
    """
    lengths = np.linalg.norm(embeddings, axis=1, keepdims=True)
    if not lengths.all():
        raise InvalidInputError(
            f"every embedding must have a direction, but that of {noun} {int(np.argmin(lengths))} "
            f"(from 0) is zero: is there something to embed?"
        )
    is_unit = bool((np.abs(lengths - 1.0) < UNIT).all())
    return embeddings if is_unit else embeddings / lengths
