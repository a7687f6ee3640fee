"""Calls of Qdrant's clients, blocking or awaited, and what their failures mean."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

import grpc
import httpx
from pydantic import ValidationError
from qdrant_client import AsyncQdrantClient, QdrantClient
from qdrant_client.common.client_exceptions import QdrantException, ResourceExhaustedResponse
from qdrant_client.http.exceptions import (
    ApiException,
    ResponseHandlingException,
    UnexpectedResponse,
)

from sift_core.addresses import retry_after
from sift_core.errors import CandidateSourceError

T = TypeVar("T")

# One operation, written once for both kinds of client. It yields functions of the client, and is
# sent the result of each. An async client's result is awaited first.
Steps: TypeAlias = Generator[Callable[[Any], Any], Any, T]

# Local mode raises ValueError, REST ApiException and QdrantException, gRPC RpcError; OSError
# and sqlite3.Error are a folder that cannot be read, RuntimeError a client that was closed,
# AssertionError an answer without a result; AttributeError, LookupError and TypeError are what the
# client makes of points that are none.
STORE_ERRORS = (
    AssertionError,
    AttributeError,
    LookupError,
    TypeError,
    ApiException,
    QdrantException,
    ValueError,
    grpc.RpcError,
    OSError,
    RuntimeError,
    sqlite3.Error,
)

UNREACHABLE = "is the server up, and is the client's address right?"
TOO_SLOW = "raise the client's `timeout`, or ask for less at once"
CROWDED = (
    "more calls at once than the client has connections: ask for less at once, by `fetch_batch` "
    "for instance, or raise the client's `pool_size` or `timeout`"
)
NO_RIGHTS = (
    "check the client's `api_key` (QDRANT_API_KEY of `sift`) and its rights for this collection"
)
NOT_THERE = "create the collection, or correct its name (and the client's `prefix`)"
BROKEN_OFF = "ask again; if it stays, see the log of the server or of a proxy before it"
BUSY = "ask again later, or less at a time"
NOT_QDRANT = (
    "does the address lead to a Qdrant server, and do its version and the client's fit? A folder "
    "may be damaged: restore it, or index again into another"
)
TLS = "do `https`, host name and certificate authority of client and server fit?"
REFUSED = "are collection, vector name, filter and dimension right?"
CLOSED = "open the client (again), and let no other process hold its folder"
SERVERS_FAULT = "see the server's log"

BY_STATUS = {
    401: NO_RIGHTS,
    403: NO_RIGHTS,
    404: NOT_THERE,
    408: TOO_SLOW,
    429: BUSY,
    503: BUSY,
    504: TOO_SLOW,
}
BY_CODE = {
    grpc.StatusCode.DEADLINE_EXCEEDED: TOO_SLOW,
    grpc.StatusCode.INVALID_ARGUMENT: REFUSED,
    grpc.StatusCode.NOT_FOUND: NOT_THERE,
    grpc.StatusCode.PERMISSION_DENIED: NO_RIGHTS,
    grpc.StatusCode.RESOURCE_EXHAUSTED: BUSY,
    grpc.StatusCode.UNAUTHENTICATED: NO_RIGHTS,
    grpc.StatusCode.UNAVAILABLE: UNREACHABLE,
}
LONGEST_CAUSE = 300  # characters; a proxy may answer with a whole page


def is_local(client: QdrantClient | AsyncQdrantClient) -> bool:
    """Return whether a client searches by itself; exactly then, and parameters make it warn."""
    options = client.init_options
    return options.get("location") == ":memory:" or options.get("path") is not None


def folder_of(client: QdrantClient | AsyncQdrantClient) -> str | None:
    """Return the folder that a local client keeps its collections in; None for any other."""
    path = client.init_options.get("path")
    return None if path is None else str(path)


def place_of(client: QdrantClient | AsyncQdrantClient, collection: str) -> str:
    """Return what messages call a collection: its folder, too, where it is in one."""
    folder = folder_of(client)
    return f"collection {collection!r}" + ("" if folder is None else f" in {folder!r}")


def run(client: Any, steps: Steps[T]) -> T:
    """Carry out steps with a blocking client and return their result.

    An exception of `STORE_ERRORS` is raised in the steps, at the call that failed.
    """
    try:
        call = next(steps)
        while True:
            try:
                answer = call(client)
            except STORE_ERRORS as error:
                call = steps.throw(error)
            else:
                call = steps.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result


async def arun(client: Any, steps: Steps[T]) -> T:
    """Carry out steps with an async client, as `run` does, and return their result."""
    try:
        call = next(steps)
        while True:
            try:
                answer = await call(client)
            except STORE_ERRORS as error:
                call = steps.throw(error)
            else:
                call = steps.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result


@dataclass(frozen=True, kw_only=True)
class Failure:
    """What went wrong, what to do, and when the store wants to be asked again."""

    cause: str
    advice: str
    retry_after_s: float | None = None

    @property
    def is_refusal(self) -> bool:
        """Whether the store is well, and the request does not suit it."""
        return self.advice is REFUSED

    def as_error(self, action: str, place: str, advice: str | None = None) -> CandidateSourceError:
        """Return the error to raise.

        Args:
            action: What Qdrant could not do, for instance "search".
            place: Where, for instance "collection 'docs'".
            advice: Better advice than the general one, from what is known of the place.
        """
        again = "" if self.retry_after_s is None else f" (it asks for {self.retry_after_s:g} s)"
        cause = " ".join(self.cause.split())
        if len(cause) > LONGEST_CAUSE:
            cause = f"{cause[:LONGEST_CAUSE]} …"
        told = f"Qdrant could not {action} {place}: {cause}; {advice or self.advice}{again}"
        return CandidateSourceError(
            told, retry_after_s=self.retry_after_s, is_lasting=self.is_refusal
        )


def failure(error: Exception, client: QdrantClient | AsyncQdrantClient) -> Failure:
    """Return what an exception of `STORE_ERRORS` means, without the keys that the client sends."""
    found = _meaning(error)
    options = client.init_options
    secrets = [options.get("api_key"), *(options.get("headers") or {}).values()]
    cause = found.cause
    for secret in sorted({str(one) for one in secrets if one}, key=len, reverse=True):
        cause = cause.replace(secret, "(a key)")
    return replace(found, cause=cause)


def _meaning(error: Exception) -> Failure:
    if isinstance(error, ResourceExhaustedResponse):
        seconds = max(0.0, float(error.retry_after_s))
        return Failure(cause=f"429, {error.message}", advice=BUSY, retry_after_s=seconds)
    if isinstance(error, QdrantException):  # a 429 whose Retry-After is no number to the client
        value = str(error).partition(": ")[2]  # and only here: the client drops the headers
        return Failure(
            cause=f"429 Too Many Requests, Retry-After: {value}",
            advice=BUSY,
            retry_after_s=retry_after(value),
        )
    if isinstance(error, UnexpectedResponse):
        return _of_response(error)
    if isinstance(error, ResponseHandlingException):
        return _of_transport(error.source)
    if isinstance(error, grpc.RpcError):
        return _of_rpc(error)
    if isinstance(error, TimeoutError):
        return Failure(cause=f"timed out, {error}", advice=TOO_SLOW)
    if isinstance(error, OSError | RuntimeError | sqlite3.Error):
        return Failure(cause=str(error) or repr(error), advice=CLOSED)
    if isinstance(error, AttributeError | LookupError | TypeError):
        cause = f"{type(error).__name__}: {error}"
        return Failure(cause=f"the answer is not Qdrant's: {cause}", advice=NOT_QDRANT)
    if isinstance(error, AssertionError | ValidationError | json.JSONDecodeError):
        return Failure(cause=f"the answer is not Qdrant's: {error}", advice=NOT_QDRANT)
    return Failure(cause=str(error), advice=REFUSED)


def _of_response(error: UnexpectedResponse) -> Failure:
    status = error.status_code or 0
    advice = BY_STATUS.get(status)
    if advice is None:
        advice = REFUSED if 400 <= status < 500 else SERVERS_FAULT if status >= 500 else NOT_QDRANT
    return Failure(
        cause=f"{status} {error.reason_phrase}, {_told_by(error.content)}",
        advice=advice,
        retry_after_s=retry_after(error.headers.get("Retry-After", "")),
    )


def _of_transport(error: Exception) -> Failure:
    if isinstance(error, httpx.TimeoutException):
        advice = TOO_SLOW
        if isinstance(error, httpx.PoolTimeout):
            advice = CROWDED
        elif isinstance(error, httpx.ConnectTimeout):
            advice = UNREACHABLE
        return Failure(cause=f"timed out ({type(error).__name__})", advice=advice)
    cause = f"{type(error).__name__}: {str(error) or 'the connection broke off'}"
    if "SSL" in cause or "certificate" in cause:
        return Failure(cause=cause, advice=TLS)
    if isinstance(error, httpx.ConnectError):
        return Failure(cause=cause, advice=UNREACHABLE)
    if isinstance(error, httpx.TransportError):
        return Failure(cause=cause, advice=BROKEN_OFF)
    if isinstance(error, RuntimeError):  # httpx: the client has been closed
        return Failure(cause=str(error), advice=CLOSED)
    return Failure(cause=f"the answer is not Qdrant's: {cause}", advice=NOT_QDRANT)


def _of_rpc(error: grpc.RpcError) -> Failure:
    code = error.code() if hasattr(error, "code") else None
    details = error.details() if hasattr(error, "details") else str(error)
    name = code.name if code is not None else "gRPC"
    return Failure(cause=f"{name}, {details}", advice=BY_CODE.get(code, SERVERS_FAULT))


def _told_by(content: bytes) -> str:
    """Return the message in the body of an error, in Qdrant's form or not."""
    try:
        return str(json.loads(content)["status"]["error"])
    except (ValueError, TypeError, KeyError):
        return content.decode(errors="replace") or "without a body"
