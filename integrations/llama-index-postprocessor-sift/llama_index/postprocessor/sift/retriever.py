"""The retriever: one oversampled search of an index, and the nodes that together say most."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import TYPE_CHECKING, Any, TypedDict, get_args

import numpy as np
from llama_index.core import VectorStoreIndex
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import ValidationError
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
from llama_index.postprocessor.sift.stores import Store, VectorsById, store_of
from llama_index.postprocessor.sift.tracking import track_retrievals
from llama_index.postprocessor.sift.vectors import node_vectors, query_embedding
from sift_core import (
    CandidatePool,
    CandidateSource,
    CandidateSourceError,
    ChoiceOptions,
    InvalidInputError,
    OversamplingSource,
    Query,
    asearch,
    search,
)
from sift_core.options import ChoiceKeywords, unknown_option
from sift_core.pacing import turn_of_ones_own
from sift_core.plugins import run_blocking

if TYPE_CHECKING:
    from typing_extensions import Unpack

IS_UP = "is it up, and does it still hold what was retrieved?"
OTHER_LAYOUT = (
    "did another tool fill it? LlamaIndex reads what it wrote itself; `sift_core.sources` has "
    "sources that also read the payloads of others"
)

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

    Example:
        >>> retriever = SIFTRetriever(index, top_n=2)
        >>> [node.node_id for node in retriever.retrieve("When does the ferry sail?")]
        ['copy', 'prices']
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
            numbers = [str(one) for one in (top_n, candidates, max_candidates) if one is not None]
            raise InvalidInputError(
                f"must be 1 <= `top_n` <= `candidates` <= `max_candidates`, got "
                f"{' and '.join(numbers)}; raise the later ones"
            )
        if score not in get_args(Score):
            raise InvalidInputError(f"`score` must be one of {get_args(Score)}, got {score!r}")
        if not isinstance(index, VectorStoreIndex):
            raise InvalidInputError(
                f"`index` must be a VectorStoreIndex, got {type(index).__name__}; "
                f"VectorStoreIndex.from_vector_store makes one of a store"
            )
        given: dict[str, Any] = {**options}
        search = {name: given.pop(name) for name in SearchOptions.__annotations__ if name in given}
        if unknown := given.keys() - ChoiceKeywords.__annotations__.keys():
            known = {*signature(SIFTRetriever).parameters, *RetrieverOptions.__annotations__}
            raise TypeError(unknown_option("SIFTRetriever", min(unknown), known - {"options"}))
        given["count_tokens"] = given.get("count_tokens") or count_tokens
        self._options = ChoiceOptions(n_select=top_n, n_candidates=candidates, **given)
        self._apart = takes_several(self._options.selector)
        self._score: Score = score
        self._keep_embeddings = keep_embeddings
        self._embed_model = embed_model or index._embed_model  # no public accessor
        store = store_of(index)
        asked = checked_options(store, {"filters": filters, **search})
        self._source: CandidateSource = IndexSource(
            store, self._embed_model, use_scores, vectors, asked
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
        return run_blocking(self._chosen(query_bundle, is_awaited=False))

    @_dispatcher.span  # LlamaIndex gives the sync twin one by itself
    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        await turn_of_ones_own()  # many queries can be asked in one
        return await self._chosen(query_bundle, is_awaited=True)

    async def _chosen(self, bundle: QueryBundle, *, is_awaited: bool) -> list[NodeWithScore]:
        target = await query_embedding(
            bundle, lambda: self._embed_model, apart=self._apart, is_awaited=is_awaited
        )
        asked = self._source, query_of(bundle, target), self._options
        if is_awaited:
            chosen = await asearch(*asked)
        else:  # LlamaIndex's retrievers leave the vector for others where they are not awaited
            bundle.embedding = np.atleast_2d(target).mean(axis=0).tolist()
            chosen = search(*asked)
        return chosen_nodes(chosen, score=self._score, keep_embeddings=self._keep_embeddings)


@dataclass(frozen=True, eq=False)
class IndexSource:
    """Searches an index as LlamaIndex's own retriever does, and gets the vectors as well.

    A `sift_core.CandidateSource` of pools from `node_pool`. One trip to the store is enough: Qdrant
    sends vectors along with the hits, Faiss and the simple store have them in memory. Any number of
    threads and tasks may use it at once. `options` are those of `checked_options`, the others
    arguments of `SIFTRetriever`.
    """

    store: Store
    embed_model: BaseEmbedding
    use_scores: bool | None
    vectors: VectorsById | None
    options: Mapping[str, Any]

    def fetch(self, query: Query, n_candidates: int, *, filter: Any = None) -> CandidatePool:
        """Return up to `n_candidates` nodes as a pool; `filter` is not used.

        Raises:
            CandidateSourceError: If the store fails.
            InvalidInputError: If the store has an async client alone, or a Faiss index holds
                vectors of another length than the query's.
        """
        self.store.check_query(len(query.vector))
        if self.store.is_empty:
            return CandidatePool.empty(dimension=len(query.vector))
        return run_blocking(self._found(query, n_candidates, is_awaited=False))

    async def afetch(self, query: Query, n_candidates: int, *, filter: Any = None) -> CandidatePool:
        """Return what `fetch` returns; a store without an async side is asked in a thread.

        Qdrant is asked at a pace (`sift_core.pacing`), so that answers do not block the event loop.
        """
        async with self.store.turn(n_candidates, len(query.vector)):
            if not self.store.is_awaited:
                return await asyncio.to_thread(self.fetch, query, n_candidates)
            return await self._found(query, n_candidates, is_awaited=True)

    async def _found(self, query: Query, n: int, *, is_awaited: bool) -> CandidatePool:
        retriever = VectorIndexRetriever(
            self.store.index, similarity_top_k=n, embed_model=self.embed_model, **self.options
        )
        vectors_of = self.store.prepare(retriever)
        bundle = QueryBundle(query.text, embedding=query.vector.tolist())
        try:
            found = (
                await retriever._aretrieve(bundle) if is_awaited else retriever._retrieve(bundle)
            )
        except Exception as error:  # each store has exceptions of its own; none is swallowed
            reason = str(error) or type(error).__name__
            advice = OTHER_LAYOUT if isinstance(error, ValidationError) else IS_UP
            raise CandidateSourceError(
                f"{self.store.name} could not find {n} nodes: {reason}; {advice}"
            ) from error
        vectors = await node_vectors(
            found,
            vectors_of(ids_of(found)),
            lambda: self.embed_model,
            place=self.store.name,
            given=self.vectors,
            is_awaited=is_awaited,
        )
        return node_pool(query.vector, found, vectors, use_scores=self.use_scores)


def checked_options(store: Store, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `VectorIndexRetriever` that are given, None being its default.

    Raises:
        InvalidInputError: If the store would ignore one, or choose by itself.
        ValueError: If there is no such `vector_store_query_mode`.
    """
    given = {name: value for name, value in options.items() if value is not None}
    name_of_store = type(store.store).__name__
    for name in store.ignored:
        if name in given:
            raise InvalidInputError(
                f"{name_of_store} cannot take `{name}` into account; "
                f"leave it out, or keep the nodes in a store that can, such as Qdrant"
            )
    for name in ("node_ids", "doc_ids"):
        if name in given and not len(given[name]):  # stores take it for no restriction
            raise InvalidInputError(f"`{name}` must not be empty; leave it out to search all")
    mode = VectorStoreQueryMode(given.get("vector_store_query_mode", "default"))
    if mode == VectorStoreQueryMode.MMR:
        raise InvalidInputError(
            "`vector_store_query_mode` must not be 'mmr': it would choose before SIFT can, and "
            "Qdrant and Faiss ignore it; leave it out"
        )
    if mode not in store.modes:
        raise InvalidInputError(
            f"{name_of_store} would not search by `vector_store_query_mode` {mode.value!r}; "
            f"leave it out (Qdrant has 'hybrid' and 'sparse' with `enable_hybrid=True`)"
        )
    return {**given, "vector_store_query_mode": mode}
