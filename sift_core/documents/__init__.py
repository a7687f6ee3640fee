"""From a folder to a store: files read, texts cut along their structure, documents written."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sift_core.documents.indexing import IndexingReport, index_documents

if TYPE_CHECKING:
    from sift_core.documents.budget import Budget
    from sift_core.documents.chunker import FORMAT_OF_SUFFIX, Chunker
    from sift_core.documents.cutting import TextFormat
    from sift_core.documents.finding import (
        FoundFile,
        FoundFiles,
        SkippedPath,
        SkipReason,
        find_files,
    )
    from sift_core.documents.reader import FileReading, read_files, read_found

__all__ = [
    "FORMAT_OF_SUFFIX",
    "Budget",
    "Chunker",
    "FileReading",
    "FoundFile",
    "FoundFiles",
    "IndexingReport",
    "SkipReason",
    "SkippedPath",
    "TextFormat",
    "find_files",
    "index_documents",
    "read_files",
    "read_found",
]

_MODULES = {
    "Budget": "budget",
    "FORMAT_OF_SUFFIX": "chunker",
    "Chunker": "chunker",
    "FileReading": "reader",
    "FoundFile": "finding",
    "FoundFiles": "finding",
    "SkipReason": "finding",
    "SkippedPath": "finding",
    "TextFormat": "cutting",
    "find_files": "finding",
    "read_files": "reader",
    "read_found": "reader",
}


def __getattr__(name: str) -> Any:
    """Import what cuts and reads files with its packages only when it is asked for (PEP 562)."""
    if name in _MODULES:
        return getattr(import_module(f"sift_core.documents.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
