"""Faiss: here a search of any index that brings the vectors, and vectors by id."""

from sift_core.sources.faiss.search import search_with_vectors, stored_vectors

__all__ = ["search_with_vectors", "stored_vectors"]
