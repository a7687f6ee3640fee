"""Collections of which the answers are known."""

from __future__ import annotations

import numpy as np

from sift_core.sources import InMemorySource
from sift_core.types import DocumentSample

DIMENSION = 384


def orthogonal(n, seed=0):
    """Return n unit vectors that have nothing in common, shape (n, 384)."""
    square = np.random.default_rng(seed).normal(size=(DIMENSION, DIMENSION))
    return np.linalg.qr(square)[0][:n].astype(np.float32)


def noisy(rows, cosine, seed=1):
    """Return each row turned by the same angle into a random direction."""
    noise = np.random.default_rng(seed).normal(size=rows.shape)
    noise -= (noise * rows).sum(axis=1, keepdims=True) * rows
    noise /= np.linalg.norm(noise, axis=1, keepdims=True)
    return (cosine * rows + np.sqrt(1 - cosine**2) * noise).astype(np.float32)


def sampled(rows, texts=None):
    """Return a source in memory over rows, and all of it as its sample."""
    texts = (
        [f"Chunk {i} says something of its own." for i in range(len(rows))]
        if texts is None
        else texts
    )
    ids = [str(i) for i in range(len(rows))]
    source = InMemorySource(rows, texts, document_ids=ids)
    sample = DocumentSample(
        document_ids=ids,
        texts=texts,
        embeddings=rows,
        metadata=[{}] * len(rows),
        n_stored=len(rows),
    )
    return source, sample


class RowEmbedder:
    """Gives a text that begins as a chunk the vector of that chunk, and any other some row."""

    name = "rows"

    def __init__(self, rows):
        self._rows = rows

    def embed_query(self, text):
        number = text.split()[1]
        return self._rows[int(number) if number.isdigit() else len(text) % len(self._rows)]

    def embed_documents(self, texts):
        return np.stack([self.embed_query(text) for text in texts])
