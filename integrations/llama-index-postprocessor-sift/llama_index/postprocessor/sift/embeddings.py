"""The vectors of nodes.

Every node's vector comes from the first of: the vector store, the node itself, the
embedding model. Nothing that arrives is changed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeGuard

import numpy as np
import numpy.typing as npt
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import MetadataMode, NodeWithScore

from llama_index.postprocessor.sift.matrix_rows import MatrixRows
from llama_index.postprocessor.sift.retrievals import VectorSource
from llama_index.postprocessor.sift.stored_vectors import Vector, astored_vectors, stored_vectors
from sift_core import InvalidInputError

Model: TypeAlias = Callable[[], BaseEmbedding]  # asked only where something must be embedded
Matrix: TypeAlias = npt.NDArray[np.floating[Any]]

_logger = logging.getLogger(__name__)


def node_embeddings(
    nodes: Sequence[NodeWithScore],
    sources: Sequence[VectorSource],
    model: Model,
    *,
    known: Mapping[str, Vector] | None = None,
) -> Matrix:
    """Return one vector a node, shape (n, d), rows in the order of `nodes`.

    Args:
        nodes: At least one.
        sources: Where to look vectors up, in this order.
        model: Asked for where a vector is neither there nor on the node.
        known: Vectors by node id that are at hand; they win.

    Raises:
        CandidateSourceError: If a vector store fails.
        InvalidInputError: If the vectors differ in length.
    """
    wanted = {node.node.node_id: node for node in nodes}
    found = dict(known or {})
    for source in sources:
        if missing := _missing(wanted, found):
            stored = stored_vectors(source.index, missing)
            if _is_all(stored, wanted, len(nodes)):
                return stored.matrix
            found.update(stored)
    found |= _carried(wanted, _missing(wanted, found))
    if missing := _missing(wanted, found):
        texts = _announced_texts(wanted, missing)
        found |= _paired(missing, model().get_text_embedding_batch(texts))
    return _as_matrix(nodes, found)


async def anode_embeddings(
    nodes: Sequence[NodeWithScore],
    sources: Sequence[VectorSource],
    model: Model,
    *,
    dimension: int,
    known: Mapping[str, Vector] | None = None,
) -> Matrix:
    """Return what `node_embeddings` does, awaiting the store and the model.

    `dimension` is that of the query's vector.
    """
    wanted = {node.node.node_id: node for node in nodes}
    found = dict(known or {})
    for source in sources:
        if missing := _missing(wanted, found):
            stored = await astored_vectors(source.index, missing, dimension=dimension)
            if _is_all(stored, wanted, len(nodes)):
                return stored.matrix
            found.update(stored)
    found |= _carried(wanted, _missing(wanted, found))
    if missing := _missing(wanted, found):
        texts = _announced_texts(wanted, missing)
        found |= _paired(missing, await model().aget_text_embedding_batch(texts))
    return _as_matrix(nodes, found)


def _is_all(
    stored: Mapping[str, Vector], wanted: Mapping[str, NodeWithScore], n_nodes: int
) -> TypeGuard[MatrixRows]:
    """Return whether these are the vectors of all nodes in their order, in one matrix."""
    if not isinstance(stored, MatrixRows) or len(stored) != n_nodes:  # or a node came twice
        return False
    return stored.ids == list(wanted)


def _missing(wanted: Mapping[str, NodeWithScore], found: Mapping[str, Vector]) -> list[str]:
    """Return the ids of the nodes without a vector, in order of arrival."""
    return [node_id for node_id in wanted if node_id not in found]


def _carried(wanted: Mapping[str, NodeWithScore], missing: Sequence[str]) -> dict[str, Vector]:
    """Return the vectors that nodes bring along."""
    carried = {node_id: wanted[node_id].node.embedding for node_id in missing}
    return {
        node_id: np.asarray(embedding, dtype=np.float64)
        for node_id, embedding in carried.items()
        if embedding is not None
    }


def _announced_texts(wanted: Mapping[str, NodeWithScore], missing: Sequence[str]) -> list[str]:
    """Return the texts to embed, as an index would embed them, after logging how many."""
    _logger.warning(
        "embedding %d of %d nodes again: their vectors are neither on the nodes nor in a vector "
        "store that was found and can be read (Qdrant, Faiss, SimpleVectorStore); a "
        "reranker or synthesizer may be told of the VectorStoreIndex that has them by index=...",
        len(missing),
        len(wanted),
    )
    return [wanted[i].node.get_content(metadata_mode=MetadataMode.EMBED) for i in missing]


def _paired(missing: Sequence[str], embeddings: Sequence[Sequence[float]]) -> dict[str, Vector]:
    return {
        node_id: np.asarray(embedding, dtype=np.float64)
        for node_id, embedding in zip(missing, embeddings, strict=True)
    }


def _as_matrix(nodes: Sequence[NodeWithScore], found: Mapping[str, Vector]) -> Matrix:
    rows = [found[node.node.node_id] for node in nodes]
    shapes = {row.shape for row in rows}
    if len(shapes) > 1:
        raise InvalidInputError(
            f"the nodes' vectors must all have one shape, got {sorted(shapes)}; "
            f"were they made by different embedding models?"
        )
    return np.array(rows)
