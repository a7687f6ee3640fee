"""The postprocessor: nodes in, one call to the core, chosen copies of them out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.instrumentation import (  # type: ignore[attr-defined]  # implicit re-export
    get_dispatcher,
)
from llama_index.core.schema import NodeWithScore, QueryBundle

from llama_index.postprocessor.sift.node_choosing import NodeChooser
from llama_index.postprocessor.sift.node_pools import distinct_nodes
from llama_index.postprocessor.sift.rerank_events import reported
from llama_index.postprocessor.sift.reranker_settings import RerankerSettings
from llama_index.postprocessor.sift.retriever_tracking import track_retrievals
from llama_index.postprocessor.sift.vector_lookup import VectorLookup

_dispatcher = get_dispatcher(__name__)
_logger = logging.getLogger(__name__)


class SIFTReranker(RerankerSettings):
    """Keeps the nodes that together say most about the query, in order of choice.

    Put it into a query engine with a large `similarity_top_k`. Vectors are taken from the
    vector store that the engine's retriever searched; see `index` for when it cannot be
    found. Scores of a reranker before are used, see `use_scores`. A node's `score` becomes the
    variance at the query before it was chosen, which never rises, so sorting by score keeps
    the order. The score that it came with, its gain, its relevance (cosine with the query)
    and its redundancy (largest cosine with a node chosen before) are in `metadata["sift"]`,
    hidden from the LLM and from embedding models. A node that arrives twice is kept once.
    """

    _warned_of_few_nodes: bool = PrivateAttr(default=False)

    def model_post_init(self, context: Any, /) -> None:
        """Start watching retrievers, so that their stores are known when nodes arrive."""
        super().model_post_init(context)
        track_retrievals()

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which LlamaIndex serialises it."""
        return "SIFTReranker"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        query = _required(query_bundle)
        if not nodes:
            return []
        with self._reported(nodes, query) as chosen:
            chooser = self._chooser()
            candidates = self._candidates(chooser, nodes)
            vectors = self._lookup().vectors(query, candidates)
            chosen += chooser.choose(candidates, vectors.query, vectors.nodes)
        return chosen

    @_dispatcher.span  # LlamaIndex gives the sync twin one by itself
    async def _apostprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        query = _required(query_bundle)
        if not nodes:
            return []
        with self._reported(nodes, query) as chosen:
            chooser = self._chooser()
            candidates = self._candidates(chooser, nodes)
            vectors = await self._lookup().avectors(query, candidates)
            chosen += await asyncio.to_thread(
                chooser.choose, candidates, vectors.query, vectors.nodes
            )
        return chosen

    def _candidates(
        self, chooser: NodeChooser, nodes: Sequence[NodeWithScore]
    ) -> Sequence[NodeWithScore]:
        """Return the nodes to choose from, each once, after a warning where that is no choice."""
        if len(nodes) <= self.top_n and not self._warned_of_few_nodes:
            self._warned_of_few_nodes = True
            _logger.warning(
                "%d nodes arrived for top_n=%d, so there is nothing to choose from; raise the "
                "retriever's similarity_top_k (LlamaIndex's default is 2) to about 200, or "
                "take SIFTRetriever.from_index, which fetches enough by itself",
                len(nodes),
                self.top_n,
            )
        return chooser.best(distinct_nodes(nodes), self.candidates)

    def _reported(
        self, nodes: list[NodeWithScore], query: QueryBundle
    ) -> AbstractContextManager[list[NodeWithScore]]:
        return reported(
            nodes,
            query,
            top_n=self.top_n,
            model_name=self.class_name(),
            callback_manager=self.callback_manager,
        )

    def _lookup(self) -> VectorLookup:
        return VectorLookup(index=self.index, embed_model=self.embed_model)


def _required(query_bundle: QueryBundle | None) -> QueryBundle:
    if query_bundle is None:
        raise ValueError("Missing query bundle in extra info.")  # the framework's own words
    return query_bundle
