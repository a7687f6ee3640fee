"""Candidates from a Faiss index, and a folder that keeps one."""

from sift_core.sources.faiss.index import FaissSource

__all__ = ["FaissSource"]
