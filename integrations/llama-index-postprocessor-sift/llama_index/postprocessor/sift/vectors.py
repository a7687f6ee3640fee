"""The vectors that a selection among retrieved nodes needs: the query's and the nodes'.

A node's vector comes from the first of: the vector store, the caller's look-up by id, the node
itself, the embedding model. Nothing that arrives is changed. A store that does not have a node
leaves it to the others; one that fails raises.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from llama_index.core import Settings, VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle

from llama_index.postprocessor.sift.nodes import ids_of
from llama_index.postprocessor.sift.stores import Known, Matrix, VectorsById, store_of
from llama_index.postprocessor.sift.tracking import (
    Model,
    Vector,
    VectorSource,
    aquery_embedding,
    query_embedding,
    sources_of,
)
from sift_core import InvalidInputError, KeptVectors, vectors_by_id

_logger = logging.getLogger(__name__)

_kept = KeptVectors()  # of texts that had to be embedded, whichever object of ours asked for them
_told: set[str] = set()  # stores whose nodes were said to be embedded


@dataclass(frozen=True, kw_only=True, eq=False)
class Vectors:
    """A query's vector, shape (d,), and those of n nodes in their order, shape (n, d).

    Of a query with m texts apart it is shape (m, d). With the ids of the nodes, slow to read.
    """

    query: Vector
    nodes: Matrix
    node_ids: Sequence[str]


@dataclass(frozen=True, kw_only=True, eq=False)
class VectorLookup:
    """Finds vectors for nodes that LlamaIndex has retrieved.

    Args:
        index: Where the vectors are, if not in the indexes that were just searched.
        embed_model: Embeds what has no vector, if not the index's own model.
        given: Looks up vectors that no index has, as in `sift_core.vectors_by_id`.
        apart: Whether each text of a query has a vector of its own, as in `query_embedding`.
    """

    index: VectorStoreIndex | None = None
    embed_model: BaseEmbedding | None = None
    given: VectorsById | None = None
    apart: bool = False

    def vectors(self, query: QueryBundle, nodes: Sequence[NodeWithScore]) -> Vectors:
        """Return the vectors of a query and of at least one node.

        Raises:
            CandidateSourceError: If a vector store fails.
            InvalidInputError: If the query is empty, vectors are not fit or differ in length,
                or something must be embedded and there is no model.
        """
        rows = NodeVectors(nodes, self.given)
        sources = self._sources(rows.ids)
        target = query_embedding(query, lambda: self._model_of_query(sources), apart=self.apart)
        for source in sources:
            if ids := rows.missing_ids():
                rows.fill(store_of(source.index).vectors(ids))
        found = rows.embedded(lambda: self._model(sources), _stores_of(sources))
        return Vectors(query=target, nodes=found, node_ids=rows.ids)

    async def avectors(self, query: QueryBundle, nodes: Sequence[NodeWithScore]) -> Vectors:
        """Return what `vectors` does, awaiting stores and models."""
        rows = NodeVectors(nodes, self.given)
        sources = self._sources(rows.ids)
        target = await aquery_embedding(
            query, lambda: self._model_of_query(sources), apart=self.apart
        )
        for source in sources:
            if ids := rows.missing_ids():
                rows.fill(await store_of(source.index).avectors(ids, dimension=target.shape[-1]))
        found = await rows.aembedded(lambda: self._model(sources), _stores_of(sources))
        return Vectors(query=target, nodes=found, node_ids=rows.ids)

    def _sources(self, node_ids: Sequence[str]) -> list[VectorSource]:
        if self.index is not None:
            return [VectorSource.of_index(self.index)]
        return sources_of(node_ids)

    def _model(self, sources: Sequence[VectorSource]) -> BaseEmbedding:
        """Return what embeds nodes without a vector."""
        if self.embed_model is not None:
            return self.embed_model
        return sources[0].embed_model if sources else _default_model()

    def _model_of_query(self, sources: Sequence[VectorSource]) -> BaseEmbedding:
        """Return the model of the vectors that the query is compared with."""
        stored = [each for each in sources if store_of(each.index).gives_vectors]
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


def _stores_of(sources: Sequence[VectorSource]) -> str:
    return ", ".join(store_of(source.index).name for source in sources) or "no vector store"


class NodeVectors:
    """One vector a node, as they are found; `nodes` are at least one."""

    def __init__(self, nodes: Sequence[NodeWithScore], given: VectorsById | None = None) -> None:
        self.ids = ids_of(nodes)
        self._nodes = nodes
        self._given = given
        self._rows: Known = [None] * len(nodes)

    def _missing(self) -> list[int]:
        if isinstance(self._rows, np.ndarray):
            return []
        return [i for i, row in enumerate(self._rows) if row is None]

    def missing_ids(self) -> list[str]:
        """Return the ids of the nodes without a vector."""
        return [self.ids[i] for i in self._missing()]

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

    def embedded(self, model: Model, store: str) -> Matrix:
        """Return the vectors, shape (n, d), after embedding what has none, on its node either.

        Logs how many those are, a warning the first time for a store, of which `store` is the
        name. Asks for the model only if there are any. A text is embedded once as long as its
        vector is kept (`sift_core.KeptVectors`).

        Raises:
            InvalidInputError: If the vectors differ in length.
        """
        self._fill_given()
        if texts := self._texts_to_embed(store):
            embedder = model()
            self.fill(_kept.embedded(embedder, texts, embedder.get_text_embedding_batch))
        return self._matrix()

    async def aembedded(self, model: Model, store: str) -> Matrix:
        """Return what `embedded` does, awaiting the model."""
        if self._given is not None:
            await asyncio.to_thread(self._fill_given)
        if texts := self._texts_to_embed(store):
            embedder = model()
            self.fill(await _kept.aembedded(embedder, texts, embedder.aget_text_embedding_batch))
        return self._matrix()

    def _fill_given(self) -> None:
        if self._given is not None and (ids := self.missing_ids()):
            self.fill(vectors_by_id(self._given, ids))

    def _texts_to_embed(self, store: str) -> list[str]:
        """Return the texts without a vector as an index embeds them."""
        if missing := self._missing():
            self.fill([self._nodes[i].node.embedding for i in missing])
        missing = self._missing()
        if missing:
            level = logging.DEBUG if store in _told else logging.WARNING
            _told.add(store)
            _logger.log(
                level,
                "embedding %d of %d nodes again: their vectors are neither on the nodes nor in a "
                "vector store that was found and can be read (Chroma, Qdrant, Faiss, "
                "SimpleVectorStore), but in %s; tell where they are by vectors=..., or a reranker "
                "or synthesizer of the VectorStoreIndex that has them by index=.... Their vectors "
                "are kept; this is said once",
                len(missing),
                len(self._nodes),
                store,
            )
        return [self._nodes[i].node.get_content(MetadataMode.EMBED) for i in missing]

    def _matrix(self) -> Matrix:
        if isinstance(self._rows, np.ndarray):
            return self._rows
        shapes = {np.shape(row) for row in self._rows}
        if len(shapes) > 1:
            raise InvalidInputError(
                f"the nodes' vectors must all have one shape, got {sorted(shapes)}; "
                f"were they made by different embedding models?"
            )
        return np.array(self._rows)
