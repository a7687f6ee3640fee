"""OpenAI's dialect: models, chats, completions, embeddings. Our own fields stand under "sift"."""

from __future__ import annotations

import base64
import time
from collections.abc import Collection
from typing import Any

import numpy as np
from anyio import from_thread
from fastapi import APIRouter, Response

from sift_core.answering.chats import chat_request
from sift_core.answering.request import AnswerRequest
from sift_core.choice_spans import embeddings_span
from sift_core.errors import InvalidInputError
from sift_core.service.answers import Answering, fit_to_window
from sift_core.service.completions import completed
from sift_core.service.errors import RefusedError
from sift_core.service.http import JsonAnswer, JsonRoute, dumped
from sift_core.service.openai_answers import EventStream, Shape, whole
from sift_core.service.openai_models import (
    ChatRequest,
    CompletionRequest,
    EmbeddingRequest,
    ModeName,
)
from sift_core.service.openai_requests import request_fields, session_key
from sift_core.service.state import Service
from sift_core.types import FloatArray

MODES: tuple[ModeName, ...] = ("context", "fine_tune", "both", "base")


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
        check_name(body.model, modes, "answers")
        return await _answered(service, body, modes[body.model])

    @router.post("/v1/completions", operation_id="create_completion")
    async def completions(body: CompletionRequest) -> Response:
        """Go on with the prompt as it stands, in the style of the documents."""
        check_name(body.model, modes, "answers")
        return await completed(service, body, modes[body.model])

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
        fixed = (*MODES, "learned", "learned_context")
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


def _asked(service: Service, body: ChatRequest, mode: ModeName | None) -> AnswerRequest:
    """Return the question to the engine."""
    fields = request_fields(service, body)
    try:
        return chat_request(body.turns(), mode=body.mode(mode), **fields)
    except InvalidInputError as error:
        raise RefusedError(str(error), param="messages") from error


async def _answered(service: Service, body: ChatRequest, mode: ModeName | None) -> Response:
    """Return an answer, whole or as a stream."""
    engine = service.engine
    assert engine is not None  # or the model would have no name
    request = await fit_to_window(service, engine, _asked(service, body, mode))
    key = session_key(body.sift, request)
    begins = [lambda: Answering(service, engine, request, key, with_passages=body.sift.passages)]
    shapes = [Shape(model=body.model, is_chat=True, ignored=body.ignored)]
    if body.stream:
        return EventStream(begins, shapes, wants_usage=body.wants_usage)
    return await whole(begins, shapes)
