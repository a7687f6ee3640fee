"""The postprocessor: nodes in, one call to the core, chosen copies of them out."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
from llama_index.core import Settings, VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import (
    ConfigDict,
    Field,
    PrivateAttr,
    WithJsonSchema,
    model_validator,
)
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle

from llama_index.postprocessor.sift.chosen_nodes import chosen_nodes
from llama_index.postprocessor.sift.embeddings import (
    Matrix,
    anode_embeddings,
    aquery_embedding,
    node_embeddings,
    query_embedding,
)
from llama_index.postprocessor.sift.rerank_events import reported
from llama_index.postprocessor.sift.retriever_tracking import (
    VectorSource,
    sources_of,
    track_retrievals,
)
from llama_index.postprocessor.sift.stored_vectors import Vector
from sift_core import (
    ContextSelector,
    InvalidInputError,
    Selection,
    SIFTSelector,
    selector_from_settings,
)

_logger = logging.getLogger(__name__)
_NotInSchema = WithJsonSchema({"type": "null"})  # live objects have no JSON


class SIFTReranker(BaseNodePostprocessor):
    """Keeps the nodes that together say most about the query, in order of choice.

    Put it into a query engine with a large `similarity_top_k`. Vectors are taken from the
    vector store that the engine's retriever searched; see `index` for when it cannot be
    found. A node's `score` becomes the variance at the query before it was chosen, which
    never rises, so sorting by score keeps the order; the score that it came with and its
    gain are in `metadata["sift"]`, hidden from the LLM and from embedding models.
    """

    model_config = ConfigDict(extra="forbid")

    top_n: int = Field(default=10, ge=1, description="How many nodes to keep at most.")
    kernel: Literal["auto", "rbf", "linear"] = Field(
        default="auto",
        description="How one text informs about another: auto reads its scales from the nodes, "
        "with the neighbourhood of the query as the target; linear is the paper's.",
    )
    use_scores: bool = Field(
        default=False,
        description="Take the order of the nodes' scores for their relevance, as after a "
        "cross-encoder; auto only.",
    )
    length_scale: float | None = Field(
        default=None,
        gt=0,
        description="Distance over which texts inform about each other; rbf only.",
    )
    noise_variance: float | None = Field(
        default=None,
        gt=0,
        description="Larger values choose closer to the query and allow more overlap.",
    )
    alpha: float | None = Field(
        default=None, gt=0, description="Stop early; larger values stop earlier."
    )
    keep_embeddings: bool = Field(
        default=False, description="Put the vectors used on the returned nodes."
    )
    index: Annotated[VectorStoreIndex | None, _NotInSchema] = Field(
        default=None,
        exclude=True,
        repr=False,
        description="Where the vectors are, if not in the index that was just searched.",
    )
    embed_model: Annotated[BaseEmbedding | None, _NotInSchema] = Field(
        default=None,
        exclude=True,
        repr=False,
        description="Embeds what has no vector, if not the index's own model.",
    )
    _warned_of_few_nodes: bool = PrivateAttr(default=False)

    @model_validator(mode="after")
    def _settings_fit_together(self) -> SIFTReranker:
        self._selector()
        if self.use_scores and self.kernel != "auto":
            raise InvalidInputError(
                f'`use_scores` has no effect with kernel={self.kernel!r}; pass kernel="auto"'
            )
        return self

    def model_post_init(self, context: Any, /) -> None:
        """Start watching retrievers, so that their stores are known when nodes arrive."""
        super().model_post_init(context)
        track_retrievals()

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which LlamaIndex serialises it."""
        return "SIFTReranker"

    def __getstate__(self) -> dict[str, Any]:
        """Return the settings; an index or a model is not sent along."""
        settings = self.model_copy(update={"index": None, "embed_model": None})
        return super(SIFTReranker, settings).__getstate__()

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> SIFTReranker:
        """Return a copy that shares the index and the model."""
        memo = {} if memo is None else memo
        memo |= {id(live): live for live in (self.index, self.embed_model) if live is not None}
        return super().__deepcopy__(memo)

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        query = _required(query_bundle)
        if not nodes:
            return []
        with self._reported(nodes, query) as chosen:
            sources = self._sources(nodes)
            model = partial(self._model, sources)
            target = query_embedding(query, model)
            embeddings = node_embeddings(nodes, sources, model)
            chosen += self._choose(nodes, target, embeddings)
        return chosen

    async def _apostprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        query = _required(query_bundle)
        if not nodes:
            return []
        with self._reported(nodes, query) as chosen:
            sources = self._sources(nodes)
            model = partial(self._model, sources)
            target = await aquery_embedding(query, model)
            embeddings = await anode_embeddings(nodes, sources, model)
            chosen += self._choose(nodes, target, embeddings)
        return chosen

    def _choose(
        self, nodes: list[NodeWithScore], target: Vector, embeddings: Matrix
    ) -> list[NodeWithScore]:
        """Return copies of the nodes that the core selects."""
        if len(nodes) <= self.top_n and not self._warned_of_few_nodes:
            self._warned_of_few_nodes = True
            _logger.warning(
                "%d nodes arrived for top_n=%d, so there is nothing to choose from; raise the "
                "retriever's similarity_top_k (LlamaIndex's default is 2), to about 200",
                len(nodes),
                self.top_n,
            )
        selection = self._select(nodes, target, embeddings)
        kept = embeddings if self.keep_embeddings else None
        return chosen_nodes(nodes, selection, embeddings=kept)

    def _select(self, nodes: list[NodeWithScore], target: Vector, embeddings: Matrix) -> Selection:
        selector = self._selector()
        if isinstance(selector, ContextSelector) and self.use_scores:
            scores = np.array([_score(node) for node in nodes])
            return selector.select(target, embeddings, self.top_n, relevance=scores)
        return selector.select(target, embeddings, self.top_n)

    def _selector(self) -> ContextSelector | SIFTSelector:
        return selector_from_settings(
            kernel=self.kernel,
            length_scale=self.length_scale,
            noise_variance=self.noise_variance,
            alpha=self.alpha,
        )

    def _reported(
        self, nodes: list[NodeWithScore], query: QueryBundle
    ) -> AbstractContextManager[list[NodeWithScore]]:
        return reported(
            nodes,
            query,
            top_n=self.top_n,
            model_name=self.class_name(),
            callback_manager=self.callback_manager,
        )

    def _sources(self, nodes: Sequence[NodeWithScore]) -> list[VectorSource]:
        if self.index is not None:
            return [VectorSource.of_index(self.index)]
        return sources_of(node.node.node_id for node in nodes)

    def _model(self, sources: Sequence[VectorSource]) -> BaseEmbedding:
        if self.embed_model is not None:
            return self.embed_model
        return sources[0].embed_model if sources else Settings.embed_model


def _score(node: NodeWithScore) -> float:
    if node.score is None:
        raise InvalidInputError(
            f"node {node.node.node_id!r} has no score to take its relevance from; leave "
            f"`use_scores` out, or put SIFTReranker after a postprocessor that gives scores"
        )
    return node.score


def _required(query_bundle: QueryBundle | None) -> QueryBundle:
    if query_bundle is None:
        raise ValueError("Missing query bundle in extra info.")  # the framework's own words
    return query_bundle
