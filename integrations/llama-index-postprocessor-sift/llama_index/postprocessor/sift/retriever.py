"""The retriever: one oversampled search of an index, and the nodes that together say most."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypedDict, get_args

import numpy as np
from llama_index.core import VectorStoreIndex
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.callbacks import CallbackManager
from llama_index.core.instrumentation import (  # type: ignore[attr-defined]  # implicit re-export
    get_dispatcher,
)
from llama_index.core.retrievers import VectorIndexRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index.core.vector_stores import MetadataFilters
from llama_index.core.vector_stores.types import VectorStoreQueryMode

from llama_index.postprocessor.sift.nodes import (
    Score,
    chosen_nodes,
    count_tokens,
    ids_of,
    node_pool,
    query_of,
    takes_several,
)
from llama_index.postprocessor.sift.stores import Vectors, VectorsById, store_of
from llama_index.postprocessor.sift.tracking import track_retrievals
from llama_index.postprocessor.sift.vectors import (
    anode_vectors,
    aquery_embedding,
    node_vectors,
    query_embedding,
)
from sift_core import (
    CandidatePool,
    CandidateSource,
    CandidateSourceError,
    ChoiceOptions,
    Chosen,
    InvalidInputError,
    OversamplingSource,
    Query,
    asearch,
    search,
)
from sift_core.options import ChoiceKeywords
from sift_core.pacing import turn_of_ones_own

if TYPE_CHECKING:
    from typing_extensions import Unpack

_dispatcher = get_dispatcher(__name__)


class SearchOptions(TypedDict, total=False):
    """Arguments of `index.as_retriever` that a search takes."""

    node_ids: Sequence[str] | None
    doc_ids: Sequence[str] | None
    vector_store_query_mode: VectorStoreQueryMode | str
    alpha: float | None
    sparse_top_k: int | None
    hybrid_top_k: int | None
    vector_store_kwargs: dict[str, Any] | None


class RetrieverOptions(SearchOptions, ChoiceKeywords, total=False):
    """What `SIFTRetriever` takes by name beside its own arguments."""


class SIFTRetriever(BaseRetriever):
    """Finds the nodes of an index that together say most about the query, in order of choice.

    Fetches many candidates with their vectors in one trip to the store, filters pushed down. It
    chooses among them as `SIFTReranker` does, and returns nodes with the same scores and metadata.
    A query with several `embedding_strs` has `candidates` for each of them.

    Args:
        index: Over any vector store. Chroma, Qdrant, Faiss and SimpleVectorStore give vectors
            back. Nodes of others are looked up by `vectors` or embedded, with a logged warning.
        top_n: Return at most this many nodes, >= 1. Default: 10.
        candidates: Fetch this many nodes to choose from, >= `top_n`. Default: 200.
        filters: Metadata filters, applied by the store. Default: none.
        use_scores, score, keep_embeddings: As in `SIFTReranker`.
        max_candidates: Fetch again, at most twice and up to this many nodes, if candidates are
            mostly versions of few texts. Default: one trip a query. (LlamaIndex's Qdrant store
            asks for the names of vectors before the first awaited query.)
        vectors: Function from a list of node ids to a mapping of ids to vectors, for those that
            the store does not give. Default: none.
        embed_model: Embeds queries. Default: the index's own model.
        callback_manager, verbose: As in LlamaIndex. Default: the index's manager, and no output.
        **options: Arguments of `index.as_retriever` by name, if the store can take them into
            account: `node_ids`, `doc_ids`, `vector_store_query_mode`; `alpha`, `sparse_top_k`,
            `hybrid_top_k` and `vector_store_kwargs` for hybrid searches. All others are fields of
            `sift_core.ChoiceOptions`, as in `SIFTReranker`. `hops` does nothing.

    Raises:
        InvalidInputError: If a number is out of its range, options do not go together, or the
            store would ignore one.
        TypeError: If there is no such option.
        ValueError: If there is no such `vector_store_query_mode`.
    """

    def __init__(
        self,
        index: VectorStoreIndex,
        *,
        top_n: int = 10,
        candidates: int = 200,
        filters: MetadataFilters | None = None,
        use_scores: bool | None = None,
        score: Score = "variance",
        keep_embeddings: bool = False,
        max_candidates: int | None = None,
        vectors: VectorsById | None = None,
        embed_model: BaseEmbedding | None = None,
        callback_manager: CallbackManager | None = None,
        verbose: bool = False,
        **options: Unpack[RetrieverOptions],
    ) -> None:
        if not 1 <= top_n <= candidates <= (max_candidates or candidates):
            raise InvalidInputError(
                f"must be 1 <= `top_n` <= `candidates` <= `max_candidates`, got {top_n}, "
                f"{candidates} and {max_candidates}"
            )
        if score not in get_args(Score):
            raise InvalidInputError(f"`score` must be one of {get_args(Score)}, got {score!r}")
        if not isinstance(index, VectorStoreIndex):
            raise InvalidInputError(
                f"`index` must be a VectorStoreIndex, got {type(index).__name__}; "
                f"VectorStoreIndex.from_vector_store makes one of a store"
            )
        given: dict[str, Any] = {"count_tokens": None, **options}
        search = {name: given.pop(name) for name in SearchOptions.__annotations__ if name in given}
        given["count_tokens"] = given["count_tokens"] or count_tokens
        self._options = ChoiceOptions(n_select=top_n, n_candidates=candidates, **given)
        self._apart = takes_several(self._options.selector)
        self._score: Score = score
        self._keep_embeddings = keep_embeddings
        self._embed_model = embed_model or index._embed_model  # no public accessor
        self._source: CandidateSource = IndexSource(
            index,
            self._embed_model,
            use_scores=use_scores,
            vectors=vectors,
            filters=filters,
            **search,
        )
        if max_candidates is not None:
            self._source = OversamplingSource(
                self._source,
                n_select=top_n,
                max_candidates=max_candidates,
                prefer=self._options.newness,
            )
        super().__init__(
            callback_manager=callback_manager or index._callback_manager,
            object_map=index._object_map,
            verbose=verbose,
        )
        track_retrievals()  # so that a SIFTReranker after it finds the vectors too

    @classmethod
    def from_index(
        cls,
        index: VectorStoreIndex,
        top_n: int = 10,
        candidates: int = 200,
        filters: MetadataFilters | None = None,
        **settings: Any,
    ) -> SIFTRetriever:
        """Return a retriever over an index; `settings` are the constructor's."""
        return cls(index, top_n=top_n, candidates=candidates, filters=filters, **settings)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        target = query_embedding(query_bundle, lambda: self._embed_model, apart=self._apart)
        # LlamaIndex's retrievers leave it for others.
        query_bundle.embedding = np.atleast_2d(target).mean(axis=0).tolist()
        query = query_of(query_bundle, target)
        return self._found(search(self._source, query, self._options))

    @_dispatcher.span  # LlamaIndex gives the sync twin one by itself
    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        await turn_of_ones_own()  # many queries can be asked in one
        target = await aquery_embedding(query_bundle, lambda: self._embed_model, apart=self._apart)
        query = query_of(query_bundle, target)
        return self._found(await asearch(self._source, query, self._options))

    def _found(self, chosen: Chosen) -> list[NodeWithScore]:
        return chosen_nodes(chosen, score=self._score, keep_embeddings=self._keep_embeddings)


