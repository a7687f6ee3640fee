"""Where candidates come from: one folder a store, each importing its vendor itself."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sift_core.sources.content_ids import content_id
from sift_core.sources.in_memory import InMemorySource
from sift_core.sources.merged import MergedSource
from sift_core.sources.oversampling import OversamplingSource
from sift_core.sources.several_queries import afetch_for_all, fetch_for_all

if TYPE_CHECKING:
    from sift_core.sources.faiss import FaissSource
    from sift_core.sources.qdrant import QdrantSource

__all__ = [
    "FaissSource",
    "InMemorySource",
    "MergedSource",
    "OversamplingSource",
    "QdrantSource",
    "afetch_for_all",
    "content_id",
    "fetch_for_all",
]

_VENDORS = {"FaissSource": "faiss", "QdrantSource": "qdrant"}


def __getattr__(name: str) -> Any:
    """Import a source with its vendor only when it is asked for (PEP 562)."""
    if name in _VENDORS:
        return getattr(import_module(f"sift_core.sources.{_VENDORS[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
