"""The vectors that a selection needs: the query's, and one for every node.

Every node's vector comes from the first of: the vector store, the node itself, the
embedding model. Nothing that arrives is changed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle

from llama_index.postprocessor.sift.retriever_tracking import VectorSource
from llama_index.postprocessor.sift.stored_vectors import Vector, astored_vectors, stored_vectors
from sift_core import InvalidInputError

Model: TypeAlias = Callable[[], BaseEmbedding]  # asked only where something must be embedded
Matrix: TypeAlias = npt.NDArray[np.float64]

_logger = logging.getLogger(__name__)


def query_embedding(query: QueryBundle, model: Model) -> Vector:
    """Return the query's vector, shape (d,), embedding the query if it has none yet.

    Raises:
        InvalidInputError: If the query is empty.
    """
    if query.embedding is not None:
        return np.asarray(query.embedding, dtype=np.float64)
    return np.asarray(model().get_agg_embedding_from_queries(_texts_of(query)), dtype=np.float64)


async def aquery_embedding(query: QueryBundle, model: Model) -> Vector:
    """Return what `query_embedding` does, awaiting the model."""
    if query.embedding is not None:
        return np.asarray(query.embedding, dtype=np.float64)
    embedding = await model().aget_agg_embedding_from_queries(_texts_of(query))
    return np.asarray(embedding, dtype=np.float64)


def node_embeddings(
    nodes: Sequence[NodeWithScore], sources: Sequence[VectorSource], model: Model
) -> Matrix:
    """Return one vector a node, shape (n, d), rows in the order of `nodes`.

    Raises:
        CandidateSourceError: If a vector store fails.
        InvalidInputError: If the vectors differ in length.
    """
    found: dict[str, Vector] = {}
    for source in sources:
        if missing := _missing(nodes, found):
            found |= stored_vectors(source.index, list(missing))
    found |= _carried(_missing(nodes, found))
    if missing := _missing(nodes, found):
        embedded = model().get_text_embedding_batch(_announced_texts(missing, len(nodes)))
        found |= _paired(missing, embedded)
    return _as_matrix(nodes, found)


async def anode_embeddings(
    nodes: Sequence[NodeWithScore], sources: Sequence[VectorSource], model: Model
) -> Matrix:
    """Return what `node_embeddings` does, awaiting the store and the model."""
    found: dict[str, Vector] = {}
    for source in sources:
        if missing := _missing(nodes, found):
            found |= await astored_vectors(source.index, list(missing))
    found |= _carried(_missing(nodes, found))
    if missing := _missing(nodes, found):
        embedded = await model().aget_text_embedding_batch(_announced_texts(missing, len(nodes)))
        found |= _paired(missing, embedded)
    return _as_matrix(nodes, found)


def _texts_of(query: QueryBundle) -> list[str]:
    if not query.embedding_strs:
        raise InvalidInputError("the query has neither an embedding nor a text to embed")
    return query.embedding_strs


def _missing(nodes: Sequence[NodeWithScore], found: dict[str, Vector]) -> dict[str, NodeWithScore]:
    """Return the nodes without a vector by id, each once."""
    return {node.node.node_id: node for node in nodes if node.node.node_id not in found}


def _carried(nodes: dict[str, NodeWithScore]) -> dict[str, Vector]:
    """Return the vectors that nodes bring along."""
    return {
        node_id: np.asarray(node.node.embedding, dtype=np.float64)
        for node_id, node in nodes.items()
        if node.node.embedding is not None
    }


def _announced_texts(missing: dict[str, NodeWithScore], n_nodes: int) -> list[str]:
    """Return the texts to embed, as an index would embed them, after logging how many."""
    _logger.warning(
        "embedding %d of %d nodes again: their vectors are neither in a vector store that "
        "SIFTReranker found and can read (Qdrant, Faiss, SimpleVectorStore) nor on the nodes; "
        "pass the VectorStoreIndex that has them as SIFTReranker(index=...)",
        len(missing),
        n_nodes,
    )
    return [node.node.get_content(metadata_mode=MetadataMode.EMBED) for node in missing.values()]


def _paired(
    missing: dict[str, NodeWithScore], embeddings: Sequence[Sequence[float]]
) -> dict[str, Vector]:
    return {
        node_id: np.asarray(embedding, dtype=np.float64)
        for node_id, embedding in zip(missing, embeddings, strict=True)
    }


def _as_matrix(nodes: Sequence[NodeWithScore], found: dict[str, Vector]) -> Matrix:
    rows = [found[node.node.node_id] for node in nodes]
    shapes = sorted({row.shape for row in rows})
    if len(shapes) > 1:
        raise InvalidInputError(
            f"the nodes' vectors must all have one shape, got {shapes}; "
            f"were they made by different embedding models?"
        )
    return np.stack(rows)
