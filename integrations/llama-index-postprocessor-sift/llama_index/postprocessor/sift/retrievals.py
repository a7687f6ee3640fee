"""What the last retrievals of a context read: vector indexes, and vectors of query texts.

LlamaIndex gives a postprocessor nodes and a query, never the retriever, and on the async path
not the query's vector either. `retriever_tracking` notes both here.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from llama_index.core import VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding

# Guess: nodes of several retrievals may be put together by hand before they are reranked.
N_REMEMBERED = 16

# Guess: of one query, its rewordings and hypothetical answers; each is a vector in memory.
N_EMBEDDED = 16


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


def begin_retrieval(span_id: str) -> Retrieval:
    """Return a new retrieval, the latest of this context from now on."""
    retrieval = Retrieval(span_id=span_id)
    _recent.set((retrieval, *_recent.get()[: N_REMEMBERED - 1]))
    return retrieval


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
