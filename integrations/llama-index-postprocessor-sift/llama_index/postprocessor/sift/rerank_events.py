"""Tells LlamaIndex's listeners of a reranking, by events and by callbacks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from llama_index.core.callbacks import CallbackManager, CBEventType, EventPayload
from llama_index.core.instrumentation import (  # type: ignore[attr-defined]  # implicit re-export
    get_dispatcher,
)
from llama_index.core.instrumentation.events.rerank import ReRankEndEvent, ReRankStartEvent
from llama_index.core.schema import NodeWithScore, QueryBundle

_dispatcher = get_dispatcher(__name__)


@contextmanager
def reported(
    nodes: list[NodeWithScore],
    query: QueryBundle,
    *,
    top_n: int,
    model_name: str,
    callback_manager: CallbackManager,
) -> Iterator[list[NodeWithScore]]:
    """Report what arrived, yield an empty list, and report what the body put into it.

    A body that raises is reported to the callbacks as a failure and has no end event,
    like in LlamaIndex's own rerankers.
    """
    payload: dict[str, Any] = {
        EventPayload.NODES: nodes,
        EventPayload.MODEL_NAME: model_name,
        EventPayload.QUERY_STR: query.query_str,
        EventPayload.TOP_K: top_n,
    }
    chosen: list[NodeWithScore] = []
    _dispatcher.event(
        ReRankStartEvent(query=query, nodes=nodes, top_n=top_n, model_name=model_name)
    )
    with callback_manager.event(CBEventType.RERANKING, payload=payload) as event:
        yield chosen
        event.on_end(payload={EventPayload.NODES: chosen})
    _dispatcher.event(ReRankEndEvent(nodes=chosen))
