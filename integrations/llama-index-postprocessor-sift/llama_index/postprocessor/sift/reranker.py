"""The postprocessor: nodes in, one choice, copies of the chosen ones out."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, ClassVar, TypeAlias, TypeVar

from llama_index.core import VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import ConfigDict, Field, PrivateAttr, WithJsonSchema
from llama_index.core.callbacks import CBEventType, EventPayload
from llama_index.core.instrumentation import (  # type: ignore[attr-defined]  # implicit re-export
    get_dispatcher,
)
from llama_index.core.instrumentation.events.rerank import ReRankEndEvent, ReRankStartEvent
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle

from llama_index.postprocessor.sift.nodes import (
    Score,
    chosen_nodes,
    count_tokens,
    distinct_nodes,
    takes_several,
)
from llama_index.postprocessor.sift.stores import VectorsById
from llama_index.postprocessor.sift.tracking import track_retrievals
from llama_index.postprocessor.sift.vectors import VectorLookup
from sift_core import ChoiceOptions, achoose, choose
from sift_core.option_fields import ChoiceFields
from sift_core.pacing import turn_of_ones_own
from sift_core.plugins import SeenFacts, run_blocking

_dispatcher = get_dispatcher(__name__)
_logger = logging.getLogger(__name__)

_T = TypeVar("_T")
_Live: TypeAlias = Annotated[_T | None, WithJsonSchema({"type": "null"})]


def _live(description: str) -> Any:
    """Return a field for an object that has no JSON."""
    return Field(default=None, exclude=True, repr=False, description=description)


class SIFTReranker(ChoiceFields, BaseNodePostprocessor):
    """Keeps the nodes that together say most about the query, in order of choice.

    Put it into a query engine with a large `similarity_top_k`. It takes vectors from the vector
    store that the engine's retriever searched, and uses the scores of a reranker before it.
    The score of a kept node is the variance before it, so that a sort by score keeps the order.
    Why a node was kept (`sift_core.Pick.as_dict`) is in `metadata["sift"]`, hidden from the LLM and
    from embedding models. A node that arrives twice is kept once. If a query has several
    `embedding_strs`, a `ContextSelector` chooses for each in turn.

    By default words count beside vectors: the `query_str` of the query, or each of its
    `embedding_strs`, and the text of a node without its metadata.

    The options of `sift_core.ChoiceOptions` are fields too; `hops` does nothing. The document of a
    node is named by its metadata under `document_key`, else by `ref_doc_id`. Its start is
    `start_char_idx`. Tokens are those of its text for an LLM, counted by `count_tokens`. Default:
    by `Settings.tokenizer`.

    Copies share the selector and all other objects. `to_dict` and JSON leave them out, with a
    logged warning if there is a selector. A pickle leaves out `index`, `vectors` and `embed_model`.

    Example:
        >>> reranker = SIFTReranker(top_n=2)
        >>> nodes = index.as_retriever(similarity_top_k=4).retrieve(question)
        >>> chosen = reranker.postprocess_nodes(nodes, query_str=question)
        >>> [node.node_id for node in chosen]
        ['prices', 'copy']
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    top_n: int = Field(default=10, ge=1, description="How many nodes to keep at most.")
    use_scores: bool | None = Field(
        default=None,
        description="Take the order of the nodes' scores for their relevance, as after a "
        "cross-encoder or a hybrid search. Default: if they say more than the cosines do.",
    )
    score: Score = Field(
        default="variance",
        description="Score of a kept node: the variance at the query before it, which falls "
        "from 1, or its cosine with the query, for a SimilarityPostprocessor that cuts by it.",
    )
    keep_embeddings: bool = Field(
        default=False, description="Put the vectors on the returned nodes."
    )
    index: _Live[VectorStoreIndex] = _live(
        "Index that holds the vectors. Default: the one that was just searched."
    )
    vectors: _Live[VectorsById] = _live(
        "Function from a list of node ids to a mapping of ids to vectors, for those that no index "
        "gives."
    )
    embed_model: _Live[BaseEmbedding] = _live(
        "Model that embeds nodes without a vector. Default: the index's own."
    )

    _seen: SeenFacts = PrivateAttr(default_factory=SeenFacts)

    def model_post_init(self, context: Any, /) -> None:
        """Check the options together, and begin to note which indexes retrievers read."""
        super().model_post_init(context)
        self._options()
        track_retrievals()

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which LlamaIndex serialises it."""
        return "SIFTReranker"

    def to_dict(self, **kwargs: Any) -> dict[str, Any]:
        """Return the settings without the objects that have no JSON."""
        if self.selector is not None:
            _logger.warning(
                "the settings of SIFTReranker leave out selector=%r; pass it again to what is "
                "made of them, which chooses by ContextSelector() otherwise",
                self.selector,
            )
        return super().to_dict(**kwargs)

    def __getstate__(self) -> dict[str, Any]:
        """Return the settings without `index`, `vectors` and `embed_model`."""
        gone = {"index": None, "vectors": None, "embed_model": None}
        settings = self.model_copy(update=gone)
        return super(SIFTReranker, settings).__getstate__()

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> SIFTReranker:
        """Return a copy that shares the objects that have no JSON."""
        excluded = [name for name, one in type(self).model_fields.items() if one.exclude]
        live = [getattr(self, name) for name in excluded if name != "callback_manager"]
        return super().__deepcopy__({**(memo or {}), **{id(each): each for each in live}})

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        return run_blocking(self._chosen(nodes, query_bundle, is_awaited=False))

    @_dispatcher.span  # LlamaIndex gives the sync twin one by itself
    async def _apostprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        return await self._chosen(nodes, query_bundle, is_awaited=True)

    async def _chosen(
        self, nodes: list[NodeWithScore], query: QueryBundle | None, *, is_awaited: bool
    ) -> list[NodeWithScore]:
        if query is None:
            raise ValueError("Missing query bundle in extra info.")  # the framework's own words
        if not nodes:
            return []
        if is_awaited:
            await turn_of_ones_own()  # many retrievals that were awaited can end in one
        lookup = VectorLookup(
            index=self.index,
            embed_model=self.embed_model,
            given=self.vectors,
            apart=takes_several(self.selector),
            use_scores=self.use_scores,
        )
        with self._reported(nodes, query) as kept:
            candidates = lookup.candidates(query, self._distinct(nodes), is_awaited=is_awaited)
            asked = *(await candidates), self._options()
            chosen = await achoose(*asked) if is_awaited else choose(*asked)
            kept += chosen_nodes(chosen, score=self.score, keep_embeddings=self.keep_embeddings)
        return kept

    def _distinct(self, nodes: list[NodeWithScore]) -> list[NodeWithScore]:
        """Return each node once; warn if there are too few to choose from, once for each number."""
        message = (
            f"{len(nodes)} nodes arrived for top_n={self.top_n}, so there is nothing to choose "
            f"from; raise the retriever's similarity_top_k (LlamaIndex's default is 2) to about "
            f"200, or take SIFTRetriever.from_index, which fetches enough by itself"
        )
        if len(nodes) <= self.top_n and self._seen.add(message):
            _logger.warning("%s", message)
        return distinct_nodes(nodes)

    def _options(self) -> ChoiceOptions:
        counter = self.count_tokens or count_tokens
        return self.choice_options(n_select=self.top_n, count_tokens=counter)

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
