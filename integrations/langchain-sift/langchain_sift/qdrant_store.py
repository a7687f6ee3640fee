"""A `langchain_qdrant.QdrantVectorStore`, with dense vectors alone or with sparse ones."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
from langchain_core.documents import Document
from qdrant_client import models

from langchain_sift.documents import as_pool
from langchain_sift.stores import Options, StoreReader
from langchain_sift.vectors import Vectors
from sift_core import CandidatePool, InvalidInputError, Query
from sift_core.pacing import paced
from sift_core.sources.qdrant import (
    astored_vectors,
    dense_vectors,
    stored_vectors,
    vectors_wanted,
    warn_of_missing_keys,
)


class QdrantReader(StoreReader):
    """Searches a collection as the store itself would, and takes the vectors along.

    In hybrid mode dense and sparse vectors are searched and fused, and the fused scores are
    the candidates' relevance. A filter is a `qdrant_client.models.Filter`; options are those of
    `query_points`, and `hybrid_fusion`. Without an `async_client` of the same server an awaited
    search is done in a thread.
    """

    advice = (
        "are collection, vector name, dimension and filter right, and if it is a server, is it up?"
    )

    def __init__(self, store: Any, async_client: Any = None) -> None:
        super().__init__(store)
        self._async_client = async_client
        self._is_hybrid = store.retrieval_mode.value == "hybrid"

    @property
    def _place(self) -> str:
        store = self._store
        return f"collection {store.collection_name!r} (vector name {store.vector_name!r})"

    def fetch(self, query: Query, n: int, filter: Any, options: Options) -> CandidatePool:
        """Return the collection's nearest points, in one request."""
        request = self._request(query, n, filter, options)
        with self.failures(query):
            points = self._store.client.query_points(**request).points
        return self._pool(query, points, filter)

    async def afetch(self, query: Query, n: int, filter: Any, options: Options) -> CandidatePool:
        """Return what `fetch` returns, at a pace (`sift_core.pacing`)."""
        asked = query, n, filter, options
        async with paced(n, len(query.vector)):
            if self._async_client is None:
                return await asyncio.to_thread(self.fetch, *asked)
            request = await asyncio.to_thread(self._request, *asked)  # may embed words
            with self.failures(query):
                points = (await self._async_client.query_points(**request)).points
        return await asyncio.to_thread(self._pool, query, points, filter)

    def vectors(self, documents: Sequence[Document]) -> Vectors:
        """Return the vectors of documents, looked up by point id."""
        return stored_vectors(self._store.client, **self._lookup(documents))

    async def avectors(self, documents: Sequence[Document]) -> Vectors:
        """Return what `vectors` returns, at a pace."""
        return await astored_vectors(self._store.client, **self._lookup(documents))

    def _lookup(self, documents: Sequence[Document]) -> dict[str, Any]:
        name = self._store.collection_name
        return {
            "collection_name": name,
            "point_ids": [
                each.metadata.get("_id", each.id)
                if each.metadata.get("_collection_name", name) == name
                else None
                for each in documents
            ],
            "vector_name": self._store.vector_name,
            "texts": [each.page_content for each in documents],
            "text_key": self._store.content_payload_key,
        }

    def _request(self, query: Query, n: int, filter: Any, options: Options) -> dict[str, Any]:
        """Return the arguments of `query_points`; a hybrid search fuses what two others find."""
        store, dense = self._store, query.vector.tolist()
        if not isinstance(filter, models.Filter | None):
            raise InvalidInputError(
                f"`filter` must be a qdrant_client.models.Filter for a QdrantVectorStore, got "
                f"{type(filter).__name__}; its keys are like 'metadata.topic'"
            )
        own = {name: value for name, value in options.items() if name != "hybrid_fusion"}
        request = {
            "collection_name": store.collection_name,
            "query_filter": filter,
            "limit": n,
            "with_payload": True,
            "with_vectors": vectors_wanted(store.vector_name),
        }
        if self._is_hybrid:
            words = store.sparse_embeddings.embed_query(query.text)
            sparse = models.SparseVector(indices=words.indices, values=words.values)
            shared: dict[str, Any] = {
                "filter": filter,
                "limit": n,
                "params": options.get("search_params"),
            }
            request["prefetch"] = [
                models.Prefetch(query=dense, using=store.vector_name, **shared),
                models.Prefetch(query=sparse, using=store.sparse_vector_name, **shared),
            ]
            fusion = models.FusionQuery(fusion=models.Fusion.RRF)
            request["query"] = options.get("hybrid_fusion") or fusion
        else:
            request |= {"query": dense, "using": store.vector_name}
        self.refuse_options(list(request.keys() & own.keys()))
        return request | own

    def _pool(self, query: Query, points: Sequence[Any], filter: Any) -> CandidatePool:
        if not points:
            warn_of_missing_keys(self._store.client, self._store.collection_name, filter)
        embeddings = dense_vectors(
            points,
            vector_name=self._store.vector_name,
            place=f"Qdrant collection {self._store.collection_name!r}",
        )
        with self.failures(query):
            documents = [self._document(point) for point in points]
        scores = [point.score for point in points]
        relevance = np.array(scores, dtype=np.float64) if self._is_hybrid else None
        return as_pool(query, documents, embeddings, scores=scores, relevance=relevance)

    def _document(self, point: Any) -> Document:
        """Return the point as the store would, with the id that the store leaves out."""
        store = self._store
        document: Document = store._document_from_point(  # there is no public conversion
            point, store.collection_name, store.content_payload_key, store.metadata_payload_key
        )
        document.id = str(point.id)
        return document
