"""Where candidates come from: one module a store, each importing its vendor itself."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sift_core.candidates.content_ids import content_id
from sift_core.candidates.in_memory import InMemorySource
from sift_core.candidates.indexing import IndexingReport, index_documents
from sift_core.candidates.merged import MergedSource
from sift_core.candidates.sqlite_documents import SQLiteDocuments

if TYPE_CHECKING:
    from sift_core.candidates.faiss_index import FaissSource
    from sift_core.candidates.qdrant_collection import QdrantSource
    from sift_core.candidates.qdrant_edge_shard import EdgeSource

__all__ = [
    "EdgeSource",
    "FaissSource",
    "InMemorySource",
    "IndexingReport",
    "MergedSource",
    "QdrantSource",
    "SQLiteDocuments",
    "content_id",
    "index_documents",
]

_MODULES = {
    "EdgeSource": "qdrant_edge_shard",
    "FaissSource": "faiss_index",
    "QdrantSource": "qdrant_collection",
}


def __getattr__(name: str) -> Any:
    """Import a source with its vendor only when it is asked for (PEP 562)."""
    if name in _MODULES:
        return getattr(import_module(f"sift_core.candidates.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
