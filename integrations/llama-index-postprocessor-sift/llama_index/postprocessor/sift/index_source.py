"""One search of a vector index that brings back nodes and their vectors."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from llama_index.core import VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.retrievers import VectorIndexRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle

from llama_index.postprocessor.sift.embeddings import Matrix, anode_embeddings, node_embeddings
from llama_index.postprocessor.sift.qdrant_hits import VectorHits
from llama_index.postprocessor.sift.retrievals import VectorSource
from llama_index.postprocessor.sift.stored_vectors import failures_of, store_kind
from sift_core import InvalidInputError, paced


class IndexSearch:
    """Searches an index as LlamaIndex's own retriever does, and gets the vectors as well.

    Any number of threads and tasks may use it at once.

    Args:
        index: What to search.
        embed_model: Embeds what comes without a vector.
        options: Arguments of `VectorIndexRetriever`, such as `filters`.
    """

    def __init__(
        self, index: VectorStoreIndex, embed_model: BaseEmbedding, options: Mapping[str, Any]
    ) -> None:
        self._index = index
        self._embed_model = embed_model
        self._options = options
        self._knows_names = False

    def nodes(self, query: QueryBundle, n: int) -> tuple[list[NodeWithScore], Matrix]:
        """Return up to n nodes and their vectors, shape (n, d), (0, 0) where there are none.

        One trip to the store: Qdrant sends vectors along with the hits, and Faiss and the
        simple store have them in memory. Nodes of other stores are embedded again.

        Args:
            query: With its embedding, where the search needs one.
            n: How many nodes at most.

        Raises:
            CandidateSourceError: If the store fails.
            InvalidInputError: If the store has an async client alone, or a Faiss index holds
                vectors of another length than the query's.
        """
        if self._is_async_alone():
            raise InvalidInputError(
                "this QdrantVectorStore has an async client alone; await the retriever "
                "(aretrieve, aquery), or give the store a `client` as well as its `aclient`"
            )
        self._check_length(query)
        if self._is_empty_faiss():  # LlamaIndex 0.13 fails over it
            return [], np.empty((0, 0))
        with self._prepared(n) as (retriever, hits):
            nodes = retriever._retrieve(query)
        if not nodes:
            return [], np.empty((0, 0))
        known = hits.vectors_of(node.node.node_id for node in nodes) if hits else {}
        return nodes, node_embeddings(
            nodes, self._sources(), lambda: self._embed_model, known=known
        )

    async def anodes(self, query: QueryBundle, n: int) -> tuple[list[NodeWithScore], Matrix]:
        """Return what `nodes` does; a store without an async side is asked in a thread.

        Qdrant at a pace (`sift_core.paced`), so that many answers do not block the event loop.
        """
        store: Any = self._index.vector_store
        kind = store_kind(store)
        if kind in ("simple", "faiss", "faiss map"):
            return await asyncio.to_thread(self.nodes, query, n)
        if kind == "qdrant":
            async with paced(n, len(query.embedding or ())):
                return await self._ahits(query, n)
        return await self._ahits(query, n)

    async def _ahits(self, query: QueryBundle, n: int) -> tuple[list[NodeWithScore], Matrix]:
        store: Any = self._index.vector_store
        kind = store_kind(store)
        if kind == "qdrant" and not store._aclient:
            return await asyncio.to_thread(self.nodes, query, n)
        if kind == "qdrant" and not self._knows_names and store._legacy_vector_format is None:
            await store._adetect_vector_format(store.collection_name)  # not in every query
        with self._prepared(n) as (retriever, hits):
            nodes = await retriever._aretrieve(query)
        self._knows_names = True
        if not nodes:
            return [], np.empty((0, 0))
        known = hits.vectors_of(node.node.node_id for node in nodes) if hits else {}
        return nodes, await anode_embeddings(
            nodes,
            self._sources(),
            lambda: self._embed_model,
            known=known,
            dimension=len(query.embedding or ()),
        )

    @contextmanager
    def _prepared(self, n: int) -> Iterator[tuple[VectorIndexRetriever, VectorHits | None]]:
        """Yield what searches for n nodes once, and where the vectors of hits will be."""
        store: Any = self._index.vector_store
        options = dict(self._options)
        if store_kind(store) == "simple" and options.get("node_ids") is None:
            # Like `index.as_retriever`: the store may hold nodes of other indexes.
            options["node_ids"] = list(self._index.index_struct.nodes_dict.values())
        retriever = VectorIndexRetriever(
            self._index, similarity_top_k=n, embed_model=self._embed_model, **options
        )
        hits = VectorHits(store) if store_kind(store) == "qdrant" else None
        if hits is not None:
            retriever._vector_store = hits.store
        with failures_of(store, f"find {n} nodes"):
            yield retriever, hits

    def _sources(self) -> Sequence[VectorSource]:
        """Return where vectors are that need no further trip."""
        if store_kind(self._index.vector_store) == "qdrant":
            return []
        return [VectorSource.of_index(self._index)]

    def _check_length(self, query: QueryBundle) -> None:
        """Raise where Faiss would fail without a word."""
        store: Any = self._index.vector_store
        if not store_kind(store).startswith("faiss") or query.embedding is None:
            return
        if len(query.embedding) != store.client.d:
            raise InvalidInputError(
                f"the query's embedding must have {store.client.d} numbers like the vectors in "
                f"the Faiss index, got {len(query.embedding)}; were both made by one model?"
            )

    def _is_empty_faiss(self) -> bool:
        store: Any = self._index.vector_store
        return store_kind(store).startswith("faiss") and store.client.ntotal == 0

    def _is_async_alone(self) -> bool:
        store: Any = self._index.vector_store
        return store_kind(store) == "qdrant" and store._client is None
