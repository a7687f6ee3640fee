"""The service as an ASGI application: its parts put together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sift_core.errors import MissingDependencyError, SiftError
from sift_core.protocols import CandidateSource, Embedder, Selector
from sift_core.selection.backend import load_compiled
from sift_core.service.errors import RefusedError, refusal_of, told
from sift_core.service.guard import Guard
from sift_core.service.json_bodies import JsonAnswer
from sift_core.service.metrics import Metrics
from sift_core.service.openai_wire import openai_router
from sift_core.service.page import page_router
from sift_core.service.rerank_wire import rerank_router
from sift_core.service.search import search_router
from sift_core.service.sessions import Sessions
from sift_core.service.settings import ServiceSettings
from sift_core.service.state import Service
from sift_core.service.status import status_router
from sift_core.service.work_queue import WorkQueue
from sift_core.vector_cache import KeptEmbedder

try:
    from fastapi import FastAPI, Request, Response
    from fastapi.exceptions import RequestValidationError
    from fastapi.routing import APIRoute
    from starlette.exceptions import HTTPException  # of which FastAPI's is a kind
    from starlette.middleware.cors import CORSMiddleware
except ImportError as error:
    raise MissingDependencyError("fastapi", extra="serve") from error

if TYPE_CHECKING:
    from sift_core.answering import AnswerEngine

_SHOWN = 200  # characters of what arrived, in an error


def create_app(
    engine: AnswerEngine | None = None,
    *,
    source: CandidateSource | None = None,
    embedder: Embedder | None = None,
    selector: Selector | None = None,
    settings: ServiceSettings | None = None,
) -> FastAPI:
    """Return the service as an application for Uvicorn or any other ASGI server.

    It is for one process and one event loop: a model's threads and caches are its own.

    Args:
        engine: Answers; None for a service that ranks and searches alone, without torch.
        source: Where candidates come from; the engine's if None.
        embedder: The model that embedded the source's documents; the engine's if None.
        selector: Ranks and searches; the engine's for prompts if None.
        settings: Keys, limits and times; the defaults if None.

    Raises:
        MissingDependencyError: If the extra `serve` is not installed.
    """
    load_compiled()  # no request is to wait for it
    service = _service(engine, source, embedder, selector, settings or ServiceSettings())
    app = FastAPI(
        title="sift",
        version="1",
        docs_url=None,  # these two load from afar
        redoc_url=None,
        redirect_slashes=False,  # `Guard` takes them away
    )
    app.state.service = service
    app.include_router(status_router(service))
    app.include_router(openai_router(service))
    app.include_router(rerank_router(service))
    app.include_router(search_router(service))
    for kind in (SiftError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, _tell)
    page = page_router()
    app.include_router(page)
    app.add_middleware(
        Guard,
        settings=service.settings,
        metrics=service.metrics,
        open_paths=[route.path for route in page.routes if isinstance(route, APIRoute)],
    )
    if service.settings.allowed_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(service.settings.allowed_origins),
            allow_methods=["GET", "POST"],
            allow_headers=["authorization", "content-type"],
            expose_headers=["x-request-id", "retry-after"],
        )
    return app


def _service(
    engine: AnswerEngine | None,
    source: CandidateSource | None,
    embedder: Embedder | None,
    selector: Selector | None,
    settings: ServiceSettings,
) -> Service:
    metrics = Metrics()
    if engine is not None:
        source, embedder = source or engine.source, embedder or engine.embedder
        selector = selector or engine.options.selector
    kept = None
    if embedder is not None:
        kept = KeptEmbedder(
            embedder,
            max_bytes=settings.vector_cache_bytes,
            on_lookup=lambda hits, misses: metrics.looked_up("vectors", hits=hits, misses=misses),
        )
    if engine is not None:
        engine = replace(engine, source=source, embedder=kept)

    def queue(name: str, n_running: int, n_waiting: int) -> WorkQueue:
        def note(running: int, waiting: int) -> None:
            metrics.queue(name, running=running, waiting=waiting)

        return WorkQueue(n_running, n_waiting, on_change=note)

    return Service(
        engine=engine,
        source=source,
        embedder=kept,
        selector=selector,
        settings=settings,
        metrics=metrics,
        answers=queue("answers", settings.n_answers, settings.n_waiting_answers),
        rankings=queue("rankings", settings.n_rankings, settings.n_waiting_rankings),
        sessions=Sessions(settings.n_sessions, settings.session_s, metrics),
    )


async def _tell(request: Request, error: Exception) -> Response:
    """Answer with an error in the dialect of the request's path."""
    headers: Mapping[str, str] = {}
    if isinstance(error, RequestValidationError):
        refused = _invalid(error, request.headers.get("content-type"))
    elif isinstance(error, HTTPException):
        refused = RefusedError(str(error.detail), status=error.status_code)
        headers = error.headers or {}  # `allow`, of a method that a path does not take
    else:
        refused = refusal_of(error)
    answer = told(request.url.path, refused)
    return JsonAnswer(answer.body, answer.status, {**headers, **answer.headers})


def _invalid(error: RequestValidationError, content_type: str | None) -> RefusedError:
    """Return what is wrong with a body: each field and why, without the values."""
    if isinstance(error.body, bytes):  # FastAPI reads what calls itself JSON
        named = "nothing" if content_type is None else repr(content_type[:_SHOWN])
        return RefusedError(
            f"the body must be JSON, and the header `content-type: application/json` must say so; "
            f"got {named}",
            status=415,
            code="no_json",
        )
    faults = [
        (_place(fault, error.body), fault["msg"].removeprefix("Value error, ")[:_SHOWN])
        for fault in error.errors()
    ]
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return RefusedError(f"the body is no JSON: {first['ctx']['error']}", code="no_json")
    if first["type"] == "missing" and first["loc"] == ("body",):
        return RefusedError("the body is empty; send an object in JSON", code="no_json")
    message = "; ".join(f"`{place}`: {why}" if place else why for place, why in faults[:5])
    return RefusedError(message, param=faults[0][0] or None)


def _place(fault: Mapping[str, Any], body: Any) -> str:
    """Return where in a body a fault is, without the names of the types that Pydantic tried."""
    parts: list[str] = []
    for part in fault["loc"][1:]:
        names = range(len(body)) if isinstance(body, list) else body
        if isinstance(body, dict | list) and part in names:
            parts.append(str(part))
            body = body[part]
    if fault["type"] == "missing":
        parts.append(str(fault["loc"][-1]))
    return ".".join(parts)[:_SHOWN]
