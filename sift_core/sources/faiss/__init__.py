"""Candidates from a Faiss index, and a folder that keeps one."""

from sift_core.sources.faiss.index import FaissSource
from sift_core.sources.faiss.search import Hits, search_with_vectors, stored_vectors

__all__ = ["FaissSource", "Hits", "search_with_vectors", "stored_vectors"]
