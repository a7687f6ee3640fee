"""The vectors that a selection among retrieved nodes needs: the query's and the nodes'.

A node's vector comes from the first of: the vector store, the node itself, the embedding
model. Nothing that arrives is changed. A store that does not have a node leaves it to the others;
one that fails raises.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from llama_index.core import Settings, VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle
from llama_index.core.vector_stores import SimpleVectorStore

from llama_index.postprocessor.sift.tracking import (
    Model,
    Vector,
    VectorSource,
    aquery_embedding,
    query_embedding,
    sources_of,
)
from sift_core import InvalidInputError

Matrix: TypeAlias = npt.NDArray[np.floating[Any]]
StoreKind: TypeAlias = Literal["simple", "faiss", "faiss map", "qdrant", "other"]

# One vector a node, None where it is not known; a matrix where all are.
Known: TypeAlias = Matrix | Sequence[Any]

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, eq=False)
class Vectors:
    """A query's vector, shape (d,), and those of n nodes in their order, shape (n, d)."""

    query: Vector
    nodes: Matrix


@dataclass(frozen=True, kw_only=True, eq=False)
class VectorLookup:
    """Finds vectors for nodes that LlamaIndex has retrieved.

    Args:
        index: Where the vectors are, if not in the indexes that were just searched.
        embed_model: Embeds what has no vector, if not the index's own model.
    """

    index: VectorStoreIndex | None = None
    embed_model: BaseEmbedding | None = None

    def vectors(self, query: QueryBundle, nodes: Sequence[NodeWithScore]) -> Vectors:
        """Return the vectors of a query and of at least one node.

        Raises:
            CandidateSourceError: If a vector store fails.
            InvalidInputError: If the query is empty, vectors are not fit or differ in length,
                or something must be embedded and there is no model.
        """
        sources = self._sources(nodes)
        target = query_embedding(query, lambda: self._model_of_query(sources))
        return Vectors(
            query=target, nodes=node_embeddings(nodes, sources, lambda: self._model(sources))
        )

    async def avectors(self, query: QueryBundle, nodes: Sequence[NodeWithScore]) -> Vectors:
        """Return what `vectors` does, awaiting stores and models."""
        sources = self._sources(nodes)
        target = await aquery_embedding(query, lambda: self._model_of_query(sources))
        embeddings = await anode_embeddings(
            nodes, sources, lambda: self._model(sources), dimension=len(target)
        )
        return Vectors(query=target, nodes=embeddings)

    def _sources(self, nodes: Sequence[NodeWithScore]) -> list[VectorSource]:
        if self.index is not None:
            return [VectorSource.of_index(self.index)]
        return sources_of([node.node.node_id for node in nodes])

    def _model(self, sources: Sequence[VectorSource]) -> BaseEmbedding:
        """Return what embeds nodes without a vector."""
        if self.embed_model is not None:
            return self.embed_model
        return sources[0].embed_model if sources else _default_model()

    def _model_of_query(self, sources: Sequence[VectorSource]) -> BaseEmbedding:
        """Return the model of the vectors that the query is compared with."""
        stored = [each for each in sources if store_kind(each.index.vector_store) != "other"]
        if stored and self.index is None:
            return stored[0].embed_model
        return self._model(sources)


def _default_model() -> BaseEmbedding:
    try:
        return Settings.embed_model
    except (ImportError, ValueError) as error:  # unset: OpenAI's, without its package or a key
        raise InvalidInputError(
            f"there is no model to embed what has no vector: {error}; pass `embed_model`, or the "
            f"`index` that holds the vectors, or set Settings.embed_model"
        ) from error


