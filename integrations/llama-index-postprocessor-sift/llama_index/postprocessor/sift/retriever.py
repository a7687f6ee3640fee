"""The retriever: one oversampled search of an index, and the nodes that together say most."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from llama_index.core import VectorStoreIndex
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.callbacks import CallbackManager
from llama_index.core.instrumentation import (  # type: ignore[attr-defined]  # implicit re-export
    get_dispatcher,
)
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index.core.vector_stores import MetadataFilters
from llama_index.core.vector_stores.types import VectorStoreQueryMode

from llama_index.postprocessor.sift.index_source import IndexSource
from llama_index.postprocessor.sift.nodes import (
    choose_nodes,
    metadata_of,
    nodes_of,
    query_of,
    takes_several,
)
from llama_index.postprocessor.sift.stores import VectorsById
from llama_index.postprocessor.sift.tracking import (
    aquery_embedding,
    query_embedding,
    track_retrievals,
)
from sift_core import (
    CandidatePool,
    CandidateSource,
    ChoiceRules,
    ContextSelector,
    InvalidInputError,
    OversamplingSource,
    Query,
    Selector,
    afetch_for_all,
    check_score,
    fetch_for_all,
    turn_of_ones_own,
)

_dispatcher = get_dispatcher(__name__)


class SIFTRetriever(BaseRetriever):
    """Finds the nodes of an index that together say most about the query, in order of choice.

    Fetches many candidates with their vectors in one trip to the store, filters pushed down,
    and chooses among them as `SIFTReranker` does; nodes come back with the same scores and
    metadata. Works wherever LlamaIndex takes a retriever, awaited or not. A query with several
    `embedding_strs`, as a HyDE transform makes, is looked for by each (`candidates` of each), and
    a `ContextSelector` chooses for all in turns; LlamaIndex's retrievers take the mean.

    Args:
        index: Over any vector store; nodes of others than Chroma, Qdrant, Faiss and
            SimpleVectorStore are looked up by `vectors`, or embedded, with a logged warning.
        top_n: How many nodes to return at most, >= 1.
        candidates: How many nodes to fetch and choose from, >= `top_n`.
        filters: Metadata filters, applied by the store.
        selector, score, keep_embeddings, max_tokens, max_per_document: As in `SIFTReranker`.
        tokenizer, newest, half_life_days, merge_neighbors: Likewise.
        use_scores: Whether the store's scores count for relevance, as those of a hybrid search.
        max_candidates: Fetch again, up to so many, where candidates are mostly versions of
            few texts; at most twice. None for exactly one trip a query. (LlamaIndex's Qdrant
            store asks once more, before the first awaited query, how vectors are named.)
        vectors: From a list of node ids to a mapping of ids to vectors: looks up those that the
            store does not give.
        embed_model: Embeds queries, if not the index's own model.
        callback_manager, verbose: As in LlamaIndex; the manager is the index's by default.
        node_ids, doc_ids, vector_store_query_mode, vector_store_kwargs: As in
            `index.as_retriever`, where the store heeds them.
        alpha, sparse_top_k, hybrid_top_k: Likewise, for hybrid searches.

    Raises:
        InvalidInputError: If a number is out of its range, or the store would ignore an option.
        ValueError: If there is no such `vector_store_query_mode`.
    """

    def __init__(
        self,
        index: VectorStoreIndex,
        *,
        top_n: int = 10,
        candidates: int = 200,
        filters: MetadataFilters | None = None,
        selector: Selector | None = None,
        use_scores: bool | None = None,
        score: str = "variance",
        keep_embeddings: bool = False,
        max_tokens: int | None = None,
        max_per_document: int | None = None,
        tokenizer: Callable[[str], Sequence[Any]] | None = None,
        newest: str | None = None,
        half_life_days: float | None = None,
        merge_neighbors: bool = False,
        max_candidates: int | None = None,
        vectors: VectorsById | None = None,
        embed_model: BaseEmbedding | None = None,
        callback_manager: CallbackManager | None = None,
        verbose: bool = False,
        node_ids: Sequence[str] | None = None,
        doc_ids: Sequence[str] | None = None,
        vector_store_query_mode: VectorStoreQueryMode | str = VectorStoreQueryMode.DEFAULT,
        alpha: float | None = None,
        sparse_top_k: int | None = None,
        hybrid_top_k: int | None = None,
        vector_store_kwargs: dict[str, Any] | None = None,
    ) -> None:
        if not 1 <= top_n <= candidates <= (max_candidates or candidates):
            raise InvalidInputError(
                f"must be 1 <= `top_n` <= `candidates` <= `max_candidates`, got {top_n}, "
                f"{candidates} and {max_candidates}"
            )
        self._top_n = top_n
        self._candidates = candidates
        self._selector = selector or ContextSelector()
        self._rules = ChoiceRules(
            max_tokens=max_tokens,
            max_per_document=max_per_document,
            newest=newest,
            half_life_days=half_life_days,
            merge_neighbors=merge_neighbors,
        )
        self._rules.check(self._selector)
        self._apart = takes_several(self._selector)
        self._tokenizer = tokenizer
        check_score(score)
        self._score = score
        self._keep_embeddings = keep_embeddings
        self._source: CandidateSource = IndexSource(
            index,
            embed_model,
            use_scores=use_scores,
            vectors=vectors,
            filters=filters,
            node_ids=node_ids,
            doc_ids=doc_ids,
            vector_store_query_mode=vector_store_query_mode,
            alpha=alpha,
            sparse_top_k=sparse_top_k,
            hybrid_top_k=hybrid_top_k,
            vector_store_kwargs=vector_store_kwargs,
        )
        if max_candidates is not None:
            self._source = OversamplingSource(
                self._source,
                n_select=top_n,
                max_candidates=max_candidates,
                prefer=lambda pool: self._rules.newness(metadata_of(nodes_of(pool))),
            )
        self._embed_model = embed_model or index._embed_model  # no public accessor
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
        return self._chosen(query, fetch_for_all(self._source, query, self._candidates))

    @_dispatcher.span  # LlamaIndex gives the sync twin one by itself
    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        await turn_of_ones_own()  # many queries can be asked in one
        target = await aquery_embedding(query_bundle, lambda: self._embed_model, apart=self._apart)
        query = query_of(query_bundle, target)
        pool = await afetch_for_all(self._source, query, self._candidates)
        return await asyncio.to_thread(self._chosen, query, pool)

    def _chosen(self, query: Query, pool: CandidatePool) -> list[NodeWithScore]:
        if not len(pool):
            return []
        return choose_nodes(
            pool,
            query.vectors,
            self._top_n,
            selector=self._selector,
            rules=self._rules,
            tokenizer=self._tokenizer,
            keep_embeddings=self._keep_embeddings,
            score=self._score,
        )
