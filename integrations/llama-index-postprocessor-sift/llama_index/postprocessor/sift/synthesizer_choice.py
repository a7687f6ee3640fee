"""From retrieved nodes to what is settled before a model runs: mode, and which nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from llama_index.core.schema import NodeWithScore, QueryBundle

from llama_index.postprocessor.sift.node_pools import distinct_nodes, node_pool
from llama_index.postprocessor.sift.vector_lookup import VectorLookup, Vectors
from sift_core import AnswerMode, CandidatePool, Query

if TYPE_CHECKING:
    from sift_core.answering import AnswerEngine, Choice


@dataclass(frozen=True, kw_only=True, eq=False)
class NodeChoice:
    """Chooses mode and nodes for a query.

    Args:
        engine: Its selectors and its policy choose.
        lookup: Where vectors are.
        use_scores: As in `SIFTReranker`.
    """

    engine: AnswerEngine
    lookup: VectorLookup
    use_scores: bool | None = None

    def choose(self, query: QueryBundle, nodes: Sequence[NodeWithScore], mode: str) -> Choice:
        """Return the choice among `nodes`, perhaps none; mode "base" looks at no node."""
        if not nodes or mode == AnswerMode.BASE:
            return self._without_nodes(query, mode)
        distinct = distinct_nodes(nodes)
        return self._chosen(query, distinct, self.lookup.vectors(query, distinct), mode)

    async def achoose(
        self, query: QueryBundle, nodes: Sequence[NodeWithScore], mode: str
    ) -> Choice:
        """Return what `choose` returns; stores and models are awaited, the rest is in a thread."""
        if not nodes or mode == AnswerMode.BASE:
            return self._without_nodes(query, mode)
        distinct = distinct_nodes(nodes)
        vectors = await self.lookup.avectors(query, distinct)
        return await asyncio.to_thread(self._chosen, query, distinct, vectors, mode)

    def _chosen(
        self, query: QueryBundle, nodes: Sequence[NodeWithScore], vectors: Vectors, mode: str
    ) -> Choice:
        pool = node_pool(vectors.query, nodes, vectors.nodes, use_scores=self.use_scores)
        embedded = Query(text=query.query_str, embedding=vectors.query)
        return self.engine.choose_from(embedded, pool, mode=mode)

    def _without_nodes(self, query: QueryBundle, mode: str) -> Choice:
        bare = Query(text=query.query_str)
        return self.engine.choose_from(bare, CandidatePool.empty(), mode=mode)
