"""A vector index as a source of candidates: one search that brings back nodes and vectors."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
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
from sift_core import (
    CandidatePool,
    CandidateSourceError,
    InvalidInputError,
    Query,
    SiftError,
    paced,
)

if TYPE_CHECKING:
    from llama_index.postprocessor.sift.qdrant_store import VectorHits

# What `index.as_retriever` takes that is not settled here; it takes any other name without a word.
_OPTIONS = {
    "filters",
    "node_ids",
    "doc_ids",
    "alpha",
    "sparse_top_k",
    "hybrid_top_k",
    "vector_store_kwargs",
}

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
        embed_model: Embeds what comes without a vector.
        options: Arguments of `VectorIndexRetriever`, such as `filters`; from `checked_options`.
        use_scores: As in `node_pool`.
    """

    def __init__(
        self,
        index: VectorStoreIndex,
        embed_model: BaseEmbedding,
        options: Mapping[str, Any],
        *,
        use_scores: bool | None,
    ) -> None:
        self._index = index
        self._embed_model = embed_model
        self._options = options
        self._use_scores = use_scores
        self._knows_names = False

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
        store: Any = self._index.vector_store
        kind = store_kind(store)
        if kind == "qdrant" and store._client is None:
            raise InvalidInputError(
                "this QdrantVectorStore has an async client alone; await the retriever "
                "(aretrieve, aquery), or give the store a `client` as well as its `aclient`"
            )
        if kind.startswith("faiss"):
            if len(query.vector) != store.client.d:
                raise InvalidInputError(
                    f"the query's embedding must have {store.client.d} numbers like the vectors in "
                    f"the Faiss index, got {len(query.vector)}; were both made by one model?"
                )
            if store.client.ntotal == 0:  # LlamaIndex 0.13 fails over it
                return CandidatePool.empty(dimension=store.client.d)
        with self._prepared(n_candidates) as (retriever, hits):
            nodes = retriever._retrieve(_bundle(query))
        if not nodes:
            return CandidatePool.empty(dimension=len(query.vector))
        embeddings = node_embeddings(
            nodes, self._sources(), lambda: self._embed_model, known=_vectors_of(hits, nodes)
        )
        return node_pool(query.vector, nodes, embeddings, use_scores=self._use_scores)

    async def afetch(self, query: Query, n_candidates: int, *, filter: Any = None) -> CandidatePool:
        """Return what `fetch` does; a store without an async side is asked in a thread.

        Qdrant at a pace (`sift_core.paced`), so that many answers do not block the event loop.
        """
        kind = store_kind(self._index.vector_store)
        if kind == "qdrant":
            async with paced(n_candidates, len(query.vector)):
                return await self._afetch(query, n_candidates)
        if kind == "other":
            return await self._afetch(query, n_candidates)
        return await asyncio.to_thread(self.fetch, query, n_candidates)

    async def _afetch(self, query: Query, n_candidates: int) -> CandidatePool:
        store: Any = self._index.vector_store
        if store_kind(store) == "qdrant":
            if not store._aclient:
                return await asyncio.to_thread(self.fetch, query, n_candidates)
            if not self._knows_names and store._legacy_vector_format is None:
                await store._adetect_vector_format(store.collection_name)  # not in every query
        with self._prepared(n_candidates) as (retriever, hits):
            nodes = await retriever._aretrieve(_bundle(query))
        self._knows_names = True
        if not nodes:
            return CandidatePool.empty(dimension=len(query.vector))
        embeddings = await anode_embeddings(
            nodes,
            self._sources(),
            lambda: self._embed_model,
            dimension=len(query.vector),
            known=_vectors_of(hits, nodes),
        )
        return await asyncio.to_thread(
            node_pool, query.vector, nodes, embeddings, use_scores=self._use_scores
        )

    @contextmanager
    def _prepared(self, n: int) -> Iterator[tuple[VectorIndexRetriever, VectorHits | None]]:
        """Yield what searches for n nodes once, and where the vectors of hits will be."""
        store: Any = self._index.vector_store
        kind = store_kind(store)
        options = dict(self._options)
        if kind == "simple" and options.get("node_ids") is None:
            # Like `index.as_retriever`: the store may hold nodes of other indexes.
            options["node_ids"] = list(self._index.index_struct.nodes_dict.values())
        retriever = VectorIndexRetriever(
            self._index, similarity_top_k=n, embed_model=self._embed_model, **options
        )
        hits = None
        if kind == "qdrant":
            from llama_index.postprocessor.sift.qdrant_store import VectorHits

            hits = VectorHits(store)
            retriever._vector_store = hits.store
        with _failures_of(store, f"find {n} nodes"):
            yield retriever, hits

    def _sources(self) -> Sequence[VectorSource]:
        """Return where vectors are that need no further trip."""
        if store_kind(self._index.vector_store) == "qdrant":
            return []
        return [VectorSource.of_index(self._index)]


