"""Watches retrievers, so that a postprocessor can find the indexes that they read.

LlamaIndex's instrumentation calls span handlers in the context of the retriever's caller,
sync and async alike, so a ContextVar set there is seen by the postprocessor that runs next.
"""

from __future__ import annotations

import inspect
import threading
import weakref
from typing import Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.instrumentation import (  # type: ignore[attr-defined]  # implicit re-export
    get_dispatcher,
)
from llama_index.core.instrumentation.span import BaseSpan
from llama_index.core.instrumentation.span_handlers import BaseSpanHandler
from llama_index.core.retrievers import VectorIndexRetriever
from llama_index.core.schema import NodeWithScore

from llama_index.postprocessor.sift.retrievals import (
    VectorSource,
    begin_retrieval,
    latest_retrieval,
    sources_of,
)

__all__ = ["RetrievalTracker", "VectorSource", "sources_of", "track_retrievals"]

_registration = threading.Lock()


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
            retrieval = begin_retrieval(id_)
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
