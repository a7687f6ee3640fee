"""A corpus as a search sees it: as it is, or with several noisy copies of every embedding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sift_core.checks import as_count
from sift_core.evaluation.data import Passage
from sift_core.evaluation.embedding_cache import EmbeddingCache
from sift_core.evaluation.search import unit_rows
from sift_core.types import FloatArray, IntArray

NOISE_LENGTH = 0.3  # guess: of the direction added to a copy, cosine 1/√1.09 = .958


@dataclass(frozen=True, kw_only=True, eq=False)
class Versions:
    """Everything that a search can find in one condition.

    `condition` names it; `embeddings` (n, d) are float32 unit rows; `originals` (n,) has for
    each of them the row of the corpus that it is a version of.
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
    copies = [_with_noise(plain.embeddings, generator) for _ in range(n_copies)]
    return Versions(
        condition=f"duplicates {n_copies}",
        embeddings=np.concatenate(copies),
        originals=np.tile(plain.originals, n_copies),
    )


def _with_noise(embeddings: FloatArray, generator: np.random.Generator) -> FloatArray:
    noise = generator.standard_normal(embeddings.shape, dtype=np.float32)
    noise *= NOISE_LENGTH / np.linalg.norm(noise, axis=1, keepdims=True)
    noise += embeddings
    copies: FloatArray = noise / np.linalg.norm(noise, axis=1, keepdims=True)
    return copies
