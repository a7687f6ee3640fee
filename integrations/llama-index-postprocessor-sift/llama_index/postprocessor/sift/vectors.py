"""The vectors that a selection among retrieved nodes needs: the query's and the nodes'.

A node's vector comes from the first of: the vector store, the node itself, the embedding
model. Nothing that arrives is changed. A store that does not have a node leaves it to the others;
one that fails raises.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from llama_index.core import Settings, VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle
from llama_index.core.vector_stores import SimpleVectorStore

from llama_index.postprocessor.sift.faiss_store import Vector, faiss_vectors
from llama_index.postprocessor.sift.tracking import (
    VectorSource,
    is_same_model,
    latest_retrieval,
    sources_of,
)
from sift_core import CandidateSourceError, InvalidInputError, SiftError

Matrix: TypeAlias = npt.NDArray[np.floating[Any]]
Model: TypeAlias = Callable[[], BaseEmbedding]  # asked only where something must be embedded
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
    return _checked_query(known)


async def aquery_embedding(query: QueryBundle, model: Model) -> Vector:
    """Return what `query_embedding` does, awaiting the model."""
    known = _known_embedding(query, model)
    if known is None:
        known = await model().aget_agg_embedding_from_queries(query.embedding_strs)
    return _checked_query(known)


def _known_embedding(query: QueryBundle, model: Model) -> Sequence[float] | Vector | None:
    texts = query.embedding_strs
    if query.embedding is not None:
        retrieval = latest_retrieval()
        made_by = None if retrieval is None else retrieval.embedder_of(texts)
        if made_by is None or is_same_model(made_by, model()):
            return query.embedding
        made = embedded_query(texts, made_by)
        if made is None or not np.array_equal(made, query.embedding):
            return query.embedding
    if not texts:
        raise InvalidInputError("the query has neither an embedding nor a text to embed")
    return embedded_query(texts, model())


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


def _checked_query(embedding: Sequence[float] | Vector) -> Vector:
    vector = np.asarray(embedding, dtype=np.float64)
    if not (np.isfinite(vector).all() and vector.any()):
        raise InvalidInputError(
            "the query's embedding must be finite and must not be all zero; was an empty text "
            "embedded?"
        )
    return vector


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
    rows = [None] * len(nodes) if known is None else known
    for source in sources:
        if missing := _missing(rows):
            rows = _filled(rows, missing, stored_vectors(source.index, _ids(nodes, missing)))
    rows = _with_carried(rows, nodes)
    if missing := _missing(rows):
        texts = _announced_texts(nodes, missing)
        rows = _filled(rows, missing, model().get_text_embedding_batch(texts))
    return _as_matrix(rows)


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
    rows = [None] * len(nodes) if known is None else known
    for source in sources:
        if missing := _missing(rows):
            ids = _ids(nodes, missing)
            stored = await astored_vectors(source.index, ids, dimension=dimension)
            rows = _filled(rows, missing, stored)
    rows = _with_carried(rows, nodes)
    if missing := _missing(rows):
        texts = _announced_texts(nodes, missing)
        rows = _filled(rows, missing, await model().aget_text_embedding_batch(texts))
    return _as_matrix(rows)


def _ids(nodes: Sequence[NodeWithScore], positions: Sequence[int]) -> list[str]:
    return [nodes[i].node.node_id for i in positions]


def _missing(rows: Known) -> list[int]:
    """Return the positions without a vector."""
    if isinstance(rows, np.ndarray):
        return []
    return [i for i, row in enumerate(rows) if row is None]


def _filled(rows: Known, missing: Sequence[int], found: Known) -> Known:
    """Return the rows with what was found for the missing ones."""
    if len(missing) == len(rows):
        return found
    filled = list(rows)
    for i, row in zip(missing, found, strict=True):
        filled[i] = row
    return filled


def _with_carried(rows: Known, nodes: Sequence[NodeWithScore]) -> Known:
    """Return the rows with the vectors that nodes bring along."""
    missing = _missing(rows)
    return _filled(rows, missing, [nodes[i].node.embedding for i in missing]) if missing else rows


def _announced_texts(nodes: Sequence[NodeWithScore], missing: Sequence[int]) -> list[str]:
    """Return the texts to embed, as an index would embed them, after logging how many."""
    _logger.warning(
        "embedding %d of %d nodes again: their vectors are neither on the nodes nor in a vector "
        "store that was found and can be read (Qdrant, Faiss, SimpleVectorStore); a "
        "reranker or synthesizer may be told of the VectorStoreIndex that has them by index=...",
        len(missing),
        len(nodes),
    )
    return [nodes[i].node.get_content(metadata_mode=MetadataMode.EMBED) for i in missing]


def _as_matrix(rows: Known) -> Matrix:
    if isinstance(rows, np.ndarray):
        return rows
    arrays = [np.asarray(row) for row in rows]
    shapes = {array.shape for array in arrays}
    if len(shapes) > 1:
        raise InvalidInputError(
            f"the nodes' vectors must all have one shape, got {sorted(shapes)}; "
            f"were they made by different embedding models?"
        )
    return np.array(arrays)


def stored_vectors(index: VectorStoreIndex, node_ids: Sequence[str]) -> Known:
    """Return the stored vector of each node, None where the index's store does not have it.

    One call to the store, O(nodes asked for); see `faiss_vectors` for Faiss, which must read
    all ids of an index once. Stores of other kinds give nothing.

    Raises:
        CandidateSourceError: If the store fails.
    """
    store: Any = index.vector_store
    kind = store_kind(store)
    with failures_of(store, f"return the vectors of {len(node_ids)} nodes"):
        if kind == "simple":
            return [store.data.embedding_dict.get(node_id) for node_id in node_ids]
        if kind == "faiss" or kind == "faiss map":
            return faiss_vectors(index, node_ids, is_map=kind == "faiss map")
        if kind == "qdrant" and store.client is not None:  # None: made for async use alone
            from sift_core.sources.qdrant import stored_vectors as vectors_of_points

            return vectors_of_points(
                store.client,
                store.collection_name,
                node_ids,
                vector_name=store.dense_vector_name,
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

    with failures_of(store, f"return the vectors of {len(node_ids)} nodes"):
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


@contextmanager
def failures_of(store: object, task: str) -> Iterator[None]:
    """Turn whatever a store raises into a `CandidateSourceError` that says what it failed at."""
    try:
        yield
    except SiftError:
        raise
    except Exception as error:  # each store has exceptions of its own; none is swallowed
        collection = getattr(store, "collection_name", "")
        reason = str(error) or type(error).__name__
        raise CandidateSourceError(
            f"{type(store).__name__} {collection!r} could not {task}: {reason}; is it up, and "
            f"does it still hold what was retrieved?"
        ) from error
