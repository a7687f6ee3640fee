"""Tells LlamaIndex's listeners of a synthesis, by events and by callbacks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from llama_index.core.base.response.schema import RESPONSE_TYPE, Response
from llama_index.core.callbacks import CallbackManager, CBEventType, EventPayload
from llama_index.core.instrumentation import (  # type: ignore[attr-defined]  # implicit re-export
    get_dispatcher,
)
from llama_index.core.instrumentation.events.synthesis import (
    SynthesizeEndEvent,
    SynthesizeStartEvent,
)
from llama_index.core.schema import QueryBundle

_dispatcher = get_dispatcher(__name__)


@dataclass(kw_only=True, eq=False)
class Synthesis:
    """What a synthesis gives; set by the body of `reported`."""

    response: RESPONSE_TYPE = field(default_factory=lambda: Response(None))


@contextmanager
def reported(query: QueryBundle, callback_manager: CallbackManager) -> Iterator[Synthesis]:
    """Report the query, yield a place for the response, and report what the body put there.

    A streamed response is reported when it begins, as LlamaIndex's own synthesizers do. A
    body that raises has no end event.
    """
    synthesis = Synthesis()
    _dispatcher.event(SynthesizeStartEvent(query=query))
    payload: dict[str, Any] = {EventPayload.QUERY_STR: query.query_str}
    with callback_manager.event(CBEventType.SYNTHESIZE, payload=payload) as event:
        yield synthesis
        event.on_end(payload={EventPayload.RESPONSE: synthesis.response})
    _dispatcher.event(SynthesizeEndEvent(query=query, response=synthesis.response))
