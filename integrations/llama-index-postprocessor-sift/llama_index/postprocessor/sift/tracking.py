"""Which indexes the retrievers just now read, and the vectors that they made of queries.

LlamaIndex gives a postprocessor nodes and a query, never the retriever, and on the async path
not the query's vector either. Its instrumentation calls span handlers in the context of the
retriever's caller, sync and async alike, so a ContextVar set there is seen by the postprocessor
that runs next (decision 0005).
"""

from __future__ import annotations

import inspect
import threading
import weakref
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from llama_index.core import VectorStoreIndex
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.instrumentation import (  # type: ignore[attr-defined]  # implicit re-export
    get_dispatcher,
)
from llama_index.core.instrumentation.span import BaseSpan
from llama_index.core.instrumentation.span_handlers import BaseSpanHandler
from llama_index.core.retrievers import VectorIndexRetriever
from llama_index.core.schema import NodeWithScore

# Guess: nodes of several retrievals may be put together by hand before they are reranked.
N_REMEMBERED = 16

# Guess: of one query, its rewordings and hypothetical answers; each is a vector in memory.
N_EMBEDDED = 16

_registration = threading.Lock()


@dataclass(frozen=True, kw_only=True, eq=False)
class VectorSource:
    """A vector index and the model that embeds queries for it."""

    index: VectorStoreIndex
    embed_model: BaseEmbedding

    @classmethod
    def of_index(cls, index: VectorStoreIndex) -> VectorSource:
        """Return the source that an index is with its own model."""
        return cls(index=index, embed_model=index._embed_model)  # no public accessor


@dataclass(kw_only=True, eq=False)
class Retrieval:
    """What one outermost call of a retriever read.

    Tasks and threads that it starts copy the context and so share this object: the
    parts of a composed retriever report here wherever they run.
    """

    span_id: str
    is_open: bool = True
    node_ids: frozenset[str] = frozenset()
    # Weak: an index must not live longer because it was once searched.
    read: list[tuple[weakref.ref[VectorStoreIndex], weakref.ref[BaseEmbedding]]] = field(
        default_factory=list
    )
    embedded: dict[str, tuple[weakref.ref[BaseEmbedding], npt.NDArray[np.float64]]] = field(
        default_factory=dict
    )

    def note_embedding(self, text: str, model: BaseEmbedding, embedding: Sequence[float]) -> None:
        """Remember what a model made of a query text, shape (d,)."""
        if len(self.embedded) < N_EMBEDDED:
            vector = np.asarray(embedding, dtype=np.float64)
            self.embedded[text] = (weakref.ref(model), vector)

    def embedder_of(self, texts: Sequence[str]) -> BaseEmbedding | None:
        """Return the model that embedded a query here, if any did."""
        if not texts or texts[0] not in self.embedded:
            return None
        return self.embedded[texts[0]][0]()

    def sources(self) -> list[VectorSource]:
        """Return every index that was read and is still alive, once, in order of reading."""
        found: dict[int, VectorSource] = {}
        for index_ref, model_ref in self.read:
            index, model = index_ref(), model_ref()
            if index is None:
                continue
            source = VectorSource.of_index(index)
            if model is not None:
                source = VectorSource(index=index, embed_model=model)
            found.setdefault(id(index), source)
        return list(found.values())


_recent: ContextVar[tuple[Retrieval, ...]] = ContextVar("sift_recent_retrievals", default=())


def latest_retrieval() -> Retrieval | None:
    """Return the retrieval under way in this context, or else the last one."""
    recent = _recent.get()
    return recent[0] if recent else None


def sources_of(node_ids: Iterable[str]) -> list[VectorSource]:
    """Return the vector indexes behind nodes that were retrieved here, latest first.

    "Here" is the current context. A retrieval counts for the nodes that it returned and
    that no later search of an index returned, so that an earlier query's index is never
    taken for this one's. Indexes with another embedding model than the first are left
    out: their vectors cannot be compared.
    """
    unexplained = set(node_ids)
    found: dict[int, VectorSource] = {}
    for retrieval in _recent.get():
        if not unexplained:
            break
        if not retrieval.node_ids.isdisjoint(unexplained):
            for source in retrieval.sources():
                found.setdefault(id(source.index), source)
            if retrieval.read:  # others, like BM25, say nothing about vectors
                unexplained -= retrieval.node_ids
    sources = list(found.values())
    return [s for s in sources if is_same_model(s.embed_model, sources[0].embed_model)]


def is_same_model(one: BaseEmbedding, other: BaseEmbedding) -> bool:
    """Return whether two embedding models make comparable vectors, as far as they say."""
    if one is other:
        return True
    named_alike = type(one) is type(other) and one.model_name == other.model_name
    return named_alike and one.model_name != "unknown"  # LlamaIndex's default name


class RetrievalTracker(BaseSpanHandler[BaseSpan]):
    """Notes what each outermost retrieval reads and embeds; opens no spans."""

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which LlamaIndex lists the handler."""
        return "SIFTRetrievalTracker"

    def span_enter(
        self,
        id_: str,
        bound_args: inspect.BoundArguments,
        instance: Any | None = None,
        parent_id: str | None = None,
        tags: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Begin a retrieval, or note an index that the one under way reads."""
        if not isinstance(instance, BaseRetriever):
            return
        retrieval = latest_retrieval()
        if retrieval is None or not retrieval.is_open:
            retrieval = Retrieval(span_id=id_)
            _recent.set((retrieval, *_recent.get()[: N_REMEMBERED - 1]))
        if isinstance(instance, VectorIndexRetriever):  # it has no public accessors
            retrieval.read.append(
                (weakref.ref(instance._index), weakref.ref(instance._embed_model))
            )

    def span_exit(
        self,
        id_: str,
        bound_args: inspect.BoundArguments,
        instance: Any | None = None,
        result: Any | None = None,
        **kwargs: Any,
    ) -> None:
        """End the retrieval with the ids of its nodes, or note the vector of a query in it."""
        retrieval = latest_retrieval()
        if retrieval is None or not retrieval.is_open:
            return
        if retrieval.span_id == id_:
            retrieval.is_open = False
            nodes = result if isinstance(result, list) else []
            retrieval.node_ids = frozenset(
                node.node.node_id for node in nodes if isinstance(node, NodeWithScore)
            )
        elif isinstance(instance, BaseEmbedding) and result is not None:
            if ".get_query_embedding-" in id_ or ".aget_query_embedding-" in id_:
                retrieval.note_embedding(bound_args.arguments["query"], instance, result)

    def span_drop(
        self,
        id_: str,
        bound_args: inspect.BoundArguments,
        instance: Any | None = None,
        err: BaseException | None = None,
        **kwargs: Any,
    ) -> None:
        """End a retrieval that failed: it returned no nodes."""
        self.span_exit(id_, bound_args, instance)

    def new_span(self, *args: Any, **kwargs: Any) -> None:
        """Open no span."""

    def prepare_to_exit_span(self, *args: Any, **kwargs: Any) -> None:
        """Close no span."""

    def prepare_to_drop_span(self, *args: Any, **kwargs: Any) -> None:
        """Drop no span."""


def track_retrievals() -> None:
    """Make sure that exactly one tracker listens to all retrievers of this process."""
    root = get_dispatcher()
    with _registration:
        if not any(isinstance(handler, RetrievalTracker) for handler in root.span_handlers):
            root.add_span_handler(RetrievalTracker())
