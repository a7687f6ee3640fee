"""A vector index as a source of candidates: one search that brings back nodes and vectors."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from llama_index.core import VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.retrievers import VectorIndexRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index.core.vector_stores.types import VectorStoreQueryMode

from llama_index.postprocessor.sift.nodes import node_pool
from llama_index.postprocessor.sift.tracking import VectorSource
from llama_index.postprocessor.sift.vectors import (
    StoreKind,
    anode_embeddings,
    node_embeddings,
    store_kind,
)
from sift_core import CandidatePool, CandidateSourceError, InvalidInputError, Query, paced

if TYPE_CHECKING:
    from llama_index.postprocessor.sift.qdrant_store import VectorHits

# What these stores take without a word and do not look at, or refuse in every query.
_IGNORED: dict[StoreKind, tuple[str, ...]] = {
    "faiss": ("filters", "node_ids", "doc_ids", "alpha", "sparse_top_k", "hybrid_top_k"),
    "faiss map": ("filters", "node_ids", "doc_ids", "alpha", "sparse_top_k", "hybrid_top_k"),
    "simple": ("doc_ids", "alpha", "sparse_top_k", "hybrid_top_k"),
}


class IndexSource:
    """Searches an index as LlamaIndex's own retriever does, and gets the vectors as well.

    A `sift_core.CandidateSource` of pools as `node_pool` makes them. One trip to the store: Qdrant
    sends vectors along with the hits, and Faiss and the simple store have them in memory. Nodes
    of other stores are embedded again. Any number of threads and tasks may use it at once.

    Args:
        index: What to search.
        embed_model: Embeds what comes without a vector; None for the index's own model.
        use_scores: As in `node_pool`.
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
        **options: Any,
    ) -> None:
        if not isinstance(index, VectorStoreIndex):
            raise InvalidInputError(
                f"`index` must be a VectorStoreIndex, got {type(index).__name__}; "
                f"VectorStoreIndex.from_vector_store makes one of a store"
            )
        self._index = index
        self._store: Any = index.vector_store
        self._kind = store_kind(self._store)
        self._embed_model = embed_model or index._embed_model  # no public accessor
        self._use_scores = use_scores
        self._options = {name: value for name, value in options.items() if value is not None}
        self._check_options()
        # Where vectors are that need no further trip.
        self._sources = [] if self._kind == "qdrant" else [VectorSource.of_index(index)]
        self._knows_names = False

    def _check_options(self) -> None:
        store, options = type(self._store).__name__, self._options
        for name in _IGNORED.get(self._kind, ()):
            if name in options:
                raise InvalidInputError(
                    f"{store} cannot take `{name}` into account; "
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
        has = [VectorStoreQueryMode.DEFAULT]
        if self._kind == "qdrant" and self._store.enable_hybrid:
            has += [VectorStoreQueryMode.HYBRID, VectorStoreQueryMode.SPARSE]
        # Other kinds of stores refuse what they cannot do.
        if mode not in has and self._kind in ("qdrant", "faiss", "faiss map"):
            raise InvalidInputError(
                f"{store} would not search by `vector_store_query_mode` {mode.value!r}; leave it "
                f"out (Qdrant has 'hybrid' and 'sparse' with `enable_hybrid=True`)"
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
        if self._kind == "qdrant" and self._store._client is None:
            raise InvalidInputError(
                "this QdrantVectorStore has an async client alone; await the retriever "
                "(aretrieve, aquery), or give the store a `client` as well as its `aclient`"
            )
        if self._kind.startswith("faiss"):
            faiss_index = self._store.client
            if len(query.vector) != faiss_index.d:
                raise InvalidInputError(
                    f"the query's embedding must have {faiss_index.d} numbers like the vectors in "
                    f"the Faiss index, got {len(query.vector)}; were both made by one model?"
                )
            if faiss_index.ntotal == 0:  # LlamaIndex 0.13 fails over it
                return CandidatePool.empty(dimension=faiss_index.d)
        with self._search(n_candidates) as (retriever, hits):
            nodes = retriever._retrieve(_bundle(query))
        embeddings = node_embeddings(
            nodes, self._sources, lambda: self._embed_model, known=_vectors_of(hits, nodes)
        )
        return node_pool(query.vector, nodes, embeddings, use_scores=self._use_scores)

    async def afetch(self, query: Query, n_candidates: int, *, filter: Any = None) -> CandidatePool:
        """Return what `fetch` does; a store without an async side is asked in a thread.

        Qdrant at a pace (`sift_core.paced`), so that many answers do not block the event loop.
        """
        if self._kind == "qdrant":
            async with paced(n_candidates, len(query.vector)):
                if self._store._aclient is not None:
                    return await self._afetch(query, n_candidates)
                return await asyncio.to_thread(self.fetch, query, n_candidates)
        if self._kind == "other":
            return await self._afetch(query, n_candidates)
        return await asyncio.to_thread(self.fetch, query, n_candidates)

    async def _afetch(self, query: Query, n_candidates: int) -> CandidatePool:
        if self._kind == "qdrant" and not self._knows_names:  # else it asks in every query
            if self._store._legacy_vector_format is None:
                await self._store._adetect_vector_format(self._store.collection_name)
            self._knows_names = True
        with self._search(n_candidates) as (retriever, hits):
            nodes = await retriever._aretrieve(_bundle(query))
        embeddings = await anode_embeddings(
            nodes,
            self._sources,
            lambda: self._embed_model,
            dimension=len(query.vector),
            known=_vectors_of(hits, nodes),
        )
        return await asyncio.to_thread(
            node_pool, query.vector, nodes, embeddings, use_scores=self._use_scores
        )

    @contextmanager
    def _search(self, n: int) -> Iterator[tuple[VectorIndexRetriever, VectorHits | None]]:
        """Yield what searches for n nodes once, and where the vectors of hits will be.

        Raises:
            CandidateSourceError: If the body fails, whatever it fails of.
        """
        options = dict(self._options)
        if self._kind == "simple" and "node_ids" not in options:
            # Like `index.as_retriever`: the store may hold nodes of other indexes.
            options["node_ids"] = list(self._index.index_struct.nodes_dict.values())
        retriever = VectorIndexRetriever(
            self._index, similarity_top_k=n, embed_model=self._embed_model, **options
        )
        hits = None
        if self._kind == "qdrant":
            from llama_index.postprocessor.sift.qdrant_store import VectorHits

            hits = VectorHits(self._store)
            retriever._vector_store = hits.store
        try:
            yield retriever, hits
        except Exception as error:  # each store has exceptions of its own; none is swallowed
            collection = getattr(self._store, "collection_name", "")
            reason = str(error) or type(error).__name__
            raise CandidateSourceError(
                f"{type(self._store).__name__} {collection!r} could not find {n} nodes: {reason}; "
                f"is it up, and does it still hold what was retrieved?"
            ) from error


def _bundle(query: Query) -> QueryBundle:
    return QueryBundle(query.text, embedding=query.vector.tolist())


def _vectors_of(hits: VectorHits | None, nodes: Sequence[NodeWithScore]) -> Sequence[Any] | None:
    return None if hits is None else hits.vectors_of([node.node.node_id for node in nodes])
