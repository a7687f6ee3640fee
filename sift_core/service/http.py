"""Requests and answers in JSON: cheap to refuse, fast to read, and no work for a client that left.

Pydantic reports each fault of a list or an object. Two million of them took gigabytes and half a
minute, from a body of two megabytes. So the first fault ends the reading of a list, and an object
has a hundred keys at most.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar

from anyio import CancelScope
from fastapi import Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel, BeforeValidator, FailFast, model_validator
from pydantic_core import from_json

from sift_core.option_fields import OptionsModel
from sift_core.service.errors import RefusedError

if TYPE_CHECKING:
    from starlette.types import Receive

T = TypeVar("T")
MAX_KEYS = 100
MAX_QUERIES = 16  # each embeds a text and fetches as many candidates as one alone


class _FirstFault(FailFast):
    __hash__ = object.__hash__  # without one it can be no part of a union


Many: TypeAlias = Annotated[list[T], _FirstFault()]
"""A list of which only the first fault is reported."""


def check_keys(value: Any) -> Any:
    """Refuse an object with more keys than any request has."""
    if isinstance(value, dict) and len(value) > MAX_KEYS:
        raise ValueError(f"must have at most {MAX_KEYS} keys, got {len(value):,}")
    return value


FewKeys = BeforeValidator(check_keys)


class Body(BaseModel):
    """An object in a request."""

    @model_validator(mode="before")
    @classmethod
    def _check_keys(cls, value: Any) -> Any:
        return check_keys(value)


class ChoiceBody(Body, OptionsModel):
    """An object with options of a choice among its fields, by `with_option_fields`."""


def dumped(content: Any) -> str:
    """Return JSON in one line, with half a surrogate pair escaped.

    Raises:
        ValueError: If a number is NaN or infinite.
    """
    return json.dumps(content, allow_nan=False, separators=(",", ":"))


class JsonAnswer(JSONResponse):
    """An answer in JSON."""

    def render(self, content: Any) -> bytes:
        """Return the bytes."""
        return dumped(content).encode()


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
    """A route that reads such requests and stops working when its client goes away."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler."""
        handle = super().get_route_handler()

        async def handle_while_there(request: Request) -> Response:
            request = _Request(request.scope, request.receive)
            await request.body()  # what comes after it tells that the client has gone
            return await while_there(request.receive, lambda: handle(request))

        return handle_while_there


async def while_there(receive: Receive, work: Callable[[], Awaitable[T]]) -> T:
    """Return the result of the work; cancel it as soon as the client has gone.

    Threads in which it computes find out by `anyio.from_thread.check_cancelled`.

    Args:
        receive: Of a request whose body was read.
        work: Begins the work.

    Raises:
        RefusedError: If the client has gone; nobody reads it.
    """
    with CancelScope() as scope:
        watcher = asyncio.create_task(_cancel_without_client(receive, scope))
        try:
            return await work()
        finally:
            watcher.cancel()
    raise RefusedError("the client went away", status=499)


async def _cancel_without_client(receive: Receive, scope: CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
