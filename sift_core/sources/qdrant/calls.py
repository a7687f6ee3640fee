"""Calls of Qdrant's clients: each ends in time, and fails as an error of ours."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from sift_core.errors import MissingDependencyError
from sift_core.sources.qdrant.failures import STORE_ERRORS, failure

try:
    from qdrant_client import AsyncQdrantClient, QdrantClient, models
except ImportError as error:
    raise MissingDependencyError("qdrant-client", extra="qdrant") from error

T = TypeVar("T")

LONGEST_WAIT_S = 60.0  # for a whole answer where the client has no timeout of its own. Guess.
IDS_A_PAGE = 10_000
EMBEDDER_KEY = "sift_embedder_name"  # in the metadata of a collection that `prepare` creates


def is_local(client: QdrantClient | AsyncQdrantClient) -> bool:
    """Return whether a client searches by itself; exactly then, and parameters make it warn."""
    options = client.init_options
    return options.get("location") == ":memory:" or options.get("path") is not None


def timeout_s(client: QdrantClient | AsyncQdrantClient) -> float | None:
    """Return the longest time for an answer; None for a local client, which cannot stall."""
    if is_local(client):
        return None
    timeout = client.init_options.get("timeout")
    return LONGEST_WAIT_S if timeout is None else float(timeout)


class Deadline:
    """A moment some seconds from now, or never; httpx times each read, which may trickle for ever.

    Args:
        seconds: From now; None for never.
    """

    def __init__(self, seconds: float | None) -> None:
        self._moment = None if seconds is None else time.monotonic() + seconds

    @property
    def left_s(self) -> float | None:
        """Seconds until then, >= 0; None if there is no such moment."""
        return None if self._moment is None else max(0.0, self._moment - time.monotonic())


def within(seconds: float | None, call: Callable[[], T]) -> T:
    """Return what `call` returns, or raise TimeoutError after some seconds.

    The call runs in a thread of its own (some 70 µs), in a copy of the caller's context. One
    that is given up goes on until it ends by itself; it keeps no interpreter from exiting.

    Args:
        seconds: Longest time to wait; None to call in this very thread.
        call: What to do.

    Raises:
        TimeoutError: If there is no result in time.
    """
    if seconds is None:
        return call()
    future: Future[T] = Future()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            future.set_result(context.run(call))
        except BaseException as error:  # the caller's to handle, whatever it is
            future.set_exception(error)

    threading.Thread(target=run, name="sift-deadline", daemon=True).start()
    try:
        return future.result(seconds)
    except FutureTimeoutError as error:
        if future.done():  # the call's own error, of the same kind
            raise
        raise _late(seconds) from error


async def awithin(seconds: float | None, call: Awaitable[T]) -> T:
    """Return what `call` returns, or cancel it and raise TimeoutError after some seconds."""
    try:
        return await asyncio.wait_for(call, seconds)
    except asyncio.TimeoutError as error:  # from Python 3.11 on the same as TimeoutError
        raise _late(seconds) from error


def _late(seconds: float | None) -> TimeoutError:
    return TimeoutError(f"no complete answer within {seconds:.3g} s")


@dataclass(frozen=True, kw_only=True)
class Collection:
    """A collection and the blocking client that reaches it."""

    client: QdrantClient
    name: str

    def ask(self, action: str, method: str, **arguments: Any) -> Any:
        """Return what a method of the client returns.

        Args:
            action: What it is asked to do, for the message; "list the points of" for instance.
            method: Name of the client's method.
            arguments: Its arguments after the collection's name.

        Raises:
            CandidateSourceError: If Qdrant fails, or does not answer in time.
        """
        call = partial(getattr(self.client, method), self.name, **arguments)
        try:
            return within(timeout_s(self.client), call)
        except STORE_ERRORS as error:
            raise failure(error).as_error(action, f"collection {self.name!r}") from error

    def points(self, action: str, *, payload: bool | list[str]) -> Iterator[Any]:
        """Yield all points, a page of 10,000 a request, with these keys of their payload.

        Raises:
            CandidateSourceError: As `ask`.
        """
        offset = None
        while True:  # no filter: strict servers want an index for it
            page, offset = self.ask(
                action,
                "scroll",
                limit=IDS_A_PAGE,
                offset=offset,
                with_payload=payload,
                with_vectors=False,
            )
            yield from page
            if offset is None:
                return

    def exists(self) -> bool:
        """Return whether it is there."""
        return bool(self.ask("find", "collection_exists"))

    def dense_sizes(self) -> dict[str, int]:
        """Return the dimension of each dense vector, by name."""
        return dense_sizes(self.ask("look at", "get_collection"))

    def embedder_name(self) -> str | None:
        """Return the embedder that the collection names; None where there is no such name."""
        if not self.exists():
            return None
        name: str | None = (self.ask("look at", "get_collection").config.metadata or {}).get(
            EMBEDDER_KEY
        )
        return name


def dense_sizes(information: models.CollectionInfo) -> dict[str, int]:
    """Return the dimension of a collection's vectors that are dense and one a point, by name."""
    vectors = information.config.params.vectors or {}
    named = {"": vectors} if isinstance(vectors, models.VectorParams) else vectors
    return {
        name: config.size for name, config in named.items() if config.multivector_config is None
    }


def vector_advice(information: models.CollectionInfo) -> str:
    """Return what to look at where a collection refuses a search."""
    sizes = ", ".join(f"{name!r} of {n}" for name, n in dense_sizes(information).items())
    return (
        f"its dense vectors are {sizes or 'none'} (dimensions): is `vector_name` one of them, is "
        f"the filter right, and were both embedded by one model?"
    )
