"""Work that ends when the client that asked for it goes away."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from sift_core.errors import MissingDependencyError
from sift_core.service.errors import RefusedError

try:
    from anyio import create_task_group
except ImportError as error:
    raise MissingDependencyError("fastapi", extra="serve") from error

if TYPE_CHECKING:
    from starlette.types import Receive

T = TypeVar("T")


async def while_there(receive: Receive, work: Callable[[], Awaitable[T]]) -> T:
    """Return what the work returns; cancel it as soon as the client has gone.

    Threads in which it computes find out by `anyio.from_thread.check_cancelled`.

    Args:
        receive: Of a request whose body was read.
        work: Begins the work.

    Raises:
        RefusedError: If the client has gone; nobody reads it.
    """
    results: list[T] = []
    errors: list[Exception] = []
    async with create_task_group() as group:

        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            group.cancel_scope.cancel()

        group.start_soon(watch)
        try:
            results.append(await work())
        except Exception as error:  # a task group would wrap it
            errors.append(error)
        group.cancel_scope.cancel()
    if errors:
        raise errors[0]
    if not results:
        raise RefusedError("the client went away", status=499)
    return results[0]
