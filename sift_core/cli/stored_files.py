"""Which file each stored chunk is from: tells a vanished file from one that was not given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qdrant_client import QdrantClient

    from sift_core.sources import FaissSource

_IDS_A_PAGE = 1000


def faiss_files(source: FaissSource) -> dict[str, str]:
    """Return the file of each chunk in a `FaissSource`, by content id."""
    return {
        content_id: _file(document.metadata, document.document_id)
        for content_id, document in source.documents().items()
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
