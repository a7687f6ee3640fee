"""Pools of chunks for what is told of a choice."""

import numpy as np

from sift_core import CandidatePool


def turned(cosine):
    """Return a unit vector with this cosine to the first axis."""
    return [cosine, (1 - cosine**2) ** 0.5]


def pool_of(texts, embeddings=None, metadata=()):
    n = len(texts)
    embeddings = np.eye(n) if embeddings is None else np.array(embeddings)
    return CandidatePool(
        document_ids=[f"guide.md#{i}" for i in range(n)],
        texts=texts,
        embeddings=embeddings,
        similarities=np.linspace(0.9, 0.1, n),
        metadata=metadata,
    )
