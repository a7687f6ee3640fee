"""Words as sparse vectors of a collection, whose dot product with a query is BM25.

Qdrant multiplies by log(1 + (n - df + 0.5) / (df + 0.5)) itself (its modifier IDF). The rest of
BM25 stands in the points: tf · (k1 + 1) / (tf + k1 · (1 - b + b · |d| / mean)), with a mean length
that is assumed when the collection is created, since points are written before all are known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from qdrant_client import models

from sift_core.places import heading_of
from sift_core.selection.word_counts import count_words, hashes_of
from sift_core.sources.lexical_index import K1, B, counts_of
from sift_core.types import Document

WORDS = "sift_words"  # the sparse vector, and the metadata of a collection that has it
FORMAT = 1  # rises where words or hashes change
MEAN_LENGTH = 128  # words of a chunk of some 200 tokens. Guess.


def sparse_vectors() -> dict[str, models.SparseVectorParams]:
    """Return what a new collection needs to keep words."""
    return {WORDS: models.SparseVectorParams(modifier=models.Modifier.IDF)}


def metadata() -> dict[str, Any]:
    """Return what a new collection notes of its words."""
    return {WORDS: {"format": FORMAT, "mean_length": MEAN_LENGTH}}


def mean_length(information: models.CollectionInfo) -> float:
    """Return the mean length that a collection's points are written with; 0 without words."""
    noted = (information.config.metadata or {}).get(WORDS)
    params = (information.config.params.sparse_vectors or {}).get(WORDS)
    if not isinstance(noted, dict) or noted.get("format") != FORMAT:
        return 0.0
    if params is None or params.modifier != models.Modifier.IDF:
        return 0.0
    length = noted.get("mean_length")
    return float(length) if isinstance(length, int | float) and length > 0 else 0.0


def words_of_documents(
    documents: Sequence[Document], mean: float
) -> list[models.SparseVector | None]:
    """Return the words of each document. A document without words has None.

    Words are known by the lower 32 bits of their hashes. Of a million words, two of a query and
    another document share these with probability 2e-4.
    """
    headings = [heading_of(document.metadata) for document in documents]
    counted = count_words([document.text for document in documents], headings)
    vectors: list[models.SparseVector | None] = []
    for words in counted:
        indices, where = np.unique(_indices(words.hashes), return_inverse=True)
        counts = np.bincount(where, counts_of(words))
        values = counts * (K1 + 1) / (counts + K1 * (1 - B + B * counts.sum() / mean))
        vector = models.SparseVector(indices=indices.tolist(), values=values.tolist())
        vectors.append(vector if len(indices) else None)
    return vectors


def words_of_query(words: Sequence[str]) -> models.SparseVector | None:
    """Return what is looked for; None if there is no word."""
    indices = np.unique(_indices(hashes_of(words))).tolist()
    if not indices:
        return None
    return models.SparseVector(indices=indices, values=[1.0] * len(indices))


def _indices(hashes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return hashes & np.uint64(0xFFFFFFFF)