def node_embeddings(
    nodes: Sequence[NodeWithScore],
    sources: Sequence[VectorSource],
    model: Model,
    *,
    known: Known | None = None,
) -> Matrix:
    """Return one vector a node, shape (n, d), rows in the order of `nodes`.

    Args:
        nodes: At least one.
        sources: Where to look vectors up, in this order.
        model: Asked for where a vector is neither there nor on the node.
        known: Vectors that are at hand, None for others; they win.

    Raises:
        CandidateSourceError: If a vector store fails.
        InvalidInputError: If the vectors differ in length.
    """
    rows = _Rows(nodes, known)
    for source in sources:
        if ids := rows.missing_ids():
            rows.fill(stored_vectors(source.index, ids))
    if texts := rows.texts_to_embed():
        rows.fill(model().get_text_embedding_batch(texts))
    return rows.matrix()


async def anode_embeddings(
    nodes: Sequence[NodeWithScore],
    sources: Sequence[VectorSource],
    model: Model,
    *,
    dimension: int,
    known: Known | None = None,
) -> Matrix:
    """Return what `node_embeddings` does, awaiting the store and the model.

    `dimension` is that of the query's vector.
    """
    rows = _Rows(nodes, known)
    for source in sources:
        if ids := rows.missing_ids():
            rows.fill(await astored_vectors(source.index, ids, dimension=dimension))
    if texts := rows.texts_to_embed():
        rows.fill(await model().aget_text_embedding_batch(texts))
    return rows.matrix()


class _Rows:
    """One vector a node, as they are found."""

    def __init__(self, nodes: Sequence[NodeWithScore], known: Known | None) -> None:
        self._nodes = nodes
        self._rows: Known = [None] * len(nodes) if known is None else known

    def _missing(self) -> list[int]:
        if isinstance(self._rows, np.ndarray):
            return []
        return [i for i, row in enumerate(self._rows) if row is None]

    def missing_ids(self) -> list[str]:
        """Return the ids of the nodes without a vector."""
        return [self._nodes[i].node.node_id for i in self._missing()]

    def fill(self, found: Known) -> None:
        """Take what was found for the missing ones, None for others."""
        missing = self._missing()
        if len(missing) == len(self._rows):
            self._rows = found
            return
        rows = list(self._rows)
        for i, row in zip(missing, found, strict=True):
            rows[i] = row
        self._rows = rows

    def texts_to_embed(self) -> list[str]:
        """Return the texts without a vector, on their node either, as an index embeds them.

        Logs how many there are.
        """
        if missing := self._missing():
            self.fill([self._nodes[i].node.embedding for i in missing])
        missing = self._missing()
        if missing:
            _logger.warning(
                "embedding %d of %d nodes again: their vectors are neither on the nodes nor in a "
                "vector store that was found and can be read (Qdrant, Faiss, SimpleVectorStore); "
                "a reranker or synthesizer may be told of the VectorStoreIndex that has them by "
                "index=...",
                len(missing),
                len(self._nodes),
            )
        return [self._nodes[i].node.get_content(MetadataMode.EMBED) for i in missing]

    def matrix(self) -> Matrix:
        """Return all vectors, shape (n, d).

        Raises:
            InvalidInputError: If they differ in length.
        """
        if isinstance(self._rows, np.ndarray):
            return self._rows
        shapes = {np.shape(row) for row in self._rows}
        if len(shapes) > 1:
            raise InvalidInputError(
                f"the nodes' vectors must all have one shape, got {sorted(shapes)}; "
                f"were they made by different embedding models?"
            )
        return np.array(self._rows)


def stored_vectors(index: VectorStoreIndex, node_ids: Sequence[str]) -> Known:
    """Return the stored vector of each node, None where the index's store does not have it.

    One call to the store, O(nodes asked for). FaissVectorStore knows row numbers alone: the first
    call for an index, and one after nodes were added to it, also reads all its ids, some
    10 ms for 100,000, and keeps a dictionary of them as long as the index lives. Stores of other
    kinds give nothing.

    Raises:
        CandidateSourceError: If the store fails, or lacks rows that the index says it has.
    """
    store: Any = index.vector_store
    kind = store_kind(store)
    if kind == "simple":
        return [store.data.embedding_dict.get(node_id) for node_id in node_ids]
    if kind == "faiss":
        return _faiss_vectors(store, _rows_of(index, node_ids))
    if kind == "faiss map":
        return _faiss_vectors(store, _mapped_rows(store, node_ids))
    if kind == "qdrant" and store.client is not None:  # None: made for async use alone
        from sift_core.sources.qdrant import stored_vectors as vectors_of_points

        return vectors_of_points(
            store.client, store.collection_name, node_ids, vector_name=store.dense_vector_name
        )
    return [None] * len(node_ids)


