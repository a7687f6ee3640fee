"""The benchmarks' embeddings: all-MiniLM-L6-v2's, kept in a folder of the project."""

from __future__ import annotations

from pathlib import Path

from sift_core.evaluation.embedding_cache import EmbeddingCache

CACHE = Path(__file__).parents[1] / ".cache" / "embeddings"


def project_cache() -> EmbeddingCache:
    return EmbeddingCache(CACHE)
