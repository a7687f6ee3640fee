"""From retrieved nodes to what is settled before a model runs: mode, and which nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from llama_index.core import Settings, VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import NodeWithScore, QueryBundle

from llama_index.postprocessor.sift.embeddings import (
    Matrix,
    anode_embeddings,
    aquery_embedding,
    node_embeddings,
    query_embedding,
)
from llama_index.postprocessor.sift.node_pools import node_pool
from llama_index.postprocessor.sift.retrievals import VectorSource, sources_of
from sift_core import Query

if TYPE_CHECKING:
    from sift_core.answering import AnswerEngine, Choice


@dataclass(frozen=True, kw_only=True, eq=False)
class NodeChoice:
    """Chooses mode and nodes for a query.

    Args:
        engine: Its selectors and its policy choose.
        use_scores: As in `SIFTReranker`.
        index: Where the vectors are, if not in the index that was just searched.
        embed_model: Embeds what has no vector, if not the index's own.
    """

    engine: AnswerEngine
    use_scores: bool | None = None
    index: VectorStoreIndex | None = None
    embed_model: BaseEmbedding | None = None

    def choose(self, query: QueryBundle, nodes: Sequence[NodeWithScore], mode: str) -> Choice:
        """Return the choice among `nodes`, perhaps none."""
        sources = self._sources(nodes)
        model = partial(self._model, sources)
        if not nodes:
            return self._chosen(query, np.ones(1), nodes, np.empty((0, 1)), mode)
        embedding = query_embedding(query, model)
        return self._chosen(query, embedding, nodes, node_embeddings(nodes, sources, model), mode)

    async def achoose(
        self, query: QueryBundle, nodes: Sequence[NodeWithScore], mode: str
    ) -> Choice:
        """Return what `choose` returns; stores and models are awaited, the rest is in a thread."""
        sources = self._sources(nodes)
        model = partial(self._model, sources)
        if not nodes:
            return self._chosen(query, np.ones(1), nodes, np.empty((0, 1)), mode)
        embedding = await aquery_embedding(query, model)
        embeddings = await anode_embeddings(nodes, sources, model)
        return await asyncio.to_thread(self._chosen, query, embedding, nodes, embeddings, mode)

    def _chosen(
        self,
        query: QueryBundle,
        embedding: Matrix,
        nodes: Sequence[NodeWithScore],
        embeddings: Matrix,
        mode: str,
    ) -> Choice:
        pool = node_pool(embedding, nodes, embeddings, use_scores=self.use_scores)
        return self.engine.choose_from(
            Query(text=query.query_str, embedding=embedding), pool, mode=mode
        )

    def _sources(self, nodes: Sequence[NodeWithScore]) -> list[VectorSource]:
        if self.index is not None:
            return [VectorSource.of_index(self.index)]
        return sources_of(node.node.node_id for node in nodes)

    def _model(self, sources: Sequence[VectorSource]) -> BaseEmbedding:
        if self.embed_model is not None:
            return self.embed_model
        return sources[0].embed_model if sources else Settings.embed_model
