"""Points as Qdrant's clients and its embedded engine return them, and the pool they make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sift_core.checks import as_finite_array
from sift_core.errors import CandidateSourceError, InvalidInputError
from sift_core.selection.kernels import cosine_similarities
from sift_core.sources.qdrant.vectors import dense_vectors
from sift_core.sources.sampling import as_sample, nothing_to_sample
from sift_core.types import CandidatePool, Document, DocumentSample, Query

# Payload key of a document's own id, written by `index_documents`. Qdrant's own ids are
# integers or UUIDs, which a document's id seldom is.
DOCUMENT_ID_KEY = "sift_document_id"


@dataclass(frozen=True, kw_only=True)
class PointReader:
    """Reads points with vectors and payload, whatever client or engine they come from.

    Args:
        place: What error messages call the store, for instance "Qdrant collection 'docs'".
        vector_name: Which named vector to read; "" for the unnamed one.
        text_key: Payload key of the chunk's text; dots lead into nested objects, unless the
            payload has a key that is spelled with them.
    """

    place: str
    vector_name: str
    text_key: str

    def pool(
        self, query: Query, points: Sequence[Any], *, scores_are_relevance: bool = False
    ) -> CandidatePool:
        """Return the points as a pool, in their order.

        Args:
            query: What was asked.
            points: Each with `id`, `score`, `vector` and `payload`.
            scores_are_relevance: Whether the scores say more than the cosine does (fused or
                reranked results), and so are kept.

        Raises:
            CandidateSourceError: If a point lacks its vector or its text.
        """
        columns = self._columns(points, len(query.vector))
        relevance = None
        if scores_are_relevance:
            relevance = np.array([point.score for point in points], dtype=np.float64)
        try:
            # NaN, for instance, is the store's fault, not the caller's.
            embeddings = as_finite_array("embeddings", columns["embeddings"], n_dimensions=2)
            similarities = cosine_similarities(query.vector, embeddings)
            return CandidatePool(**columns, similarities=similarities, relevance=relevance)
        except InvalidInputError as error:
            raise CandidateSourceError(
                f"{self.place} returned what cannot be used: {error}; write these points anew"
            ) from error

    def sample(
        self, points: Sequence[Any], *, n_stored: int, is_seeded: bool = True
    ) -> DocumentSample:
        """Return the points as a sample, in their order.

        Args:
            points: Each with `id`, `vector` and `payload`; none where they are all gone.
            n_stored: As for `DocumentSample`.
            is_seeded: Likewise.

        Raises:
            CandidateSourceError: If a point lacks its vector or its text, or a vector is not
                finite.
            InvalidInputError: If there is no point.
        """
        if not points:
            raise nothing_to_sample(self.place)
        columns = self._columns(points, None)
        return as_sample(self.place, **columns, n_stored=n_stored, is_seeded=is_seeded)

    def payload(self, document: Document) -> dict[str, Any]:
        """Return the payload from which `pool` reads the same document again.

        Raises:
            InvalidInputError: If the metadata has a key that the payload needs for itself.
        """
        payload = dict(document.metadata)
        for key in (self.text_key, DOCUMENT_ID_KEY):
            if key in payload:
                raise InvalidInputError(
                    f"the metadata of document {document.document_id!r} must not have the key "
                    f"{key!r}, which the payload keeps for itself; rename it"
                )
        payload[self.text_key] = document.text
        payload[DOCUMENT_ID_KEY] = document.document_id
        return payload

    def _columns(self, points: Sequence[Any], d: int | None) -> dict[str, Any]:
        """Return the columns of a pool or a sample, by name."""
        embeddings = dense_vectors(
            points, vector_name=self.vector_name, dimension=d, place=self.place
        )
        point_ids = [point.id for point in points]
        payloads = [dict(point.payload or {}) for point in points]
        texts = list(map(self._take_text, point_ids, payloads))
        ids = [
            str(payload.pop(DOCUMENT_ID_KEY, point_id))
            for point_id, payload in zip(point_ids, payloads, strict=True)
        ]
        return {
            "document_ids": ids,
            "texts": texts,
            "embeddings": embeddings,
            "metadata": payloads,
        }

    def _take_text(self, point_id: object, payload: dict[str, Any]) -> str:
        """Return a payload's text and take it out, so that metadata holds the rest."""
        holder, key = payload, self.text_key
        while key not in holder and "." in key:
            outer, key = key.split(".", 1)
            if not isinstance(holder.get(outer), Mapping):
                break
            holder[outer] = holder = dict(holder[outer])  # the client's object stays whole
        text = holder.pop(key, None)
        if not isinstance(text, str):
            raise CandidateSourceError(
                f"point {point_id} of {self.place} has no text under {self.text_key!r}, only "
                f"{sorted(payload)}; pass the right `text_key` (dots lead into nested objects)"
            )
        return text
