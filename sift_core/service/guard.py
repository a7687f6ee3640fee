"""What every request passes first: its name, who may call, how much it may send.

One ASGI layer around all routes. It reads the whole body before a route runs, so that a large or a
slow one costs no more than its own bytes; what a client sends is small beside an answer's work.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from sift_core.service.errors import RefusedError, refusal_of, request_id, told
from sift_core.service.json_bodies import JsonAnswer
from sift_core.service.metrics import Metrics
from sift_core.service.settings import ServiceSettings

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

OPEN = frozenset({"/health", "/ready"})  # needs no key
_REQUEST_ID = re.compile(rb"[A-Za-z0-9_.-]{1,64}")  # a client's own name for a request


class Guard:
    """Names, times and counts each request; refuses what may not pass; tells of what failed.

    A path with a slash behind it is the one without: no redirect, to whatever host was named.

    Args:
        app: All routes.
        settings: The key and the limits.
        metrics: Told of each request.
        open_paths: That need no key: files of the page.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        settings: ServiceSettings,
        metrics: Metrics,
        open_paths: Collection[str] = (),
    ) -> None:
        self._app, self._settings, self._metrics = app, settings, metrics
        self._open_paths = OPEN | set(open_paths)
        self._room = settings.max_held_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        scope = {**scope, "path": scope["path"].rstrip("/") or "/"}
        headers: dict[bytes, bytes] = dict(scope["headers"])
        name = headers.get(b"x-request-id", b"")
        if not _REQUEST_ID.fullmatch(name):
            name = uuid4().hex.encode()
        request_id.set(name.decode())
        status = n_held = 0

        def hold(n_bytes: int) -> None:
            nonlocal n_held
            if n_bytes > self._room:
                raise _no_room()
            self._room -= n_bytes
            n_held += n_bytes

        async def named(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", name)]
            await send(message)

        try:
            self._check_host(headers)
            self._check_key(scope, headers)
            body = await self._body(headers, receive, hold)
            await self._app(scope, _replayed(body, receive), named)
        except Exception as error:
            refused = refusal_of(error)
            if status:  # the answer has begun: the connection is cut
                raise
            answer = told(scope["path"], refused)
            also = {"connection": "close"} if refused.status == 408 else {}
            response = JsonAnswer(answer.body, answer.status, {**answer.headers, **also})
            await response(scope, receive, named)
        finally:
            self._room += n_held
            # A template such as "/v1/rerank"; never what clients make up, which has no end.
            route = getattr(scope.get("route"), "path", None) or "other"
            self._metrics.request(route, status, time.perf_counter() - started)

    def _check_host(self, headers: dict[bytes, bytes]) -> None:
        allowed = self._settings.allowed_hosts
        host = headers.get(b"host", b"").decode("latin-1")
        name = host.rpartition(":")[0] if re.search(r":\d+$", host) else host
        if allowed and name.lower() not in allowed:
            raise RefusedError(
                f"this service answers to {', '.join(dict.fromkeys(allowed))} alone; call it by "
                f"one of these, or start it with a key",
                status=421,
                code="wrong_host",
            )

    def _check_key(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        key = self._settings.api_key
        if key is None or scope["path"] in self._open_paths:
            return
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        is_right = hmac.compare_digest(given.strip(), key.encode())
        if scheme.lower() != b"bearer" or not is_right:
            raise RefusedError(
                "a key is needed: send the header `Authorization: Bearer KEY`",
                status=401,
                code="invalid_api_key",
            )

    async def _body(
        self, headers: dict[bytes, bytes], receive: Receive, hold: Callable[[int], object]
    ) -> bytes:
        """Return the whole body, read while nothing is computed."""
        limit = self._settings.max_body_bytes
        told_length = headers.get(b"content-length", b"")
        if told_length.isdigit() and int(told_length) > limit:
            raise _too_large(limit)
        try:
            return await asyncio.wait_for(
                _read(receive, limit, hold), self._settings.body_timeout_s
            )
        except asyncio.TimeoutError as error:
            raise RefusedError("the request did not arrive in time", status=408) from error


async def _read(receive: Receive, limit: int, hold: Callable[[int], object]) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise RefusedError("the client went away", status=499)  # nobody reads it
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > limit:
            raise _too_large(limit)
        hold(len(parts[-1]))
        if not message.get("more_body"):
            return b"".join(parts)


def _replayed(body: bytes, receive: Receive) -> Callable[[], Any]:
    """Return a `receive` that gives the body at once, then what really comes."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return first.pop() if first else await receive()

    return replay


def _no_room() -> RefusedError:
    return RefusedError(
        "the requests that are being served are too large together; ask again later",
        status=429,
        code="overloaded",
        retry_after_s=1.0,
    )


def _too_large(limit: int) -> RefusedError:
    return RefusedError(
        f"the request is larger than {limit:,} bytes; send fewer documents at once",
        status=413,
        code="request_too_large",
    )
