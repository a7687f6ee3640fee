"""What every request passes first: the time of its headers, its host, its key, its body's size.

`Guard` is one ASGI layer around all routes. It reads the whole body before a route runs, so that a
large or a slow one costs no more than its own bytes. A client's body is small beside an answer's
work. `PromptHeaders` is the layer below, for Uvicorn.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import time
from collections.abc import Awaitable, Collection
from math import inf
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import h11
from anyio import CancelScope, fail_after, sleep_forever
from uvicorn.protocols.http.h11_impl import H11Protocol

from sift_core.service.errors import (
    RefusedError,
    openai_error,
    refusal_of,
    request_id,
    stopping,
)
from sift_core.service.http import JsonAnswer
from sift_core.service.metrics import Metrics
from sift_core.service.request_span import record_response, request_span
from sift_core.service.settings import ServiceSettings
from sift_core.tracing import Span

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

OPEN = frozenset({"/health", "/ready"})  # needs no key
HELD_BODIES = 4  # of the largest size, at once; read as JSON they may take 60 times as much
BODY_S = 60.0  # in which a request must arrive
CLIENT_LEFT = 499  # as nginx counts them; nobody reads it
_REQUEST_ID = re.compile(rb"[A-Za-z0-9_.-]{1,64}")  # a client's own name for a request
_TEI_TYPES = {422: "Validation", 424: "Backend", 429: "Overloaded", 503: "Unhealthy"}


class Guard:
    """Names, times, counts and traces requests, and answers every error that a route raises.

    A route's work ends when its client goes away.

    A path that ends with a slash is the same path without it. Nothing is redirected, since that
    would name whatever host the client named.

    Args:
        app: All routes.
        settings: The key and the limits.
        metrics: Counts each request.
        open_paths: Paths that need no key beside /health and /ready, and have no span. Default:
            none.
        quiet_paths: Further paths whose requests have no span, beside /metrics. Default: none.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        settings: ServiceSettings,
        metrics: Metrics,
        open_paths: Collection[str] = (),
        quiet_paths: Collection[str] = (),
    ) -> None:
        self._app, self._settings, self._metrics = app, settings, metrics
        self._open_paths = OPEN | set(open_paths)
        self._quiet_paths = self._open_paths | {"/metrics", *quiet_paths}
        self._room = HELD_BODIES * settings.max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope = {**scope, "path": scope["path"].rstrip("/") or "/"}
        with request_span(scope, is_quiet=scope["path"] in self._quiet_paths) as span:
            await self._serve(scope, receive, send, span)

    async def _serve(self, scope: Scope, receive: Receive, send: Send, span: Span) -> None:
        started = time.perf_counter()
        headers: dict[bytes, bytes] = dict(scope["headers"])
        name = headers.get(b"x-request-id", b"")
        if not _REQUEST_ID.fullmatch(name):
            name = uuid4().hex.encode()
        request_id.set(name.decode())
        exchange = _Exchange(send, name)
        try:
            self._check_host(headers)
            self._check_key(scope, headers)
            body = await self._body(headers, receive, exchange)
            await _while_there(self._app(scope, _whole(body), exchange.send), receive, exchange)
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError):  # by the server, which is being stopped
                error = stopping()
                if exchange.status:
                    return
            refused = refusal_of(error)
            if exchange.status:  # the answer has begun: the connection is cut
                raise
            await _in_dialect(scope["path"], refused)(scope, receive, exchange.send)
        finally:
            self._room += exchange.n_held
            # A template such as "/v1/rerank"; never what clients make up, which has no end.
            template = getattr(scope.get("route"), "path", None)
            record_response(
                span, scope, exchange.status, template, is_complete=exchange.is_complete
            )
            route = template or "other"
            self._metrics.requests.labels(route, str(exchange.status)).inc()
            self._metrics.request_seconds.labels(route).observe(time.perf_counter() - started)

    def _check_host(self, headers: dict[bytes, bytes]) -> None:
        allowed = self._settings.allowed_hosts
        name = re.sub(r":\d+$", "", headers.get(b"host", b"").decode("latin-1"))
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
        self, headers: dict[bytes, bytes], receive: Receive, exchange: _Exchange
    ) -> bytes:
        """Return the whole body, read while nothing is computed."""
        limit = self._settings.max_body_bytes
        too_large = RefusedError(
            f"the request is larger than {limit:,} bytes; send fewer documents at once",
            status=413,
            code="request_too_large",
        )
        length = headers.get(b"content-length", b"")
        if length.isdigit() and int(length) > limit:
            raise too_large
        parts: list[bytes] = []
        size, has_more = 0, True
        try:
            with fail_after(BODY_S):
                while has_more:
                    message = await receive()
                    if message["type"] != "http.request":
                        raise RefusedError("the client went away", status=CLIENT_LEFT)
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > limit:
                        raise too_large
                    self._hold(len(parts[-1]), exchange)
                    has_more = message.get("more_body", False)
        except TimeoutError as error:
            raise RefusedError(
                "the request did not arrive in time", status=408, headers={"connection": "close"}
            ) from error
        return b"".join(parts)

    def _hold(self, n_bytes: int, exchange: _Exchange) -> None:
        """Count bytes of a body until its answer is over, so that all together have a bound."""
        if n_bytes > self._room:
            raise RefusedError(
                "the requests that are being served are too large together; ask again later",
                status=429,
                code="overloaded",
                retry_after_s=1.0,
            )
        self._room -= n_bytes
        exchange.n_held += n_bytes


