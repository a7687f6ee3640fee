"""OpenAI's dialect: models, chats, completions, embeddings; answers whole and as streams.

Our own fields stand under "sift".
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import time
from collections.abc import AsyncIterator, Collection, Hashable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import numpy as np
from anyio import from_thread
from fastapi import APIRouter, Response
from fastapi.responses import StreamingResponse

from sift_core.answering.request import AnswerRequest
from sift_core.explanation import number_or_none
from sift_core.service.answers import (
    Answering,
    ChoiceEvent,
    DoneEvent,
    Event,
    StepEvent,
    fit_to_window,
)
from sift_core.service.errors import RefusedError, openai_error, refusal_of
from sift_core.service.http import JsonAnswer, JsonRoute, dumped, while_there
from sift_core.service.metadata import address_of, filter_for, title_and_url, title_of
from sift_core.service.openai_models import (
    ChatRequest,
    CompletionRequest,
    EmbeddingRequest,
    ModeName,
    Sift,
)
from sift_core.service.state import Service
from sift_core.types import FloatArray

MODES: tuple[ModeName, ...] = ("context", "fine_tune", "both", "base")
KEEP_ALIVE = ": keep-alive\n\n"
_COPIED = (
    "mode reasons searched_for citations is_refusal unknown_marks stop_reason missing_names"
).split()


def openai_router(service: Service) -> APIRouter:
    """Return the routes."""
    router = APIRouter(route_class=JsonRoute, default_response_class=JsonAnswer, tags=["openai"])
    created = int(time.time())
    modes = _modes(service)
    embedders = [] if service.embedder_name is None else [service.embedder_name]
    names = [*modes, *embedders]

    def check_name(name: str, served: Collection[str]) -> None:
        if name not in served:
            raise RefusedError(
                f"there is no model {name[:80]!r} for this; there are {', '.join(names) or 'none'}",
                status=404,
                code="model_not_found",
                param="model",
            )

    def described(name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": created, "owned_by": "sift"}

    async def answered(body: ChatRequest | CompletionRequest) -> Response:
        check_name(body.model, modes)
        return await _answered(service, body, modes[body.model])

    @router.get("/v1/models", operation_id="list_models")
    async def models() -> dict[str, Any]:
        """List the ways to answer, and the embedder."""
        return {"object": "list", "data": [described(name) for name in names]}

    @router.get("/v1/models/{name:path}", operation_id="retrieve_model")
    async def model(name: str) -> dict[str, Any]:
        """Describe one of them."""
        check_name(name, names)
        return described(name)

    @router.post("/v1/chat/completions", operation_id="create_chat_completion")
    async def chat(body: ChatRequest) -> Response:
        """Answer the last of the messages, from the documents."""
        return await answered(body)

    @router.post("/v1/completions", operation_id="create_completion")
    async def completions(body: CompletionRequest) -> Response:
        """Answer the prompt, from the documents."""
        return await answered(body)

    @router.post("/v1/embeddings", operation_id="create_embedding")
    async def embeddings(body: EmbeddingRequest) -> Response:
        """Embed texts with the model that embedded the documents."""
        check_name(body.model, embedders)
        return Response(await _embedded(service, body), media_type="application/json")

    return router


def _modes(service: Service) -> dict[str, ModeName | None]:
    """Return the mode of each name of the language model; None leaves it to the policy."""
    name, engine = service.model_name, service.engine
    if name is None or engine is None:
        return {}
    fixed = MODES if engine.learning.adapter is None else (*MODES, "merged")
    return {name: None, **{f"{name}:{mode}": mode for mode in fixed}}


async def _embedded(service: Service, body: EmbeddingRequest) -> str:
    """Return JSON with vectors as numbers, or as little-endian float32 in base64.

    It is written in the thread, row by row: all at once nobody else was served for seconds.
    """
    embedder, texts = service.needed_embedder(), body.texts()
    service.check_n("input", len(texts))

    def spelled(row: FloatArray) -> list[float] | str:
        if body.encoding_format == "float":
            numbers: list[float] = row.tolist()
            return numbers
        return base64.b64encode(np.asarray(row, dtype="<f4").tobytes()).decode()

    def embed() -> tuple[str, int]:
        vectors = embedder.embed_documents(texts, go_on=from_thread.check_cancelled)
        if body.dimensions not in (None, vectors.shape[1]):
            raise RefusedError(
                f"`dimensions` must be {vectors.shape[1]}, those of this model; leave it out",
                param="dimensions",
            )
        n_tokens = embedder.n_tokens(texts)
        rows = ",".join(
            dumped({"object": "embedding", "index": i, "embedding": spelled(row)})
            for i, row in enumerate(vectors)
        )
        usage = {"prompt_tokens": n_tokens, "total_tokens": n_tokens}
        rest = dumped({"object": "list", "model": body.model, "usage": usage})
        return f'{rest[:-1]},"data":[{rows}]}}', n_tokens

    text, n_tokens = await service.in_thread("embed", embed)
    service.metrics.tokens(embedding=n_tokens)
    return text


def _asked(
    service: Service, body: ChatRequest | CompletionRequest, mode: ModeName | None
) -> AnswerRequest:
    """Return the question to the engine."""
    question, history = body.question()
    if not question.strip():
        place = "messages" if isinstance(body, ChatRequest) else "prompt"
        raise RefusedError("the question is empty; ask something", param=place)
    generation: dict[str, Any] = {"stop": body.stops()} if body.stops() else {}
    if body.is_sampled:
        generation |= _sampling(body)
    sift = body.sift
    return AnswerRequest(
        question=question,
        mode=body.mode(mode),
        filter=filter_for(service.source, sift.filter),
        history=history,
        queries=sift.queries,
        latency_s=sift.latency_s,
        effort=sift.effort,
        max_new_tokens=body.length,
        options=sift.choice_values(),
        cite=sift.cite,
        generation=generation,
    )


def _session_key(sift: Sift, request: AnswerRequest) -> Hashable | None:
    """Return all that a session's documents depend on; None if a question has no session."""
    if sift.session is None:
        return None
    conditions = json.dumps(sift.filter, sort_keys=True).encode()  # perhaps megabytes
    options = tuple(sorted(request.options.items()))
    digest = hashlib.sha256(conditions).hexdigest()
    return (sift.session, request.mode, request.effort, options, request.cite, digest)


