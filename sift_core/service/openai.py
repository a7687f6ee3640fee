"""OpenAI's dialect: models, chats, completions, embeddings; answers whole and as streams.

Our own fields stand under "sift".
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import time
from collections.abc import AsyncIterator, Collection, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import numpy as np
from anyio import from_thread
from fastapi import APIRouter, Response
from fastapi.responses import StreamingResponse

from sift_core.answering.answer import Answer
from sift_core.answering.chats import chat_request
from sift_core.answering.request import AnswerRequest
from sift_core.choice_spans import embeddings_span
from sift_core.errors import InvalidInputError
from sift_core.explanation import number_or_none
from sift_core.service.answers import Answering, Done, fit_to_window
from sift_core.service.errors import RefusedError, openai_error, refusal_of
from sift_core.service.http import JsonAnswer, JsonRoute, dumped
from sift_core.service.metadata import filter_for, title_and_url
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
KEEP_ALIVE_S = 5.0  # between comments in a stream that is silent otherwise
_COPIED = (
    "mode reasons searched_for citations is_refusal unknown_marks stop_reason missing_names"
    " left_out nearest"
).split()
_COPIED_OF_SOURCES = ("near_duplicate_of", "is_read", "n_times_learned")


def openai_router(service: Service) -> APIRouter:
    """Return the routes."""
    router = APIRouter(route_class=JsonRoute, default_response_class=JsonAnswer, tags=["openai"])
    created = int(time.time())
    modes = _modes(service)
    embedders = [] if service.embedder_name is None else [service.embedder_name]
    names = [*modes, *embedders]

    def check_name(name: str, served: Collection[str], use: str) -> None:
        if name not in served:
            raise RefusedError(
                f"there is no model {name[:80]!r} for {use}; there are "
                f"{', '.join(served) or 'none'}",
                status=404,
                code="model_not_found",
                param="model",
            )

    def described(name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": created, "owned_by": "sift"}

    async def answered(body: ChatRequest | CompletionRequest) -> Response:
        check_name(body.model, modes, "answers")
        return await _answered(service, body, modes[body.model])

    @router.get("/v1/models", operation_id="list_models")
    async def models() -> dict[str, Any]:
        """List the ways to answer, and the embedder."""
        return {"object": "list", "data": [described(name) for name in names]}

    @router.get("/v1/models/{name:path}", operation_id="retrieve_model")
    async def model(name: str) -> dict[str, Any]:
        """Describe one of them."""
        check_name(name, names, "anything here")
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
        check_name(body.model, embedders, "embeddings")
        return Response(await _embedded(service, body), media_type="application/json")

    return router


def _modes(service: Service) -> dict[str, ModeName | None]:
    """Return the mode of each name of the language model; None leaves it to the policy."""
    name, engine = service.model_name, service.engine
    if name is None or engine is None:
        return {}
    fixed: tuple[ModeName, ...] = MODES if engine.can_learn else ("context", "base")
    if engine.can_learn and engine.learning.adapter is not None:
        fixed = (*MODES, "learned")
    return {name: None, **{f"{name}:{mode}": mode for mode in fixed}}


async def _embedded(service: Service, body: EmbeddingRequest) -> str:
    """Return JSON with vectors as numbers, or as little-endian float32 in base64.

    It is written in the thread, row by row: all at once nobody else was served for seconds.
    """
    embedder, texts = service.needed_embedder(), body.texts()
    service.check_n("input", len(texts))
    service.check_length("input", texts)

    def spelled(row: FloatArray) -> list[float] | str:
        if body.encoding_format == "float":
            numbers: list[float] = row.tolist()
            return numbers
        return base64.b64encode(np.asarray(row, dtype="<f4").tobytes()).decode()

    def embed() -> tuple[str, int]:
        with embeddings_span(embedder, texts):
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
    generation: dict[str, Any] = {"stop": body.stops()} if body.stops() else {}
    if body.chat_template_kwargs:
        generation["chat_template_kwargs"] = body.chat_template_kwargs
    if body.is_sampled:
        generation |= _drawn(service, body)
    sift = body.sift
    fields = {
        "filter": filter_for(service.source, sift.filter),
        "queries": sift.queries,
        "latency_s": sift.latency_s,
        "effort": sift.effort,
        "max_new_tokens": body.length,
        "options": sift.choice_values(),
        "cite": sift.cite,
        "generation": generation,
    }
    try:
        return chat_request(body.turns(), mode=body.mode(mode), **fields)
    except InvalidInputError as error:
        place = "messages" if isinstance(body, ChatRequest) else "prompt"
        raise RefusedError(str(error), param=place) from error


def _drawn(service: Service, body: ChatRequest | CompletionRequest) -> Mapping[str, Any]:
    """Return settings with which each answer draws from a generator of its own."""
    settings: dict[str, Any] = {
        "temperature": 1.0 if body.temperature is None else body.temperature,
        "top_p": body.top_p or 1.0,
        "seed": secrets.randbits(63) if body.seed is None else body.seed & (2**63 - 1),
    }
    if service.engine is not None and not service.engine.can_learn:  # a server draws
        # Only what was asked for: hosted models refuse some of it.
        asked = {name: settings[name] for name in settings if getattr(body, name) is not None}
        return {"do_sample": True, **asked}
    from sift_core.answering.model.generation_options import seeded

    return seeded(**settings)


def _session_key(sift: Sift, request: AnswerRequest) -> Hashable | None:
    """Return all that a session's documents depend on; None if a question has no session."""
    if sift.session is None:
        return None
    conditions = json.dumps(sift.filter, sort_keys=True).encode()  # perhaps megabytes
    options = tuple(sorted(request.options.items()))
    digest = hashlib.sha256(conditions).hexdigest()
    return (sift.session, request.mode, request.effort, options, request.cite, digest)


