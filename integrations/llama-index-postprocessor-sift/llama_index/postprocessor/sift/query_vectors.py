"""The vector of a query, from what was embedded already or from a model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import QueryBundle

from llama_index.postprocessor.sift.cosines import checked_query
from llama_index.postprocessor.sift.embeddings import Model
from llama_index.postprocessor.sift.retrievals import is_same_model, latest_retrieval
from llama_index.postprocessor.sift.stored_vectors import Vector
from sift_core import InvalidInputError


def query_embedding(query: QueryBundle, model: Model) -> Vector:
    """Return the query's vector, shape (d,), embedding the query if that was not done yet.

    It was done if the query has a vector, or if the retrieval before embedded the same text
    with the same model: on the async path LlamaIndex keeps that vector to itself. A vector
    that the retrieval before made with another model is not used.

    Args:
        query: With a vector or a text.
        model: The one that the nodes' vectors are of; asked for only where it matters.

    Raises:
        InvalidInputError: If the query is empty, or its vector all zero or not finite.
    """
    known = _known_embedding(query, model)
    if known is None:
        known = model().get_agg_embedding_from_queries(query.embedding_strs)
    return checked_query(np.asarray(known, dtype=np.float64))


async def aquery_embedding(query: QueryBundle, model: Model) -> Vector:
    """Return what `query_embedding` does, awaiting the model."""
    known = _known_embedding(query, model)
    if known is None:
        known = await model().aget_agg_embedding_from_queries(query.embedding_strs)
    return checked_query(np.asarray(known, dtype=np.float64))


def embedded_query(texts: Sequence[str], model: BaseEmbedding) -> Vector | None:
    """Return what `model` made of a query in the latest retrieval here, shape (d,).

    None if it did not embed all of `texts` then, or does not put several vectors together by
    their mean, as LlamaIndex's models do.
    """
    retrieval = latest_retrieval()
    agreed = BaseEmbedding.get_agg_embedding_from_queries
    if retrieval is None or type(model).get_agg_embedding_from_queries is not agreed:
        return None
    vectors = []
    for text in texts:
        embedded_by, vector = retrieval.embedded.get(text, (None, None))
        if embedded_by is None or vector is None or embedded_by() is not model:
            return None
        vectors.append(vector)
    mean: Vector = np.array(vectors).mean(axis=0)
    return mean


def _known_embedding(query: QueryBundle, model: Model) -> list[float] | Vector | None:
    texts = query.embedding_strs
    if query.embedding is not None:
        made_by = _embedder_of(texts)
        is_fit = made_by is None or is_same_model(made_by, model())
        if is_fit or made_by is None or not _has_made(made_by, texts, query.embedding):
            return query.embedding
    if not texts:
        raise InvalidInputError("the query has neither an embedding nor a text to embed")
    return embedded_query(texts, model())


def _embedder_of(texts: Sequence[str]) -> BaseEmbedding | None:
    """Return the model that embedded a query in the latest retrieval here, if any did."""
    retrieval = latest_retrieval()
    if retrieval is None or not texts or texts[0] not in retrieval.embedded:
        return None
    return retrieval.embedded[texts[0]][0]()


def _has_made(model: BaseEmbedding, texts: Sequence[str], embedding: Sequence[float]) -> bool:
    """Return whether `embedding`, shape (d,), is what the model made of a query just now."""
    vector = embedded_query(texts, model)
    return vector is not None and np.array_equal(vector, embedding)
