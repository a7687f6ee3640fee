"""Candidates with their vectors from a `langchain_qdrant.QdrantVectorStore`."""

from __future__ import annotations

from typing import Any

import numpy as np
from langchain_core.documents import Document

from langchain_sift.candidates import Candidates, Search, refuse_options, store_failures
from sift_core import CandidateSourceError


def read_qdrant(store: Any, search: Search) -> Candidates:
    """Return the collection's nearest points with their dense vectors, in one request.

    The collection is searched as the store itself would: by dense vectors, or in hybrid
    mode by dense and sparse ones fused.

    Args:
        store: A `QdrantVectorStore` in dense or hybrid mode.
        search: What to look for; `filter` is a Qdrant filter, `options` are further
            arguments of `query_points`, and `hybrid_fusion`.

    Raises:
        CandidateSourceError: If Qdrant fails, or a point lacks its dense vector.
        InvalidInputError: If an option is set that the retriever sets itself.
    """
    options = dict(search.options)
    fusion = options.pop("hybrid_fusion", None)
    request = {
        "collection_name": store.collection_name,
        "query_filter": search.filter,
        "limit": search.n_candidates,
        "with_payload": True,
        "with_vectors": [store.vector_name] if store.vector_name else True,
        **_question(store, search, fusion),
    }
    refuse_options(store, request.keys() & options.keys())
    with store_failures(
        store,
        f"collection {store.collection_name!r} (vector name {store.vector_name!r}, query of "
        f"{len(search.query.embedding)} numbers)",
        "is the server up, and are collection, vector name, dimension and filter right?",
    ):
        points = store.client.query_points(**request, **options).points
    embeddings = [_dense_vector(store, point) for point in points]
    return Candidates(
        documents=[_document(store, point) for point in points],
        embeddings=np.array(embeddings, dtype=np.float32),
    )


def _question(store: Any, search: Search, fusion: Any) -> dict[str, Any]:
    """Return the part of a request that says what to be near to, as the store builds it."""
    dense = search.query.embedding.tolist()
    if store.retrieval_mode.value == "dense":
        return {"query": dense, "using": store.vector_name}

    from qdrant_client import models  # optional, and loaded already by the store

    sparse = store.sparse_embeddings.embed_query(search.query.text)
    shared = {
        "filter": search.filter,
        "limit": search.n_candidates,
        "params": search.options.get("search_params"),
    }
    return {
        "prefetch": [
            models.Prefetch(query=dense, using=store.vector_name, **shared),
            models.Prefetch(
                query=models.SparseVector(indices=sparse.indices, values=sparse.values),
                using=store.sparse_vector_name,
                **shared,
            ),
        ],
        "query": fusion or models.FusionQuery(fusion=models.Fusion.RRF),
    }


def _dense_vector(store: Any, point: Any) -> list[float]:
    """Return a point's dense vector; one alone comes as a list, several in a dict."""
    vector = point.vector
    if isinstance(vector, dict):
        vector = vector.get(store.vector_name)
    if not vector or isinstance(vector[0], list):  # a list of lists is a multivector
        raise CandidateSourceError(
            f"point {point.id} of Qdrant collection {store.collection_name!r} has no single "
            f"dense vector named {store.vector_name!r}; add one, or filter such points out"
        )
    return list(vector)


def _document(store: Any, point: Any) -> Document:
    """Return the point as the store would, with the id that the store leaves out."""
    document: Document = store._document_from_point(  # there is no public conversion
        point, store.collection_name, store.content_payload_key, store.metadata_payload_key
    )
    document.id = str(point.id)
    return document