async def _answered(
    service: Service, body: ChatRequest | CompletionRequest, mode: ModeName | None
) -> Response:
    """Return an answer, whole or as a stream."""
    engine = service.engine
    assert engine is not None  # or the model would have no name
    request = await fit_to_window(service, engine, _asked(service, body, mode))
    answering = Answering(service, engine, request, _session_key(body.sift, request))
    shape = _Shape(model=body.model, is_chat=isinstance(body, ChatRequest))
    if body.stream:
        wants_usage = body.stream_options is not None and body.stream_options.include_usage
        return _EventStream(answering, shape, wants_usage=wants_usage)
    try:
        return JsonAnswer(shape.whole(await answering.done()))
    finally:
        answering.close()


class _EventStream(StreamingResponse):
    """A stream of events; the answer's work ends with it, however it ends."""

    def __init__(self, answering: Answering, shape: _Shape, *, wants_usage: bool) -> None:
        super().__init__(
            _events_of(answering, shape, wants_usage=wants_usage),
            media_type="text/event-stream",
            headers={"cache-control": "no-cache", "x-accel-buffering": "no"},
        )
        self._answering = answering

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Send the events."""
        try:
            await self.stream_response(send)
        finally:
            self._answering.close()


async def _events_of(
    answering: Answering, shape: _Shape, *, wants_usage: bool
) -> AsyncIterator[str]:
    """Yield an answer as server-sent events; a comment after a while without any."""
    if shape.is_chat:
        yield _sent(shape.piece({"role": "assistant", "content": ""}))
    try:
        while not isinstance(event := await answering.next(KEEP_ALIVE_S), Done):
            if event is None:
                yield KEEP_ALIVE
            elif isinstance(event, str):
                yield _sent(shape.piece({"content": event}))
            else:
                yield _sent({**shape.piece({}), "sift": event})
        rest, reason = _beside_content(event.answer), event.answer.finish_reason
        yield _sent({**shape.piece(rest, reason), "sift": _about(event)})
        if wants_usage:
            yield _sent({**shape.head(is_piece=True), "choices": [], "usage": _usage(event.answer)})
    except Exception as error:
        yield _sent({"error": openai_error(refusal_of(error))})
    else:
        yield "data: [DONE]\n\n"


def _sent(content: dict[str, Any]) -> str:
    return f"data: {dumped(content)}\n\n"


@dataclass(frozen=True, kw_only=True)
class _Shape:
    """The form of one answer: a chat's or a completion's. All pieces have the same `id`."""

    model: str
    is_chat: bool
    id: str = field(default_factory=lambda: uuid4().hex)
    created: int = field(default_factory=lambda: int(time.time()))

    def head(self, *, is_piece: bool) -> dict[str, Any]:
        """Return what stands before the choices."""
        kind = "text_completion"
        if self.is_chat:
            kind = "chat.completion.chunk" if is_piece else "chat.completion"
        name = f"{'chatcmpl' if self.is_chat else 'cmpl'}-{self.id}"
        return {"id": name, "object": kind, "created": self.created, "model": self.model}

    def piece(self, delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
        """Return a piece of a stream; a completion's has nothing but the text of the delta."""
        content = {"delta": delta} if self.is_chat else {"text": delta.get("content", "")}
        choice = {"index": 0, **content, "logprobs": None, "finish_reason": finish_reason}
        return {**self.head(is_piece=True), "choices": [choice]}

    def whole(self, done: Done) -> dict[str, Any]:
        """Return an answer in one piece."""
        answer = done.answer
        content: dict[str, Any] = {"text": answer.text}
        if self.is_chat:
            message = {"role": "assistant", "content": answer.text, **_beside_content(answer)}
            content = {"message": message}
        choice = {"index": 0, **content, "logprobs": None, "finish_reason": answer.finish_reason}
        return {
            **self.head(is_piece=False),
            "choices": [choice],
            "usage": _usage(answer),
            "sift": _about(done),
        }


