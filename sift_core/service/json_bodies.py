"""JSON read and written fast: a body of vectors is megabytes of numbers."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any

from sift_core.errors import MissingDependencyError

try:
    from fastapi import Request, Response
    from fastapi.responses import JSONResponse
    from fastapi.routing import APIRoute
    from pydantic_core import from_json
except ImportError as error:
    raise MissingDependencyError("fastapi", extra="serve") from error


class JsonAnswer(JSONResponse):
    """An answer in JSON."""

    def render(self, content: Any) -> bytes:
        """Return the bytes; NaN is refused, half a surrogate pair escaped."""
        return dumped(content).encode()


def dumped(content: Any) -> str:
    """Return JSON in one line."""
    return json.dumps(content, allow_nan=False, separators=(",", ":"))


class _Request(Request):
    """A request whose JSON is read in Rust: 200 vectors in 4 ms instead of 60."""

    async def json(self) -> Any:
        if not hasattr(self, "_json"):
            body = await self.body()
            try:
                self._json = from_json(body)
            except ValueError as error:
                raise json.JSONDecodeError(str(error), "", 0) from error
        return self._json


class JsonRoute(APIRoute):
    """A route of such requests, as FastAPI's documentation has it."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler."""
        handle = super().get_route_handler()

        async def handle_faster(request: Request) -> Response:
            return await handle(_Request(request.scope, request.receive))

        return handle_faster