@contextmanager
def _failures_of(store: object, task: str) -> Iterator[None]:
    """Turn whatever a store raises into a `CandidateSourceError` that says what it failed at."""
    try:
        yield
    except SiftError:
        raise
    except Exception as error:  # each store has exceptions of its own; none is swallowed
        collection = getattr(store, "collection_name", "")
        reason = str(error) or type(error).__name__
        raise CandidateSourceError(
            f"{type(store).__name__} {collection!r} could not {task}: {reason}; is it up, and "
            f"does it still hold what was retrieved?"
        ) from error


def _bundle(query: Query) -> QueryBundle:
    return QueryBundle(query.text, embedding=query.vector.tolist())


def _vectors_of(hits: VectorHits | None, nodes: Sequence[NodeWithScore]) -> Sequence[Any] | None:
    return None if hits is None else hits.vectors_of([node.node.node_id for node in nodes])


def checked_options(
    index: VectorStoreIndex,
    *,
    vector_store_query_mode: VectorStoreQueryMode | str = VectorStoreQueryMode.DEFAULT,
    **options: Any,
) -> dict[str, Any]:
    """Return arguments for `VectorIndexRetriever`; options that are None are left out.

    Raises:
        InvalidInputError: If `index` is no vector index, the mode is not known or would choose
            by itself, or the index's store would not do what an option says.
        TypeError: If there is no such option.
    """
    if unknown := sorted(set(options) - _OPTIONS):
        raise TypeError(f"SIFTRetriever got an unexpected keyword argument {unknown[0]!r}")
    if not isinstance(index, VectorStoreIndex):
        raise InvalidInputError(
            f"`index` must be a VectorStoreIndex, got {type(index).__name__}; "
            f"VectorStoreIndex.from_vector_store makes one of a store"
        )
    store = index.vector_store
    kind = store_kind(store)
    given = {name: value for name, value in options.items() if value is not None}
    for name in _IGNORED.get(kind, ()):
        if name in given:
            raise InvalidInputError(
                f"{type(store).__name__} cannot take `{name}` into account; "
                f"leave it out, or keep the nodes in a store that can, such as Qdrant"
            )
    for name in ("node_ids", "doc_ids"):
        if name in given:
            given[name] = list(given[name])
            if not given[name]:  # stores take it for no restriction
                raise InvalidInputError(f"`{name}` must not be empty; None is for all")
    return {**given, "vector_store_query_mode": _checked_mode(store, kind, vector_store_query_mode)}


def _checked_mode(
    store: Any, kind: StoreKind, name: VectorStoreQueryMode | str
) -> VectorStoreQueryMode:
    """Return a mode that the store has and that leaves the choice to SIFT."""
    try:
        mode = VectorStoreQueryMode(name)
    except ValueError as error:
        known = ", ".join(repr(mode.value) for mode in VectorStoreQueryMode)
        raise InvalidInputError(
            f"`vector_store_query_mode` must be one of {known}, got {name!r}"
        ) from error
    if mode == VectorStoreQueryMode.MMR:
        raise InvalidInputError(
            "`vector_store_query_mode` must not be 'mmr': it would choose before SIFT can, and "
            "Qdrant and Faiss ignore it; leave it out"
        )
    if kind in ("simple", "other"):  # these refuse what they cannot do
        return mode
    has = [VectorStoreQueryMode.DEFAULT]
    if kind == "qdrant" and store.enable_hybrid:
        has += [VectorStoreQueryMode.HYBRID, VectorStoreQueryMode.SPARSE]
    if mode not in has:
        raise InvalidInputError(
            f"{type(store).__name__} would not search by `vector_store_query_mode` "
            f"{mode.value!r}; leave it out (Qdrant has 'hybrid' and 'sparse' with "
            f"`enable_hybrid=True`)"
        )
    return mode