async def astored_vectors(
    index: VectorStoreIndex, node_ids: Sequence[str], *, dimension: int
) -> Known:
    """Return what `stored_vectors` does, without blocking the event loop.

    `dimension` is d of the vectors, for the pace at which Qdrant is asked.
    """
    store: Any = index.vector_store
    if store_kind(store) != "qdrant":
        return await asyncio.to_thread(stored_vectors, index, node_ids)
    from sift_core.sources.qdrant import astored_vectors as vectors_of_points

    return await vectors_of_points(
        store._aclient or store.client,  # no public accessor
        store.collection_name,
        node_ids,
        vector_name=store.dense_vector_name,
        dimension=dimension,
    )


def store_kind(store: object) -> StoreKind:
    """Return which of the stores that give vectors back this is, or "other"."""
    if isinstance(store, SimpleVectorStore):
        return "simple"
    if _is_a(store, "llama_index.vector_stores.faiss", "FaissMapVectorStore"):
        return "faiss map"
    if _is_a(store, "llama_index.vector_stores.faiss", "FaissVectorStore"):
        return "faiss"
    if _is_a(store, "llama_index.vector_stores.qdrant", "QdrantVectorStore"):
        return "qdrant"
    return "other"


def _is_a(store: object, module: str, name: str) -> bool:
    """Return whether `store` is of a class whose package need not be installed."""
    store_class = getattr(sys.modules.get(module), name, None)  # loaded, if it has objects
    return store_class is not None and isinstance(store, store_class)


def _faiss_vectors(store: Any, rows: Sequence[int | None]) -> Known:
    from sift_core.sources.faiss import stored_vectors as vectors_of_rows

    found: Matrix = vectors_of_rows(store.client, [row for row in rows if row is not None])
    if len(found) == len(rows):
        return found
    each = iter(found)
    return [None if row is None else next(each) for row in rows]


# The rows of a FaissVectorStore by node id, and how many there were. Rows are never removed.
_rows_by_index: weakref.WeakKeyDictionary[VectorStoreIndex, tuple[int, dict[str, str]]]
_rows_by_index = weakref.WeakKeyDictionary()


def _rows_of(index: VectorStoreIndex, node_ids: Sequence[str]) -> list[int | None]:
    """Return the rows that mean these nodes according to the index itself."""
    nodes_dict: dict[str, str] = index.index_struct.nodes_dict
    n_rows, by_node_id = _rows_by_index.get(index, (None, {}))
    if n_rows != len(nodes_dict):
        copied = nodes_dict.copy()  # another thread may be adding nodes
        by_node_id = {node_id: row for row, node_id in copied.items()}
        _rows_by_index[index] = len(copied), by_node_id
    rows = map(by_node_id.get, node_ids)
    return [
        int(row) if row is not None and nodes_dict.get(row) == node_id else None
        for row, node_id in zip(rows, node_ids, strict=True)
    ]


def _mapped_rows(store: Any, node_ids: Sequence[str]) -> list[int | None]:
    """Return the Faiss ids that still mean their node.

    FaissMapVectorStore may give a deleted vector's successor an id that is in use
    (seen in 0.7.0); the way back then leads to another node.
    """
    forward, back = store._node_id_to_faiss_id_map, store._faiss_id_to_node_id_map
    rows = (forward.get(node_id) for node_id in node_ids)
    return [row if back.get(row) == i else None for row, i in zip(rows, node_ids, strict=True)]
