"""A corpus as a search sees it: as it is, or with several versions of every passage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from sift_core.checks import as_count
from sift_core.evaluation.embedding_cache import EmbeddingCache
from sift_core.evaluation.retrieval.data import Passage, read_variants
from sift_core.evaluation.retrieval.search import unit_rows
from sift_core.evaluation.retrieval.variants import versions
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


def textual_variants(
    passages: Sequence[Passage], n_versions: int, seed: int, cache: EmbeddingCache
) -> Versions:
    """Return every passage and `n_versions` - 1 variants of its text: "variants n".

    Raises:
        InvalidInputError: As `as_is`, or if `n_versions` is not a whole number of at least 1.
    """
    n_versions = as_count("n_versions", n_versions, minimum=1)
    texts = [versions(one.text, one.passage_id, n_versions, seed) for one in passages]
    parts = [as_is(passages, cache).embeddings]
    for i in range(1, n_versions):
        varied = [
            replace(one, text=own[i]).to_embed for one, own in zip(passages, texts, strict=True)
        ]
        embedded = cache.embed(varied, f"variant {i} of {n_versions - 1}")
        parts.append(unit_rows(embedded, "variant"))
    return Versions(
        condition=f"variants {n_versions}",
        embeddings=np.concatenate(parts),
        originals=np.tile(np.arange(len(passages)), n_versions),
    )


def given_variants(
    passages: Sequence[Passage], path: str | Path, cache: EmbeddingCache
) -> Versions:
    """Return every passage and the variants of passages that a file has: "variants FILE".

    Raises:
        InvalidInputError: As `as_is` and `read_variants`.
    """
    variants, originals = read_variants(path, passages)
    plain = as_is(passages, cache)
    added = cache.embed([variant.to_embed for variant in variants], "variants")
    return Versions(
        condition=f"variants {Path(path).name}",
        embeddings=np.concatenate([plain.embeddings, unit_rows(added, "variant")]),
        originals=np.concatenate([plain.originals, np.array(originals)]),
    )


def _with_noise(embeddings: FloatArray, generator: np.random.Generator) -> FloatArray:
    noise = generator.standard_normal(embeddings.shape, dtype=np.float32)
    noise *= NOISE_LENGTH / np.linalg.norm(noise, axis=1, keepdims=True)
    noise += embeddings
    copies: FloatArray = noise / np.linalg.norm(noise, axis=1, keepdims=True)
    return copies
