"""The service as an ASGI application: its parts put together."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from sift_core.errors import MissingDependencyError

try:  # the only way into this folder, so that its other modules need not say what to install
    import anyio  # noqa: F401
    import cachetools  # noqa: F401
    import prometheus_client  # noqa: F401
    import uvicorn  # noqa: F401
    from fastapi import FastAPI, Request
    from fastapi.exceptions import RequestValidationError
    from fastapi.responses import FileResponse
    from starlette.exceptions import HTTPException  # of which FastAPI's is a kind
    from starlette.middleware.cors import CORSMiddleware
except ImportError as error:
    raise MissingDependencyError(error.name or "fastapi", extra="serve") from error

from sift_core.protocols import CandidateSource, Embedder, Selector
from sift_core.selection.backend import load_compiled
from sift_core.service.collections import collections_router
from sift_core.service.errors import RefusedError
from sift_core.service.guard import Guard
from sift_core.service.learning_time import learning_time_router
from sift_core.service.openai import openai_router
from sift_core.service.rerank import rerank_router
from sift_core.service.search import search_router
from sift_core.service.settings import ServiceSettings
from sift_core.service.state import Service
from sift_core.service.status import status_router

if TYPE_CHECKING:
    from sift_core.answering import AnswerEngine

PAGE_HEADERS = {
    # Nothing of another host, no inline script or style: text of a document can do nothing.
    "content-security-policy": "default-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; object-src 'none'",
    "cache-control": "no-cache",  # asked anew: another version of the package has other files
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
_NO_ROUTE = (
    "there is no such path here; this service speaks OpenAI's API at /v1, which clients of Ollama "
    "can use too, and /openapi.json lists paths"
)
_TYPES = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",  # a browser runs no module of the type that some systems guess
    ".svg": "image/svg+xml",
}
ROUTERS = (openai_router, learning_time_router, rerank_router, search_router)
_MAX_QUOTED = 200  # characters of what arrived, in an error


def create_app(
    engine: AnswerEngine | None = None,
    *,
    source: CandidateSource | None = None,
    embedder: Embedder | None = None,
    selector: Selector | None = None,
    settings: ServiceSettings | None = None,
    name: str = "documents",
    collections: Mapping[str, tuple[CandidateSource, Embedder]] | None = None,
) -> FastAPI:
    """Return the service as an application for Uvicorn or any other ASGI server.

    It is for one process and one event loop: a model's threads and caches are its own.

    Args:
        engine: Answers. With None the service only ranks and searches, without torch.
        source: Where candidates come from; the engine's if None.
        embedder: The model that embedded the source's documents; the engine's if None.
        selector: Ranks and searches; the engine's for prompts if None.
        settings: Keys, limits and times; the defaults if None.
        name: Name of the source for readers. Default: "documents".
        collections: Further sources by name, each with the embedder of its documents. One named
            "notes" has all routes of a model or a source again under /collections/notes/, and the
            same model, queues and limits. Default: none.

    Raises:
        InvalidInputError: If a name of a collection cannot stand in a path, or comes twice.
        MissingDependencyError: If the extra `serve` is not installed.

    Example:
        >>> from fastapi.testclient import TestClient
        >>> client = TestClient(create_app(embedder=embedder), base_url="http://localhost")
        >>> body = {"query": "What does a ticket cost?", "documents": texts, "top_n": 1}
        >>> client.post("/v1/rerank", json=body).json()["results"][0]["index"]
        2
    """
    load_compiled()  # no request is to wait for it
    service = Service(engine, source, embedder, selector, settings or ServiceSettings())
    app = FastAPI(
        title="sift",
        version="1",
        docs_url=None,  # these two load from afar
        redoc_url=None,
        redirect_slashes=False,  # `Guard` takes them away
        # `Guard` makes the span of a request, without texts of errors. Old versions ignore this.
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    app.state.service = service
    beside = {
        one: service.beside(its_source, its_embedder)
        for one, (its_source, its_embedder) in (collections or {}).items()
    }
    app.include_router(status_router([service, *beside.values()]))
    app.include_router(collections_router([name, *beside]))
    for routes in ROUTERS:
        app.include_router(routes(service))
    for one, other in beside.items():
        for routes in ROUTERS:
            # The same as those above, which the schema has.
            app.include_router(routes(other), prefix=f"/collections/{one}", include_in_schema=False)
    page = _add_page(app)
    app.add_exception_handler(RequestValidationError, _refuse_body)
    app.add_exception_handler(HTTPException, _refuse)
    app.add_middleware(
        Guard,
        settings=service.settings,
        metrics=service.metrics,
        open_paths=page,
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


def _add_page(app: FastAPI) -> list[str]:
    """Add the files of the page at "/"; return their paths.

    Each has a route: a mount would hide that other paths take other methods.
    """
    paths: list[str] = []
    for file in sorted(Path(str(files("sift_core.service"))).glob("static/*.*")):
        if file.suffix in _TYPES:
            paths.append("/" if file.name == "index.html" else f"/{file.name}")
            app.add_api_route(
                paths[-1], _sender(file), methods=["GET", "HEAD"], include_in_schema=False
            )
    return paths


def _sender(file: Path) -> Any:
    async def send() -> FileResponse:
        return FileResponse(file, media_type=_TYPES[file.suffix], headers=PAGE_HEADERS)

    return send


async def _refuse(_: Request, error: Exception) -> NoReturn:
    """Make of FastAPI's error one that `Guard` answers."""
    assert isinstance(error, HTTPException)
    if error.status_code == 404:  # of a path: what a route does not find it refuses itself
        raise RefusedError(_NO_ROUTE, status=404, code="no_such_path")
    # `allow` is among the headers, of a method that a path does not take
    raise RefusedError(str(error.detail), status=error.status_code, headers=error.headers)


async def _refuse_body(request: Request, error: Exception) -> NoReturn:
    """Say what is wrong with a body: each field and why, without the values."""
    assert isinstance(error, RequestValidationError)
    if isinstance(error.body, bytes):  # FastAPI reads what calls itself JSON
        content_type = request.headers.get("content-type")
        named = "nothing" if content_type is None else repr(content_type[:_MAX_QUOTED])
        raise RefusedError(
            f"the body must be JSON, and the header `content-type: application/json` must say so; "
            f"got {named}",
            status=415,
            code="no_json",
        )
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        raise RefusedError(f"the body is no JSON: {first['ctx']['error']}", code="no_json")
    if first["type"] == "missing" and first["loc"] == ("body",):
        raise RefusedError("the body is empty; send an object in JSON", code="no_json")
    places, faults = [], []
    for fault in error.errors()[:5]:
        places.append(_place(fault, error.body))
        why = fault["msg"].removeprefix("Value error, ")[:_MAX_QUOTED]
        faults.append(f"`{places[-1]}`: {why}" if places[-1] else why)
    raise RefusedError("; ".join(faults), param=places[0] or None)


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
    return ".".join(parts)[:_MAX_QUOTED]
