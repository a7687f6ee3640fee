"""Where candidates come from: one module a store, each importing its vendor itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sift_core.candidates.in_memory import InMemorySource
from sift_core.candidates.merged import MergedSource

if TYPE_CHECKING:
    from sift_core.candidates.faiss_index import FaissSource
    from sift_core.candidates.qdrant_collection import QdrantSource

__all__ = ["FaissSource", "InMemorySource", "MergedSource", "QdrantSource"]


def __getattr__(name: str) -> Any:
    """Import a source with its vendor only when it is asked for (PEP 562)."""
    if name == "FaissSource":
        from sift_core.candidates.faiss_index import FaissSource

        return FaissSource
    if name == "QdrantSource":
        from sift_core.candidates.qdrant_collection import QdrantSource

        return QdrantSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