class IndexSource:
    """Searches an index as LlamaIndex's own retriever does, and gets the vectors as well.

    A `sift_core.CandidateSource` of pools from `node_pool`. One trip to the store is enough: Qdrant
    sends vectors along with the hits, Faiss and the simple store have them in memory. Any number of
    threads and tasks may use it at once.

    Args:
        index: The index to search.
        embed_model: Embeds nodes without a vector.
        use_scores: As in `node_pool`.
        vectors: Looks up vectors that the store does not give, as in `sift_core.vectors_by_id`.
        **options: Arguments of `VectorIndexRetriever`, such as `filters`. None: its default.

    Raises:
        InvalidInputError: If the store would ignore an option, or choose by itself.
        ValueError: If there is no such `vector_store_query_mode`.
    """

    def __init__(
        self,
        index: VectorStoreIndex,
        embed_model: BaseEmbedding,
        *,
        use_scores: bool | None,
        vectors: VectorsById | None,
        **options: Any,
    ) -> None:
        self._store = store_of(index)
        self._embed_model = embed_model
        self._use_scores = use_scores
        self._missing = (lambda: embed_model), self._store.name, vectors
        self._options = {name: value for name, value in options.items() if value is not None}
        self._check_options(type(index.vector_store).__name__)

    def _check_options(self, store_name: str) -> None:
        options = self._options
        for name in self._store.ignored:
            if name in options:
                raise InvalidInputError(
                    f"{store_name} cannot take `{name}` into account; "
                    f"leave it out, or keep the nodes in a store that can, such as Qdrant"
                )
        for name in ("node_ids", "doc_ids"):
            if name in options and not len(options[name]):  # stores take it for no restriction
                raise InvalidInputError(f"`{name}` must not be empty; pass None for all")
        mode = VectorStoreQueryMode(options.get("vector_store_query_mode", "default"))
        options["vector_store_query_mode"] = mode
        if mode == VectorStoreQueryMode.MMR:
            raise InvalidInputError(
                "`vector_store_query_mode` must not be 'mmr': it would choose before SIFT can, and "
                "Qdrant and Faiss ignore it; leave it out"
            )
        if mode not in self._store.modes:
            raise InvalidInputError(
                f"{store_name} would not search by `vector_store_query_mode` {mode.value!r}; "
                f"leave it out (Qdrant has 'hybrid' and 'sparse' with `enable_hybrid=True`)"
            )

    def fetch(self, query: Query, n_candidates: int, *, filter: Any = None) -> CandidatePool:
        """Return up to `n_candidates` nodes as a pool; `filter` is not used.

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
        vectors = node_vectors(nodes, vectors_of(ids_of(nodes)), *self._missing)
        return node_pool(query.vector, nodes, vectors, use_scores=self._use_scores)

    async def afetch(self, query: Query, n_candidates: int, *, filter: Any = None) -> CandidatePool:
        """Return what `fetch` returns; a store without an async side is asked in a thread.

        Qdrant is asked at a pace (`sift_core.pacing`), so that answers do not block the event loop.
        """
        async with self._store.turn(n_candidates, len(query.vector)):
            if not self._store.is_awaited:
                return await asyncio.to_thread(self.fetch, query, n_candidates)
            with self._search(n_candidates) as (retriever, vectors_of):
                nodes = await retriever._aretrieve(_bundle(query))
            vectors = await anode_vectors(nodes, vectors_of(ids_of(nodes)), *self._missing)
            return node_pool(query.vector, nodes, vectors, use_scores=self._use_scores)

    @contextmanager
    def _search(
        self, n: int
    ) -> Iterator[tuple[VectorIndexRetriever, Callable[[Sequence[str]], Vectors]]]:
        """Yield a retriever for one search of n nodes, and a function that has its hits' vectors.

        Raises:
            CandidateSourceError: If the body raises anything.
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


def _bundle(query: Query) -> QueryBundle:
    return QueryBundle(query.text, embedding=query.vector.tolist())