def _usage(answer: Answer) -> dict[str, int]:
    """Return the tokens that the model read and wrote."""
    n_read, n_written = answer.n_prompt_tokens, answer.n_new_tokens
    return {
        "prompt_tokens": n_read,
        "completion_tokens": n_written,
        "total_tokens": n_read + n_written,
    }


def _beside_content(answer: Answer) -> dict[str, Any]:
    """Return the other fields of a message: the sources, and thoughts where there are any."""
    thoughts = {"reasoning_content": answer.thoughts} if answer.thoughts else {}
    return {"annotations": _citations(answer), **thoughts}


def _citations(answer: Answer) -> list[dict[str, Any]]:
    """Return the sources as OpenAI's citations.

    Those that the answer marks are for their marks; where it has none all are for the whole text.
    """
    if answer.chunks is None:
        return []
    named = [
        title_and_url(metadata, name)
        for metadata, name in zip(answer.chunks.metadata, answer.chunks.document_ids, strict=True)
    ]
    cited = [
        {**named[one.position], "start_index": one.start, "end_index": one.end}
        for one in answer.citations
    ]
    if not cited:
        span = {"start_index": 0, "end_index": len(answer.text)}
        cited = [{**one, **span} for i, one in enumerate(named) if one not in named[:i]]
    return [{"type": "url_citation", "url_citation": one} for one in cited]


def _about(done: Done) -> dict[str, Any]:
    """Return the documents of an answer, and how it came about."""
    answer = done.answer.as_dict()
    after, report = answer["standard_deviation"], answer["fine_tuning"]
    if report is not None:
        report = {key: report[key] for key in ("n_steps", "source", "stop_reason", "losses")}
        report["losses"] = [number_or_none(loss) for loss in report["losses"]]
    sources = [
        {
            "rank": record["rank"],
            "id": record["document_id"],
            **title_and_url(record["metadata"], record["document_id"]),
            "similarity": record["similarity"],
            "gain": record["gain"],
            "variance_before": record["variance"] + record["gain"],
            "variance_after": record["variance"],
            **{name: record[name] for name in _COPIED_OF_SOURCES},
        }
        for record in answer["chunks"]
    ]
    return {
        **{name: answer[name] for name in _COPIED},
        "timed_out": done.is_cut,
        # σ² at the question in the paper's setting, in which it is 1 without documents.
        "variance": {"before": 1.0, "after": None if after is None else after**2},
        "sources": sources,
        "fine_tuning": report,
        "timings": {stage: round(seconds, 6) for stage, seconds in answer["timings"].items()},
    }
