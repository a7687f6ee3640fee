"""The search of an index as a source of the core, which may ask it for more."""

from __future__ import annotations

from typing import Any

from llama_index.core.schema import QueryBundle

from llama_index.postprocessor.sift.index_search import IndexSearch
from llama_index.postprocessor.sift.node_choosing import NodeChooser
from llama_index.postprocessor.sift.node_pools import node_pool
from llama_index.postprocessor.sift.stored_vectors import Vector
from sift_core import CandidatePool, Query, afetch_distinct, fetch_distinct


class CandidateNodes:
    """Fetches pools of nodes for one query, of any size.

    Args:
        search: What is searched.
        query: The query as LlamaIndex has it, with its embedding.
        chooser: What will choose; whether scores become the pool's relevance is its setting.
    """

    def __init__(self, search: IndexSearch, query: QueryBundle, chooser: NodeChooser) -> None:
        self._search = search
        self._query = query
        self._use_scores = chooser.use_scores
        self._n_select = chooser.top_n

    def distinct(self, target: Vector, n: int, max_n: int) -> CandidatePool:
        """Return the n best nodes, or up to `max_n` where those are versions of few texts.

        Args:
            target: The query's vector, shape (d,).
            n: How many nodes to fetch first.
            max_n: How many at most; fetches again at most twice.
        """
        query = Query(text=self._query.query_str, embedding=target)
        return fetch_distinct(self, query, n, n_select=self._n_select, max_candidates=max_n)

    async def adistinct(self, target: Vector, n: int, max_n: int) -> CandidatePool:
        """Return what `distinct` returns, without blocking the event loop."""
        query = Query(text=self._query.query_str, embedding=target)
        return await afetch_distinct(self, query, n, n_select=self._n_select, max_candidates=max_n)

    def fetch(self, query: Query, n_candidates: int, *, filter: Any = None) -> CandidatePool:
        """Return the index's best nodes; its filter is the search's own."""
        nodes, embeddings = self._search.nodes(self._query, n_candidates)
        return node_pool(query.vector, nodes, embeddings, use_scores=self._use_scores)

    async def afetch(self, query: Query, n_candidates: int, *, filter: Any = None) -> CandidatePool:
        """Return what `fetch` returns, without blocking the event loop."""
        nodes, embeddings = await self._search.anodes(self._query, n_candidates)
        return node_pool(query.vector, nodes, embeddings, use_scores=self._use_scores)