class _Exchange:
    """A request that is being served: the bytes held of it, and what was sent so far."""

    def __init__(self, send: Send, name: bytes) -> None:
        self._send, self._name = send, name
        self.n_held = 0
        self.status = 0
        self.is_complete = False

    async def send(self, message: Message) -> None:
        """Send a part of the answer, with the request's name."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message.get("headers", ()), (b"x-request-id", self._name)]
        elif not message.get("more_body"):
            self.is_complete = True
        await self._send(message)


async def _while_there(work: Awaitable[None], receive: Receive, exchange: _Exchange) -> None:
    """Do the work of a request whose body was read; cancel it as soon as the client has gone.

    Threads in which it computes find out by `anyio.from_thread.check_cancelled`.
    """

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        if not exchange.is_complete:
            scope.cancel()

    with CancelScope() as scope:
        watcher = asyncio.create_task(watch())
        try:
            await work
        finally:
            watcher.cancel()
    if scope.cancelled_caught and not exchange.status:
        exchange.status = CLIENT_LEFT


def _whole(body: bytes) -> Receive:
    """Return a `receive` that gives the body at once, and then nothing more."""
    parts: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        if not parts:
            await sleep_forever()
        return parts.pop()

    return receive


def _in_dialect(path: str, refused: RefusedError) -> JsonAnswer:
    """Return an error in the dialect of a path.

    Several dialects share /v1/rerank and /rerank, so their errors have the keys of all of them.
    A collection's paths have the dialects of those without its name.
    """
    path = re.sub(r"^/collections/[^/]+(?=/)", "", path)
    message, status = str(refused), refused.status
    headers = dict(refused.headers)
    if refused.retry_after_s is not None:
        headers["retry-after"] = str(max(1, round(refused.retry_after_s)))
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    body: dict[str, Any] = {"detail": message}
    if path.endswith("/rerank"):
        body = {"message": message, "detail": message}
        if path == "/rerank":  # 422 as Jina and TEI have it; TEI's 424: the model failed
            status = {400: 422, 500: 424}.get(status, status)
            body |= {"error": message, "error_type": _TEI_TYPES.get(status, "Validation")}
    elif path.startswith("/v1/"):
        body = {"error": openai_error(refused)}
    return JsonAnswer(body, status, headers)


class PromptHeaders(H11Protocol):
    """Uvicorn's protocol, which closes a connection whose client keeps it waiting.

    - Headers may take `headers_s`. Uvicorn waits for them for ever: its `timeout_keep_alive` ends
      with the first byte. This can go when it has the option that
      https://github.com/Kludex/uvicorn/issues/157 asks for. The time of a connection's first
      request begins with the connection, that of a later one with its first byte.
    - A client must read something of its answer in each `unread_s`.
    - At Uvicorn's `limit_concurrency`, a new connection ends those whose requests are the longest
      overdue. A request that just arrives has `spared_s`.
    """

    headers_s: float = 20.0
    unread_s: float = 60.0
    spared_s: float = 0.5
    _late: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None
    _began = 0.0  # to wait for headers

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for headers."""
        super().connection_made(transport)  # type: ignore[arg-type]  # TCP has no other kind
        self._wait()
        if self.limit_concurrency and len(self.connections) >= self.limit_concurrency:
            self._make_room(self.limit_concurrency)

    def data_received(self, data: bytes) -> None:
        """Take what has come; wait on while it is no whole request's headers."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop_waiting()
        elif self._late is None:
            self._wait()

    def pause_writing(self) -> None:
        """Begin to wait until the client reads."""
        super().pause_writing()
        self._check_reading(inf)

    def resume_writing(self) -> None:
        """Wait no longer, since the client has read."""
        super().resume_writing()
        self._stop_watching()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._stop_waiting()
        self._stop_watching()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._began = self.loop.time()
        self._late = self.loop.call_later(self.headers_s, self.timeout_keep_alive_handler)

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _check_reading(self, n_before: float) -> None:
        """Cut the connection if as many bytes of the answer are unread as before."""
        n_unread = self.transport.get_write_buffer_size()
        if n_unread >= n_before:
            self.transport.abort()
        else:
            self._unread = self.loop.call_later(self.unread_s, self._check_reading, n_unread)

    def _stop_watching(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _make_room(self, limit: int) -> None:
        """Cut the connections that wait longest for a request, until fewer than `limit` are left.

        One whose request is complete is never cut.
        """
        spared = self.loop.time() - self.spared_s
        waiting = [
            one
            for one in self.connections
            if isinstance(one, PromptHeaders)
            and one.conn.their_state in (h11.IDLE, h11.SEND_BODY)
            and one._began < spared
        ]
        waiting.sort(key=lambda one: one._began)
        for one in waiting[: len(self.connections) - limit + 1]:
            one.transport.abort()
            self.connections.discard(one)  # at once, since Uvicorn counts them
