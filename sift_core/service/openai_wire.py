"""OpenAI's routes: models, chats, completions, embeddings."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from sift_core.answering.request import AnswerRequest
from sift_core.service.answers import Answering, AnswerJob, fit_to_window
from sift_core.service.errors import RefusedError
from sift_core.service.filters import Filter, filter_for
from sift_core.service.json_bodies import JsonAnswer, JsonRoute, dumped
from sift_core.service.openai_models import (
    ChatRequest,
    CompletionRequest,
    EmbeddingRequest,
    ModeName,
)
from sift_core.service.openai_shapes import Shape, events_of
from sift_core.service.state import Service
from sift_core.service.watching import while_there
from sift_core.types import FloatArray

from anyio import from_thread  # isort: skip  # after what names the extra
from fastapi import APIRouter, Request, Response  # isort: skip
from fastapi.responses import StreamingResponse  # isort: skip

WAYS: tuple[ModeName, ...] = ("context", "fine_tune", "both", "base")


@dataclass(frozen=True, kw_only=True, eq=False)
class _Names:
    """What clients may call: the language model by the way to answer, and the embedder.

    Args:
        ways: Name → way; None leaves it to the policy.
        embedder: The embedder's name; None without one.
        created: When the service started, in seconds.
    """

    ways: Mapping[str, str | None]
    embedder: str | None
    created: int

    @classmethod
    def of(cls, service: Service) -> _Names:
        """Return the names of a service."""
        model, engine, ways = service.model_name, service.engine, {}
        if model is not None and engine is not None:
            modes = WAYS if engine.adapters is None else (*WAYS, "merged")
            ways = {model: None, **{f"{model}:{way}": way for way in modes}}
        return cls(ways=ways, embedder=service.embedder_name, created=int(time.time()))

    @property
    def all(self) -> list[str]:
        """Return all of them."""
        return [*self.ways, *([self.embedder] if self.embedder else [])]

    def described(self, name: str) -> dict[str, Any]:
        """Return a model as OpenAI lists it."""
        if name not in self.all:
            raise self.unknown(name)
        return {"id": name, "object": "model", "created": self.created, "owned_by": "sift"}

    def way(self, name: str) -> str | None:
        """Return the way to answer that a name asks for."""
        if name not in self.ways:
            raise self.unknown(name)
        return self.ways[name]

    def unknown(self, name: str) -> RefusedError:
        """Return the error of a name that nobody has."""
        names = ", ".join(self.all) or "none"
        return RefusedError(
            f"there is no model {name[:80]!r} for this; there are {names}",
            status=404,
            code="model_not_found",
            param="model",
        )


def openai_router(service: Service) -> APIRouter:
    """Return the routes."""
    router = APIRouter(route_class=JsonRoute, default_response_class=JsonAnswer, tags=["openai"])
    names = _Names.of(service)

    @router.get("/v1/models", operation_id="list_models")
    async def models() -> dict[str, Any]:
        """List the ways to answer, and the embedder."""
        return {"object": "list", "data": [names.described(name) for name in names.all]}

    @router.get("/v1/models/{name:path}", operation_id="retrieve_model")
    async def model(name: str) -> dict[str, Any]:
        """Describe one of them."""
        return names.described(name)

    @router.post("/v1/chat/completions", operation_id="create_chat_completion")
    async def chat(body: ChatRequest, request: Request) -> Response:
        """Answer the last of the messages, from the documents."""
        return await _answered(service, body, request, names.way(body.model))

    @router.post("/v1/completions", operation_id="create_completion")
    async def completions(body: CompletionRequest, request: Request) -> Response:
        """Answer the prompt, from the documents."""
        return await _answered(service, body, request, names.way(body.model))

    @router.post("/v1/embeddings", operation_id="create_embedding")
    async def embeddings(body: EmbeddingRequest, request: Request) -> Response:
        """Embed texts with the model that embedded the documents."""
        if body.model != names.embedder:
            raise names.unknown(body.model)
        answer = await while_there(request.receive, lambda: _embedded(service, body))
        return Response(answer, media_type="application/json")

    return router


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


def _job(service: Service, body: ChatRequest | CompletionRequest, way: str | None) -> AnswerJob:
    """Return what the engine is asked."""
    question, history = body.question()
    if not question.strip():
        place = "messages" if isinstance(body, ChatRequest) else "prompt"
        raise RefusedError("the question is empty; ask something", param=place)
    generation: dict[str, Any] = {"stop": body.stops()} if body.stops() else {}
    if body.is_sampled:
        generation |= _sampling(body)
    sift = body.sift
    request = AnswerRequest(
        question=question,
        mode=body.mode(way),
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
    return AnswerJob(
        request=request,
        session=sift.session,
        conditions=_digest(sift.filter),
    )


def _digest(conditions: Filter | None) -> str:
    """Return what a session's key has of its conditions, which may be megabytes."""
    return hashlib.sha256(json.dumps(conditions, sort_keys=True).encode()).hexdigest()


def _sampling(body: ChatRequest | CompletionRequest) -> dict[str, Any]:
    """Return settings that sample; every answer draws from a generator of its own."""
    import secrets

    from sift_core.answering.model.sampling import MAX_SEED, seeded

    seed = secrets.randbits(63) if body.seed is None else body.seed & MAX_SEED
    temperature = 1.0 if body.temperature is None else body.temperature
    return dict(seeded(temperature=temperature, top_p=body.top_p or 1.0, seed=seed))


async def _answered(
    service: Service, body: ChatRequest | CompletionRequest, request: Request, way: str | None
) -> Response:
    """Return an answer, whole or as a stream."""
    engine = service.engine
    assert engine is not None  # or the model would have no name
    job = await fit_to_window(service, engine, _job(service, body, way))
    answering = Answering(service, engine, job)
    shape = Shape(model=body.model, is_chat=isinstance(body, ChatRequest))
    if body.stream:
        wants_usage = body.stream_options is not None and body.stream_options.include_usage
        events = events_of(
            answering,
            shape,
            wants_usage=wants_usage,
            keep_alive_s=service.settings.keep_alive_s,
        )
        return _EventStream(events, answering)
    try:
        done = await while_there(request.receive, answering.done)
    finally:
        answering.close()
    return JsonAnswer(shape.whole(done))


class _EventStream(StreamingResponse):
    """A stream of events; the answer's work ends with it, however it ends."""

    def __init__(self, events: Any, answering: Answering) -> None:
        headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
        super().__init__(events, media_type="text/event-stream", headers=headers)
        self._answering = answering

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Send the events."""
        try:
            with suppress(RefusedError):  # of a client that has gone
                await while_there(receive, lambda: self.stream_response(send))
        finally:
            self._answering.close()
