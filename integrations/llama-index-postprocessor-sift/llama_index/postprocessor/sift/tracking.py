"""Which indexes the retrievers just now read, and the query's vector, which they may have made.

LlamaIndex gives a postprocessor nodes and a query, never the retriever, and on the async path
not the query's vector either. Its instrumentation calls span handlers in the context of the
retriever's caller, sync and async alike, so a ContextVar set there is seen by the postprocessor
that runs next (decision 0005).
"""

from __future__ import annotations

import inspect
import threading
import weakref
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeAlias

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

Vector: TypeAlias = npt.NDArray[np.floating[Any]]

# Guess: nodes of several retrievals may be put together by hand before they are reranked.
N_REMEMBERED = 16

_registration = threading.Lock()


@dataclass(frozen=True, kw_only=True, eq=False)
class VectorSource:
    """A vector index and the model that embeds queries for it."""

    index: VectorStoreIndex
    embed_model: BaseEmbedding


@dataclass(kw_only=True, eq=False)
class Retrieval:
    """What one outermost call of a retriever read, in whatever tasks and threads it started.

    These copy the context and so share this object.
    """

    span_id: str
    is_open: bool = True
    node_ids: frozenset[str] = frozenset()
    # Weak: an index must not live longer because it was once searched.
    read: list[tuple[weakref.ref[VectorStoreIndex], weakref.ref[BaseEmbedding]]] = field(
        default_factory=list
    )
    # Of a query text, the model that embedded it and its vector, shape (d,).
    embedded: dict[str, tuple[weakref.ref[BaseEmbedding], Vector]] = field(default_factory=dict)

    def sources(self) -> list[VectorSource]:
        """Return every index that was read and is still alive, once, in order of reading."""
        found: dict[int, VectorSource] = {}
        for index_ref, model_ref in self.read:
            index, model = index_ref(), model_ref()
            if index is not None:  # whose own model lives as long as it does
                source = VectorSource(index=index, embed_model=model or index._embed_model)
                found.setdefault(id(index), source)
        return list(found.values())


_recent: ContextVar[tuple[Retrieval, ...]] = ContextVar("sift_recent_retrievals", default=())


def latest_retrieval() -> Retrieval | None:
    """Return the retrieval under way in this context, or else the last one."""
    recent = _recent.get()
    return recent[0] if recent else None


def embedded_queries() -> Mapping[str, tuple[weakref.ref[BaseEmbedding], Vector]]:
    """Return the texts that `latest_retrieval` embedded, each with the model and the vector."""
    retrieval = latest_retrieval()
    return {} if retrieval is None else retrieval.embedded


def sources_of(node_ids: Iterable[str]) -> list[VectorSource]:
    """Return the vector indexes behind nodes that were retrieved in this context, latest first.

    A retrieval counts for the nodes that it returned and that no later search of an index
    returned, so that an earlier query's index is never taken for this one's. Indexes with
    another embedding model than the first are left out: their vectors cannot be compared.
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
        *args: Any,
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
                node.node.id_ for node in nodes if isinstance(node, NodeWithScore)
            )
        elif isinstance(instance, BaseEmbedding) and result is not None:
            if ".get_query_embedding-" in id_ or ".aget_query_embedding-" in id_:
                made = weakref.ref(instance), np.asarray(result, dtype=np.float64)
                retrieval.embedded[bound_args.arguments["query"]] = made

    def span_drop(self, id_: str, *args: Any, **kwargs: Any) -> None:
        """End a retrieval that failed: it returned no nodes."""
        retrieval = latest_retrieval()
        if retrieval is not None and retrieval.span_id == id_:
            retrieval.is_open = False

    def new_span(self, *args: Any, **kwargs: Any) -> None:
        """Open no span."""

    prepare_to_exit_span = prepare_to_drop_span = new_span


def track_retrievals() -> None:
    """Make sure that exactly one tracker listens to all retrievers of this process."""
    root = get_dispatcher()
    with _registration:
        if not any(isinstance(handler, RetrievalTracker) for handler in root.span_handlers):
            root.add_span_handler(RetrievalTracker())
