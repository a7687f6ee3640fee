"""All vectors that a selection among retrieved nodes needs, wherever they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llama_index.core import Settings, VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import NodeWithScore, QueryBundle

from llama_index.postprocessor.sift.embeddings import Matrix, anode_embeddings, node_embeddings
from llama_index.postprocessor.sift.query_vectors import aquery_embedding, query_embedding
from llama_index.postprocessor.sift.retrievals import VectorSource, sources_of
from llama_index.postprocessor.sift.stored_vectors import Vector, store_kind
from sift_core import InvalidInputError


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
        return sources_of(node.node.node_id for node in nodes)

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
