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
from collections.abc import Callable, Iterable, Sequence
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
from llama_index.core.schema import NodeWithScore, QueryBundle

from sift_core import InvalidInputError

Vector: TypeAlias = npt.NDArray[np.floating[Any]]
Model: TypeAlias = Callable[[], BaseEmbedding]  # asked only where something must be embedded

# Guess: nodes of several retrievals may be put together by hand before they are reranked.
N_REMEMBERED = 16

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

    def span_drop(
        self,
        id_: str,
        bound_args: inspect.BoundArguments,
        instance: Any | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        """End a retrieval that failed: it returned no nodes."""
        self.span_exit(id_, bound_args, instance)

    def new_span(self, *args: Any, **kwargs: Any) -> None:
        """Open no span."""

    prepare_to_exit_span = prepare_to_drop_span = new_span


def track_retrievals() -> None:
    """Make sure that exactly one tracker listens to all retrievers of this process."""
    root = get_dispatcher()
    with _registration:
        if not any(isinstance(handler, RetrievalTracker) for handler in root.span_handlers):
            root.add_span_handler(RetrievalTracker())


def query_embedding(query: QueryBundle, model: Model, *, apart: bool = False) -> Vector:
    """Return the query's vector, shape (d,), embedding the query if that was not done yet.

    It was done if the query has a vector, or if the retrieval before embedded the same text
    with the same model: awaited, LlamaIndex keeps that vector to itself.

    Args:
        query: With a vector or a text.
        model: The one that the nodes' vectors are of; asked for only where it matters.
        apart: Whether m >= 2 texts to embed give m vectors, shape (m, d), in place of their mean.
            They do unless the query has a vector that is not known to be their mean.

    Raises:
        InvalidInputError: If the query is empty, or its vector all zero or not finite.
    """
    known = _known_embedding(query, model, apart=apart)
    if known is None:
        texts, embedder = query.embedding_strs, model()
        if apart and len(texts) > 1:
            return _checked_query([embedder.get_query_embedding(text) for text in texts])
        known = embedder.get_agg_embedding_from_queries(texts)
    return _checked_query(known)


async def aquery_embedding(query: QueryBundle, model: Model, *, apart: bool = False) -> Vector:
    """Return what `query_embedding` does, awaiting the model."""
    known = _known_embedding(query, model, apart=apart)
    if known is None:
        texts, embedder = query.embedding_strs, model()
        if apart and len(texts) > 1:
            return _checked_query([await embedder.aget_query_embedding(text) for text in texts])
        known = await embedder.aget_agg_embedding_from_queries(texts)
    return _checked_query(known)


def _known_embedding(
    query: QueryBundle, model: Model, *, apart: bool
) -> Sequence[float] | Vector | None:
    """Return what a query brings, or what the retrieval before made of its texts."""
    texts = query.embedding_strs
    if apart and len(texts) > 1:
        each = _embedded_apart(texts, model)
        if query.embedding is None:
            return each
        if each is not None and np.allclose(np.mean(each, axis=0), query.embedding):
            return each
    if query.embedding is not None:
        retrieval = latest_retrieval()
        known = retrieval.embedded.get(texts[0]) if retrieval and texts else None
        made_by = known[0]() if known else None
        if made_by is None or is_same_model(made_by, model()):
            return query.embedding
    elif not texts:
        raise InvalidInputError("the query has neither an embedding nor a text to embed")
    return embedded_query(texts, model())


def embedded_query(texts: Sequence[str], model: BaseEmbedding) -> Vector | None:
    """Return what `model` made of a query in the latest retrieval here, shape (d,), or None.

    The mean of several texts' vectors, as LlamaIndex's; None if it did not embed all of `texts`.
    """
    each = _embedded_apart(texts, lambda: model)
    return None if each is None else np.mean(each, axis=0)


def _embedded_apart(texts: Sequence[str], model: Model) -> Vector | None:
    """Return what the model made of m texts in the latest retrieval here, shape (m, d), or None."""
    retrieval = latest_retrieval()
    made = [retrieval.embedded.get(text) for text in texts] if retrieval else []
    known = list(filter(None, made))
    if not known or len(known) < len(texts):
        return None
    embedder = model()
    if any(embedded_by() is not embedder for embedded_by, _ in known):
        return None
    return np.stack([vector for _, vector in known])


def _checked_query(embedding: Sequence[float] | Sequence[Sequence[float]] | Vector) -> Vector:
    vector = np.asarray(embedding, dtype=np.float64)
    if not (np.isfinite(vector).all() and vector.any(axis=-1).all()):
        raise InvalidInputError(
            "the query's embedding must be finite and must not be all zero; was an empty text "
            "embedded?"
        )
    return vector
