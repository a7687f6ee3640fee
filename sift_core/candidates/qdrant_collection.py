"""Candidates from a Qdrant collection: in memory, in a folder or on a server alike."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import Any

import numpy as np

from sift_core.candidates.query_checks import check_fetch_arguments, cosine_similarities
from sift_core.errors import CandidateSourceError, InvalidInputError, MissingDependencyError
from sift_core.types import CandidatePool, FloatArray, Query

try:
    import grpc
    from qdrant_client import AsyncQdrantClient, QdrantClient, models
    from qdrant_client.http.exceptions import ApiException
except ImportError as error:
    raise MissingDependencyError("qdrant-client", extra="qdrant") from error

# Local mode raises ValueError, REST ApiException, gRPC RpcError; OSError and sqlite3.Error
# are a folder that cannot be read, RuntimeError a local client that was closed.
_STORE_ERRORS = (ApiException, ValueError, grpc.RpcError, OSError, RuntimeError, sqlite3.Error)


class QdrantSource:
    """Nearest neighbours from a Qdrant collection, vectors and payload in one trip.

    Safe for as many threads as the client is.

    Args:
        client: A `QdrantClient` of any kind, or an `AsyncQdrantClient` for `afetch`.
        collection: Name of the collection.
        vector_name: Which of the collection's named vectors to search; "" for the
            unnamed one.
        text_key: Payload key of the chunk's text.
        embedder_name: Model behind the vectors; queries made by another are refused.
    """

    def __init__(
        self,
        client: QdrantClient | AsyncQdrantClient,
        collection: str,
        *,
        vector_name: str = "",
        text_key: str = "text",
        embedder_name: str | None = None,
    ) -> None:
        self._client = client
        self._collection = collection
        self._vector_name = vector_name
        self._text_key = text_key
        self.embedder_name = embedder_name

    def fetch(
        self,
        query: Query,
        n_candidates: int,
        *,
        filter: models.Filter | None = None,
    ) -> CandidatePool:
        """Return the collection's nearest documents, nearest first by its own metric.

        `similarities` are cosines, whatever the metric.

        Args:
            query: What to look for.
            n_candidates: How many at most, >= 1.
            filter: A Qdrant filter over the payload.

        Raises:
            CandidateSourceError: If Qdrant cannot be reached, has no such collection or
                vector, or a point lacks its vector or text.
            InvalidInputError: If query and collection do not fit together.
        """
        if isinstance(self._client, AsyncQdrantClient):
            raise InvalidInputError("an AsyncQdrantClient serves `afetch` only; await that")
        request = self._request(query, n_candidates, filter)
        try:
            response = self._client.query_points(**request)
        except _STORE_ERRORS as error:
            raise self._failure(query, error) from error
        return self._pool(query, response.points, is_filtered=filter is not None)

    async def afetch(
        self,
        query: Query,
        n_candidates: int,
        *,
        filter: models.Filter | None = None,
    ) -> CandidatePool:
        """Return what `fetch` returns: natively with an `AsyncQdrantClient`, else in a thread."""
        if not isinstance(self._client, AsyncQdrantClient):
            return await asyncio.to_thread(self.fetch, query, n_candidates, filter=filter)
        request = self._request(query, n_candidates, filter)
        try:
            response = await self._client.query_points(**request)
        except _STORE_ERRORS as error:
            raise self._failure(query, error) from error
        return self._pool(query, response.points, is_filtered=filter is not None)

    def _request(
        self, query: Query, n_candidates: int, condition: models.Filter | None
    ) -> dict[str, Any]:
        if not isinstance(condition, models.Filter | None):
            raise InvalidInputError(
                f"`filter` must be a qdrant_client.models.Filter, got "
                f"{type(condition).__name__}; each kind of store has its own kind of filter"
            )
        # Only the store knows its dimension, and it says so itself when they differ.
        n_candidates = check_fetch_arguments(
            query,
            n_candidates,
            dimension=len(query.embedding),
            embedder_name=self.embedder_name,
        )
        return {
            "collection_name": self._collection,
            "query": query.embedding.astype(np.float32).tolist(),
            "using": self._vector_name or None,
            "query_filter": condition,
            "limit": n_candidates,
            "with_payload": True,
            "with_vectors": [self._vector_name] if self._vector_name else True,
        }

    def _failure(self, query: Query, error: Exception) -> CandidateSourceError:
        return CandidateSourceError(
            f"Qdrant could not search collection {self._collection!r} with a vector of "
            f"{len(query.embedding)} numbers (vector name {self._vector_name!r}): {error}; "
            f"is the server up, and are collection, vector name and dimension right?"
        )

    def _pool(
        self, query: Query, points: list[models.ScoredPoint], *, is_filtered: bool
    ) -> CandidatePool:
        if not points and not is_filtered:
            raise InvalidInputError(
                f"there are no documents to fetch from in {self._collection!r} (vector name "
                f"{self._vector_name!r}); add some first"
            )
        d = len(query.embedding)
        vectors = [self._vector(point, d) for point in points]
        embeddings = np.array(vectors, dtype=np.float32).reshape(len(points), d)
        payloads = [dict(point.payload or {}) for point in points]
        texts = [
            self._text(point, payload) for point, payload in zip(points, payloads, strict=True)
        ]
        return CandidatePool(
            document_ids=[str(point.id) for point in points],
            texts=texts,
            embeddings=embeddings,
            similarities=cosine_similarities(query.embedding, embeddings),
            metadata=payloads,
        )

    def _vector(self, point: models.ScoredPoint, d: int) -> FloatArray:
        """Return a point's dense vector (d,); unnamed ones come as a list, named in a dict."""
        vector: Any = point.vector
        if isinstance(vector, dict):
            if self._vector_name not in vector:
                raise CandidateSourceError(
                    f"point {point.id} of {self._collection!r} has the vectors "
                    f"{sorted(vector)}; pass one of them as `vector_name`"
                )
            vector = vector[self._vector_name]
        values = np.asarray(vector, dtype=np.float32)
        if values.shape != (d,):
            raise CandidateSourceError(
                f"point {point.id} of {self._collection!r} must have one dense vector of {d} "
                f"numbers, got shape {values.shape}; choose another `vector_name`"
            )
        return values

    def _text(self, point: models.ScoredPoint, payload: dict[str, Any]) -> str:
        """Return a payload's text and take it out, so that metadata holds the rest."""
        text = payload.pop(self._text_key, None)
        if not isinstance(text, str):
            raise CandidateSourceError(
                f"point {point.id} of {self._collection!r} has no text under "
                f"{self._text_key!r}, only {sorted(payload)}; pass the right `text_key`"
            )
        return text
