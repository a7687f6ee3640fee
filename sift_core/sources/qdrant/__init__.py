"""Candidates from a Qdrant collection: in this process, by REST or by gRPC."""

from sift_core.sources.qdrant.collection import QdrantSource

__all__ = ["QdrantSource"]
