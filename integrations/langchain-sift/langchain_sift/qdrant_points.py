"""Candidates with their vectors from a `langchain_qdrant.QdrantVectorStore`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from langchain_core.documents import Document
from langchain_core.runnables import run_in_executor

from langchain_sift.candidates import (
    Candidates,
    Search,
    refuse_filter,
    refuse_options,
    store_failures,
)
from sift_core import CandidateSourceError


def read_qdrant(store: Any, search: Search) -> Candidates:
    """Return the collection's nearest points with their dense vectors, in one request.

    The collection is searched as the store itself would: by dense vectors, or in hybrid
    mode by dense and sparse ones fused, whose fused scores are the candidates' relevance.

    Args:
        store: A `QdrantVectorStore` in dense or hybrid mode.
        search: What to look for; `filter` is a Qdrant filter, `options` are further
            arguments of `query_points`, and `hybrid_fusion`.

    Raises:
        CandidateSourceError: If Qdrant fails, or a point lacks its dense vector.
        InvalidInputError: If the filter is of another kind, or an option is set that is
            set here already.
    """
    request = _request(store, search)
    with _failures(store, search):
        points = store.client.query_points(**request).points
    return _candidates(store, search, points)


async def aread_qdrant(store: Any, client: Any, search: Search) -> Candidates:
    """Return what `read_qdrant` returns, by an `AsyncQdrantClient` of the same server."""
    request = await run_in_executor(None, _request, store, search)  # a sparse model has no async
    with _failures(store, search):
        points = (await client.query_points(**request)).points
    return await run_in_executor(None, _candidates, store, search, points)


def dense_vector(store: Any, point: Any) -> Any:
    """Return a point's dense vector, a list of numbers; None where it has no single one."""
    vector = point.vector
    if isinstance(vector, dict):  # one alone comes as a list, several in a dict
        vector = vector.get(store.vector_name)
    is_single = bool(vector) and not isinstance(vector[0], list)  # else a multivector
    return vector if is_single else None


def with_vectors(store: Any) -> Any:
    """Return what to pass to a client so that points come with their dense vector."""
    return [store.vector_name] if store.vector_name else True


def _request(store: Any, search: Search) -> dict[str, Any]:
    """Return the arguments of `query_points`."""
    from qdrant_client import models  # optional, and loaded already by the store

    if not (search.filter is None or isinstance(search.filter, models.Filter)):
        refuse_filter(store, search.filter, "a qdrant_client.models.Filter")
    options = dict(search.options)
    fusion = options.pop("hybrid_fusion", None)
    request = {
        "collection_name": store.collection_name,
        "query_filter": search.filter,
        "limit": search.n_candidates,
        "with_payload": True,
        "with_vectors": with_vectors(store),
        **_question(store, search, fusion or models.FusionQuery(fusion=models.Fusion.RRF)),
    }
    refuse_options(store, request.keys() & options.keys())
    return request | options


def _question(store: Any, search: Search, fusion: Any) -> dict[str, Any]:
    """Return the part of a request that says what to be near to, as the store builds it."""
    dense = search.query.vector.tolist()
    if not _is_hybrid(store):
        return {"query": dense, "using": store.vector_name}

    from qdrant_client import models

    sparse = store.sparse_embeddings.embed_query(search.query.text)
    params = search.options.get("search_params")
    shared = {"filter": search.filter, "limit": search.n_candidates, "params": params}
    words = models.SparseVector(indices=sparse.indices, values=sparse.values)
    return {
        "prefetch": [
            models.Prefetch(query=dense, using=store.vector_name, **shared),
            models.Prefetch(query=words, using=store.sparse_vector_name, **shared),
        ],
        "query": fusion,
    }


def _candidates(store: Any, search: Search, points: Sequence[Any]) -> Candidates:
    embeddings = [_dense_vector_of(store, point) for point in points]
    with _failures(store, search):
        documents = [_document(store, point) for point in points]
    scores = [point.score for point in points]
    return Candidates(
        documents=documents,
        embeddings=np.array(embeddings, dtype=np.float32),
        scores=scores,
        relevance=np.array(scores, dtype=np.float64) if _is_hybrid(store) else None,
    )


def _dense_vector_of(store: Any, point: Any) -> Any:
    vector = dense_vector(store, point)
    if vector is None:
        raise CandidateSourceError(
            f"point {point.id} of Qdrant collection {store.collection_name!r} has no single "
            f"dense vector named {store.vector_name!r}; add one, or filter such points out"
        )
    return vector


def _document(store: Any, point: Any) -> Document:
    """Return the point as the store would, with the id that the store leaves out."""
    document: Document = store._document_from_point(  # there is no public conversion
        point, store.collection_name, store.content_payload_key, store.metadata_payload_key
    )
    document.id = str(point.id)
    return document


def _is_hybrid(store: Any) -> bool:
    return bool(store.retrieval_mode.value == "hybrid")


def _failures(store: Any, search: Search) -> AbstractContextManager[None]:
    return store_failures(
        store,
        f"collection {store.collection_name!r} (vector name {store.vector_name!r}, query of "
        f"{len(search.query.vector)} numbers)",
        "is the server up, and are collection, vector name, dimension and filter right?",
    )
