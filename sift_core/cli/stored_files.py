"""Which file each stored chunk is from: tells a vanished file from one that was not given."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qdrant_client import QdrantClient

_IDS_A_PAGE = 1000


def faiss_files(folder: Path) -> dict[str, str]:
    """Return the file of each chunk in a folder of `FaissSource`, by content id.

    Raises:
        CandidateSourceError: If the documents cannot be read.
    """
    from sift_core.sources.faiss.folder import current_documents
    from sift_core.sources.faiss.sqlite_documents import SQLiteDocuments

    path = current_documents(folder)
    if path is None:
        return {}
    with SQLiteDocuments.existing(path) as documents:
        return {
            content_id: _file(document.metadata, document.document_id)
            for _, content_id, document in documents.rows()
        }


def qdrant_files(client: QdrantClient, collection: str) -> dict[str, str]:
    """Return the file of each chunk in a collection, by content id; points of others are left out.

    Raises:
        CandidateSourceError: If Qdrant fails.
    """
    from sift_core.sources.qdrant.failures import STORE_ERRORS, failure
    from sift_core.sources.qdrant.points import DOCUMENT_ID_KEY

    found: dict[str, str] = {}
    offset = None
    while True:
        try:
            points, offset = client.scroll(
                collection,
                limit=_IDS_A_PAGE,
                offset=offset,
                with_payload=[DOCUMENT_ID_KEY, "source"],
                with_vectors=False,
            )
        except STORE_ERRORS as error:
            place = f"collection {collection!r}"
            raise failure(error).as_error("list the points of", place) from error
        for point in points:
            payload = point.payload or {}
            if DOCUMENT_ID_KEY in payload:
                found[str(point.id)] = _file(payload, str(payload[DOCUMENT_ID_KEY]))
        if offset is None:
            return found


def _file(metadata: Mapping[str, Any], document_id: str) -> str:
    source = metadata.get("source")
    return source if isinstance(source, str) else document_id