def _sampling(body: ChatRequest | CompletionRequest) -> dict[str, Any]:
    """Return settings that sample; every answer draws from a generator of its own."""
    from sift_core.answering.model.generation_options import MAX_SEED, seeded

    seed = secrets.randbits(63) if body.seed is None else body.seed & MAX_SEED
    temperature = 1.0 if body.temperature is None else body.temperature
    return dict(seeded(temperature=temperature, top_p=body.top_p or 1.0, seed=seed))


async def _answered(
    service: Service, body: ChatRequest | CompletionRequest, mode: ModeName | None
) -> Response:
    """Return an answer, whole or as a stream."""
    engine = service.engine
    assert engine is not None  # or the model would have no name
    request = await fit_to_window(service, engine, _asked(service, body, mode))
    answering = Answering(service, engine, request, _session_key(body.sift, request))
    shape = Shape(model=body.model, is_chat=isinstance(body, ChatRequest))
    if body.stream:
        wants_usage = body.stream_options is not None and body.stream_options.include_usage
        keep_alive_s = service.settings.keep_alive_s
        return _EventStream(answering, shape, wants_usage=wants_usage, keep_alive_s=keep_alive_s)
    try:
        return JsonAnswer(shape.whole(await answering.done()))
    finally:
        answering.close()


class _EventStream(StreamingResponse):
    """A stream of events; the answer's work ends with it, however it ends."""

    def __init__(self, answering: Answering, shape: Shape, **options: Any) -> None:
        super().__init__(
            _events_of(answering, shape, **options),
            media_type="text/event-stream",
            headers={"cache-control": "no-cache", "x-accel-buffering": "no"},
        )
        self._answering = answering

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Send the events."""
        try:
            with suppress(RefusedError):  # of a client that has gone
                await while_there(receive, lambda: self.stream_response(send))
        finally:
            self._answering.close()


async def _events_of(
    answering: Answering, shape: Shape, *, wants_usage: bool, keep_alive_s: float
) -> AsyncIterator[str]:
    """Yield an answer as server-sent events; a comment after a while without any."""
    first = shape.first()
    if first is not None:
        yield _sent(first)
    try:
        while True:
            event = await answering.next(keep_alive_s)
            if event is None:
                yield KEEP_ALIVE
                continue
            yield _sent(shape.piece(event))
            if isinstance(event, DoneEvent):
                break
    except Exception as error:
        yield _sent({"error": openai_error(refusal_of(error))})
        return
    if wants_usage:
        yield _sent(shape.last(event))
    yield "data: [DONE]\n\n"


def _sent(content: dict[str, Any]) -> str:
    return f"data: {dumped(content)}\n\n"


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The form of one answer.

    Args:
        model: As it was asked for.
        is_chat: Whether it is a chat's; else a completion's.
        id: The same in all pieces.
        created: Seconds since 1970, the same in all pieces.
    """

    model: str
    is_chat: bool
    id: str = field(default_factory=lambda: uuid4().hex)
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self, done: DoneEvent) -> dict[str, Any]:
        """Return an answer in one piece."""
        text = done.answer.text
        if self.is_chat:
            notes = _citations(done)
            message = {"role": "assistant", "content": text, "annotations": notes}
            choice: dict[str, Any] = {"index": 0, "message": message}
        else:
            choice = {"index": 0, "text": text}
        choice |= {"logprobs": None, "finish_reason": done.answer.finish_reason}
        return {
            **self._head(is_piece=False),
            "choices": [choice],
            "usage": _usage(done),
            "sift": _about(done),
        }

    def first(self) -> dict[str, Any] | None:
        """Return the piece with which a chat's stream begins; a completion's has None."""
        return self._piece({"role": "assistant", "content": ""}) if self.is_chat else None

    def piece(self, event: Event) -> dict[str, Any]:
        """Return an event as a piece of a stream; all but text are empty ones with "sift"."""
        if isinstance(event, str):
            return self._piece({"content": event}, event)
        if isinstance(event, DoneEvent):
            notes = {"annotations": _citations(event)} if self.is_chat else {}
            piece = self._piece(notes, finish_reason=event.answer.finish_reason)
            return {**piece, "sift": _about(event)}
        return {**self._piece({}), "sift": _progress(event)}

    def last(self, done: DoneEvent) -> dict[str, Any]:
        """Return the piece that has the usage alone."""
        return {**self._head(is_piece=True), "choices": [], "usage": _usage(done)}

    def _piece(
        self, delta: dict[str, Any], text: str = "", finish_reason: str | None = None
    ) -> dict[str, Any]:
        content: dict[str, Any] = {"delta": delta} if self.is_chat else {"text": text}
        choice = {"index": 0, **content, "logprobs": None, "finish_reason": finish_reason}
        return {**self._head(is_piece=True), "choices": [choice]}

    def _head(self, *, is_piece: bool) -> dict[str, Any]:
        kind = "text_completion"
        if self.is_chat:
            kind = "chat.completion.chunk" if is_piece else "chat.completion"
        name = f"{'chatcmpl' if self.is_chat else 'cmpl'}-{self.id}"
        return {"id": name, "object": kind, "created": self.created, "model": self.model}


