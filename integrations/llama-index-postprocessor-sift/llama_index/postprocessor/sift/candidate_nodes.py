"""The search of an index as a source of the core, which may ask it for more."""

from __future__ import annotations

from typing import Any

from llama_index.core.schema import QueryBundle

from llama_index.postprocessor.sift.index_search import IndexSearch
from llama_index.postprocessor.sift.node_pools import node_pool
from sift_core import CandidatePool, Query


class CandidateNodes:
    """Fetches pools of nodes for one query, of any size.

    Args:
        search: What is searched.
        query: The query as LlamaIndex has it, with its embedding.
        use_scores: Whether scores become the pool's relevance; see `node_pool`.
    """

    def __init__(self, search: IndexSearch, query: QueryBundle, use_scores: bool | None) -> None:
        self._search = search
        self._query = query
        self._use_scores = use_scores

    def fetch(self, query: Query, n_candidates: int, *, filter: Any = None) -> CandidatePool:
        """Return the index's best nodes; its filter is the search's own."""
        nodes, embeddings = self._search.nodes(self._query, n_candidates)
        return node_pool(query.embedding, nodes, embeddings, use_scores=self._use_scores)

    async def afetch(self, query: Query, n_candidates: int, *, filter: Any = None) -> CandidatePool:
        """Return what `fetch` returns, without blocking the event loop."""
        nodes, embeddings = await self._search.anodes(self._query, n_candidates)
        return node_pool(query.embedding, nodes, embeddings, use_scores=self._use_scores)
