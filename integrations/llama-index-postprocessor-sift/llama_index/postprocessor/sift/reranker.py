"""The postprocessor: nodes in, one call to a selector, chosen copies of them out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Literal

from llama_index.core import VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import (
    ConfigDict,
    Field,
    PrivateAttr,
    WithJsonSchema,
)
from llama_index.core.callbacks import CBEventType, EventPayload
from llama_index.core.instrumentation import (  # type: ignore[attr-defined]  # implicit re-export
    get_dispatcher,
)
from llama_index.core.instrumentation.events.rerank import ReRankEndEvent, ReRankStartEvent
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle

from llama_index.postprocessor.sift.nodes import (
    choose_nodes,
    distinct_nodes,
    node_pool,
    takes_several,
)
from llama_index.postprocessor.sift.stores import VectorsById
from llama_index.postprocessor.sift.tracking import track_retrievals
from llama_index.postprocessor.sift.vectors import VectorLookup, Vectors
from sift_core import ChoiceRules, Selector, turn_of_ones_own

_dispatcher = get_dispatcher(__name__)
_logger = logging.getLogger(__name__)

_NotInSchema = WithJsonSchema({"type": "null"})  # live objects have no JSON


class SIFTReranker(BaseNodePostprocessor):
    """Keeps the nodes that together say most about the query, in order of choice.

    Put it into a query engine with a large `similarity_top_k`. Vectors are taken from the
    vector store that the engine's retriever searched; see `index` for when it cannot be
    found. Scores of a reranker before are used, see `use_scores`. A node's `score` becomes the
    variance at the query before it was chosen, which never rises, so sorting by score keeps
    the order. What `sift_core.pick_metadata` says of it ("similarity", "score", "relevance",
    "redundancy", "gain", "variance") is in `metadata["sift"]`, hidden from the LLM and from
    embedding models. A node that arrives twice is kept once. With `merge_neighbors` a node may have
    the text of several, whose ids are in `metadata["sift"]["chunks"]`. Of a query with several
    `embedding_strs`, as a HyDE transform makes, each has its turns in the choice of a
    `ContextSelector`; retrievers look for their mean.

    `selector`, `tokenizer`, `index`, `vectors` and `embed_model` are shared by copies and are not
    in `to_dict` or JSON, which log a warning that a selector is missing. A pickle has selector and
    tokenizer.
    """

    model_config = ConfigDict(extra="forbid")

    top_n: int = Field(default=10, ge=1, description="How many nodes to keep at most.")
    max_tokens: int | None = Field(
        default=None,
        ge=1,
        description="How many tokens the kept nodes may have together, as an LLM reads them; "
        "of those that still fit the one that tells most for its length is next.",
    )
    max_per_document: int | None = Field(
        default=None, ge=1, description="How many nodes of one `ref_doc_id` to keep at most."
    )
    newest: str | None = Field(
        default=None,
        description="The metadata key of a date (ISO text, datetime, or seconds since 1970): of "
        "near-duplicates the newest is kept. A node without one is the oldest.",
    )
    half_life_days: float | None = Field(
        default=None,
        gt=0,
        description="With `newest`: a node so many days older than the newest one that arrived "
        "counts half as much.",
    )
    merge_neighbors: bool = Field(
        default=False,
        description="Kept nodes of one `ref_doc_id` that touch, or have one other node between "
        "them which fits, become one node with the text of all.",
    )
    use_scores: bool | None = Field(
        default=None,
        description="Take the order of the nodes' scores for their relevance, as after a "
        "cross-encoder or a hybrid search. None: where they say more than cosines.",
    )
    score: Literal["variance", "similarity"] = Field(
        default="variance",
        description="What a kept node's score is: the variance at the query before it, which falls "
        "from 1, or its cosine with the query, for a SimilarityPostprocessor that cuts by it.",
    )
    keep_embeddings: bool = Field(
        default=False, description="Put the vectors used on the returned nodes."
    )
    selector: Annotated[Selector | None, _NotInSchema] = Field(
        default=None,
        exclude=True,
        description="What chooses: any of sift_core, or your own; None: ContextSelector().",
    )
    tokenizer: Annotated[Callable[[str], Sequence[Any]] | None, _NotInSchema] = Field(
        default=None,
        exclude=True,
        repr=False,
        description="Counts tokens, if not Settings.tokenizer.",
    )
    index: Annotated[VectorStoreIndex | None, _NotInSchema] = Field(
        default=None,
        exclude=True,
        repr=False,
        description="Where the vectors are, if not in the index that was just searched.",
    )
    vectors: Annotated[VectorsById | None, _NotInSchema] = Field(
        default=None,
        exclude=True,
        repr=False,
        description="From a list of node ids to a mapping of ids to vectors: looks up those that "
        "no index gives.",
    )
    embed_model: Annotated[BaseEmbedding | None, _NotInSchema] = Field(
        default=None,
        exclude=True,
        repr=False,
        description="Embeds what has no vector, if not the index's own model.",
    )

    _warned_of_few_nodes: bool = PrivateAttr(default=False)

    def model_post_init(self, context: Any, /) -> None:
        """Start watching retrievers, so that their stores are known when nodes arrive."""
        super().model_post_init(context)
        self._rules.check(self.selector)
        track_retrievals()

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which LlamaIndex serialises it."""
        return "SIFTReranker"

    def to_dict(self, **kwargs: Any) -> dict[str, Any]:
        """Return the settings, without selector, index and model."""
        if self.selector is not None:
            _logger.warning(
                "the settings of SIFTReranker leave out selector=%r; pass it again to what is "
                "made of them, which chooses by ContextSelector() otherwise",
                self.selector,
            )
        return super().to_dict(**kwargs)

    def __getstate__(self) -> dict[str, Any]:
        """Return the settings; index, look-up and model are not sent along."""
        gone = {"index": None, "vectors": None, "embed_model": None}
        settings = self.model_copy(update=gone)
        return super(SIFTReranker, settings).__getstate__()

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> SIFTReranker:
        """Return a copy that shares the selector, the index and the model."""
        shared = (self.selector, self.tokenizer, self.index, self.vectors, self.embed_model)
        live = [each for each in shared if each is not None]
        return super().__deepcopy__({**(memo or {}), **{id(each): each for each in live}})

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        query = _required(query_bundle)
        if not nodes:
            return []
        with self._reported(nodes, query) as chosen:
            candidates = self._candidates(nodes)
            vectors = self._lookup().vectors(query, candidates)
            chosen += self._chosen(candidates, vectors)
        return chosen

    @_dispatcher.span  # LlamaIndex gives the sync twin one by itself
    async def _apostprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        query = _required(query_bundle)
        if not nodes:
            return []
        await turn_of_ones_own()  # many retrievals that were awaited can end in one
        with self._reported(nodes, query) as chosen:
            candidates = self._candidates(nodes)
            vectors = await self._lookup().avectors(query, candidates)
            chosen += await asyncio.to_thread(self._chosen, candidates, vectors)
        return chosen

    def _candidates(self, nodes: list[NodeWithScore]) -> list[NodeWithScore]:
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
        return distinct_nodes(nodes)

    @property
    def _rules(self) -> ChoiceRules:
        return ChoiceRules(
            max_tokens=self.max_tokens,
            max_per_document=self.max_per_document,
            newest=self.newest,
            half_life_days=self.half_life_days,
            merge_neighbors=self.merge_neighbors,
        )

    def _lookup(self) -> VectorLookup:
        return VectorLookup(
            index=self.index,
            embed_model=self.embed_model,
            given=self.vectors,
            apart=takes_several(self.selector),
        )

    def _chosen(self, nodes: list[NodeWithScore], vectors: Vectors) -> list[NodeWithScore]:
        pool = node_pool(
            vectors.query,
            nodes,
            vectors.nodes,
            node_ids=vectors.node_ids,
            use_scores=self.use_scores,
        )
        return choose_nodes(
            pool,
            vectors.query,
            self.top_n,
            selector=self.selector,
            rules=self._rules,
            tokenizer=self.tokenizer,
            keep_embeddings=self.keep_embeddings,
            score=self.score,
        )

    @contextmanager
    def _reported(
        self, nodes: list[NodeWithScore], query: QueryBundle
    ) -> Iterator[list[NodeWithScore]]:
        """Report what arrived, yield an empty list, and report what the body put into it.

        A body that raises is reported to the callbacks as a failure and has no end event,
        like in LlamaIndex's own rerankers.
        """
        chosen: list[NodeWithScore] = []
        name = self.class_name()
        payload: dict[str, Any] = {
            EventPayload.NODES: nodes,
            EventPayload.MODEL_NAME: name,
            EventPayload.QUERY_STR: query.query_str,
            EventPayload.TOP_K: self.top_n,
        }
        _dispatcher.event(
            ReRankStartEvent(query=query, nodes=nodes, top_n=self.top_n, model_name=name)
        )
        with self.callback_manager.event(CBEventType.RERANKING, payload=payload) as event:
            yield chosen
            event.on_end(payload={EventPayload.NODES: chosen})
        _dispatcher.event(ReRankEndEvent(nodes=chosen))


def _required(query_bundle: QueryBundle | None) -> QueryBundle:
    if query_bundle is None:
        raise ValueError("Missing query bundle in extra info.")  # the framework's own words
    return query_bundle