def _usage(done: DoneEvent) -> dict[str, int]:
    """Return the tokens that the model read and wrote."""
    n_read, n_written = done.answer.n_prompt_tokens, done.answer.n_new_tokens
    return {
        "prompt_tokens": n_read,
        "completion_tokens": n_written,
        "total_tokens": n_read + n_written,
    }


def _citations(done: DoneEvent) -> list[dict[str, Any]]:
    """Return the sources as OpenAI's citations.

    Those that the answer marks are for their marks; where it has none all are for the whole text.
    """
    chunks = done.answer.chunks
    if chunks is None:
        return []
    named = [
        {"url": address_of(metadata, name), "title": title_of(metadata, name)}
        for metadata, name in zip(chunks.metadata, chunks.document_ids, strict=True)
    ]
    cited = [
        {**named[one.position], "start_index": one.start, "end_index": one.end}
        for one in done.answer.citations
    ]
    if not cited:
        span = {"start_index": 0, "end_index": len(done.answer.text)}
        cited = [{**one, **span} for i, one in enumerate(named) if one not in named[:i]]
    return [{"type": "url_citation", "url_citation": one} for one in cited]


def _about(done: DoneEvent) -> dict[str, Any]:
    """Return the documents of an answer, and how it came about."""
    answer = done.answer.as_dict()
    after, report = answer["standard_deviation"], answer["fine_tuning"]
    if report is not None:
        report = {key: report[key] for key in ("n_steps", "source", "stop_reason", "losses")}
        report["losses"] = [number_or_none(loss) for loss in report["losses"]]
    return {
        **{name: answer[name] for name in _COPIED},
        "timed_out": done.is_cut,
        # σ² at the question in the paper's setting, in which it is 1 without documents.
        "variance": {"before": 1.0, "after": None if after is None else after**2},
        "sources": [_source(record) for record in answer["chunks"]],
        "fine_tuning": report,
        "timings": {stage: round(seconds, 6) for stage, seconds in answer["timings"].items()},
    }


def _source(record: dict[str, Any]) -> dict[str, Any]:
    after, gain = record["variance"], record["gain"]
    return {
        "rank": record["rank"],
        "id": record["document_id"],
        **title_and_url(record["metadata"], record["document_id"]),
        "similarity": record["similarity"],
        "gain": gain,
        "variance_before": after + gain,
        "variance_after": after,
        "near_duplicate_of": record["near_duplicate_of"],
        "is_read": record["is_read"],
        "n_times_learned": record["n_times_learned"],
    }


def _progress(event: ChoiceEvent | StepEvent) -> dict[str, Any]:
    if isinstance(event, StepEvent):
        return {
            "event": "learning",
            "step": event.number,
            "n_steps": event.n_steps,
            "loss": number_or_none(event.loss),
        }
    choice = event.choice
    return {
        "event": "chosen",
        "mode": choice.mode.value,
        "reasons": list(choice.reasons),
        "searched_for": list(choice.searched_for),
        "n_candidates": len(choice.pool),
        "n_read": 0 if choice.read is None else len(choice.read),
        "n_learned": 0 if choice.learned is None else len(choice.learned),
        "is_known": event.is_reused,
    }
