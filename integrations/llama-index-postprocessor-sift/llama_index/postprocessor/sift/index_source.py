"""A vector index as a source of candidates: one search that brings back nodes and vectors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from llama_index.core import VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.retrievers import VectorIndexRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index.core.vector_stores.types import VectorStoreQueryMode

from llama_index.postprocessor.sift.nodes import node_pool
from llama_index.postprocessor.sift.stores import Known, Matrix, VectorsById, store_of
from llama_index.postprocessor.sift.vectors import NodeVectors
from sift_core import (
    CandidatePool,
    CandidateSourceError,
    InvalidInputError,
    Query,
)


class IndexSource:
    """Searches an index as LlamaIndex's own retriever does, and gets the vectors as well.

    A `sift_core.CandidateSource` of pools as `node_pool` makes them. One trip to the store: Qdrant
    sends vectors along with the hits, and Faiss and the simple store have them in memory. Nodes
    of other stores are embedded again. Any number of threads and tasks may use it at once.

    Args:
        index: What to search.
        embed_model: Embeds what comes without a vector; None for the index's own model.
        use_scores: As in `node_pool`.
        vectors: Looks up those that hits come without, as in `sift_core.vectors_by_id`.
        **options: Arguments of `VectorIndexRetriever`, such as `filters`; None for its default.

    Raises:
        InvalidInputError: If `index` is no vector index, or its store would not do what an
            option says or would choose by itself.
        ValueError: If there is no such `vector_store_query_mode`.
    """

    def __init__(
        self,
        index: VectorStoreIndex,
        embed_model: BaseEmbedding | None,
        *,
        use_scores: bool | None,
        vectors: VectorsById | None = None,
        **options: Any,
    ) -> None:
        if not isinstance(index, VectorStoreIndex):
            raise InvalidInputError(
                f"`index` must be a VectorStoreIndex, got {type(index).__name__}; "
                f"VectorStoreIndex.from_vector_store makes one of a store"
            )
        self._store = store_of(index)
        self._store_name = type(index.vector_store).__name__
        self._embed_model = embed_model or index._embed_model  # no public accessor
        self._use_scores = use_scores
        self._vectors = vectors
        self._options = {name: value for name, value in options.items() if value is not None}
        self._check_options()

    def _check_options(self) -> None:
        options = self._options
        for name in self._store.ignored:
            if name in options:
                raise InvalidInputError(
                    f"{self._store_name} cannot take `{name}` into account; "
                    f"leave it out, or keep the nodes in a store that can, such as Qdrant"
                )
        for name in ("node_ids", "doc_ids"):
            if name in options and not len(options[name]):  # stores take it for no restriction
                raise InvalidInputError(f"`{name}` must not be empty; None is for all")
        mode = VectorStoreQueryMode(options.get("vector_store_query_mode", "default"))
        options["vector_store_query_mode"] = mode
        if mode == VectorStoreQueryMode.MMR:
            raise InvalidInputError(
                "`vector_store_query_mode` must not be 'mmr': it would choose before SIFT can, and "
                "Qdrant and Faiss ignore it; leave it out"
            )
        if mode not in self._store.modes:
            raise InvalidInputError(
                f"{self._store_name} would not search by `vector_store_query_mode` {mode.value!r}; "
                f"leave it out (Qdrant has 'hybrid' and 'sparse' with `enable_hybrid=True`)"
            )

    def fetch(self, query: Query, n_candidates: int, *, filter: Any = None) -> CandidatePool:
        """Return up to n nodes as a pool.

        Args:
            query: With the embedding to search for.
            n_candidates: How many nodes at most.
            filter: Not taken; filters are among the options.

        Raises:
            CandidateSourceError: If the store fails.
            InvalidInputError: If the store has an async client alone, or a Faiss index holds
                vectors of another length than the query's.
        """
        self._store.check_query(len(query.vector))
        if self._store.is_empty:
            return CandidatePool.empty(dimension=len(query.vector))
        with self._search(n_candidates) as (retriever, vectors_of):
            nodes = retriever._retrieve(_bundle(query))
        rows = NodeVectors(nodes, self._vectors)
        rows.fill(vectors_of(rows.ids))
        return self._pool(query, nodes, rows.embedded(lambda: self._embed_model, self._store.name))

    async def afetch(self, query: Query, n_candidates: int, *, filter: Any = None) -> CandidatePool:
        """Return what `fetch` does; a store without an async side is asked in a thread.

        Qdrant at a pace (`sift_core.paced`), so that many answers do not block the event loop.
        """
        async with self._store.turn(n_candidates, len(query.vector)):
            if not self._store.is_awaited:
                return await asyncio.to_thread(self.fetch, query, n_candidates)
            with self._search(n_candidates) as (retriever, vectors_of):
                nodes = await retriever._aretrieve(_bundle(query))
            rows = NodeVectors(nodes, self._vectors)
            rows.fill(vectors_of(rows.ids))
            embeddings = await rows.aembedded(lambda: self._embed_model, self._store.name)
            return await asyncio.to_thread(self._pool, query, nodes, embeddings)

    @contextmanager
    def _search(
        self, n: int
    ) -> Iterator[tuple[VectorIndexRetriever, Callable[[Sequence[str]], Known]]]:
        """Yield what searches for n nodes once, and what then tells the vectors of hits.

        Raises:
            CandidateSourceError: If the body fails, whatever it fails of.
        """
        retriever = VectorIndexRetriever(
            self._store.index, similarity_top_k=n, embed_model=self._embed_model, **self._options
        )
        vectors_of = self._store.prepare(retriever)
        try:
            yield retriever, vectors_of
        except Exception as error:  # each store has exceptions of its own; none is swallowed
            reason = str(error) or type(error).__name__
            raise CandidateSourceError(
                f"{self._store.name} could not find {n} nodes: {reason}; "
                f"is it up, and does it still hold what was retrieved?"
            ) from error

    def _pool(
        self, query: Query, nodes: Sequence[NodeWithScore], embeddings: Matrix
    ) -> CandidatePool:
        return node_pool(query.vector, nodes, embeddings, use_scores=self._use_scores)


def _bundle(query: Query) -> QueryBundle:
    return QueryBundle(query.text, embedding=query.vector.tolist())
