"""The service at an address: a listening socket, and Uvicorn on it until somebody stops it."""

from __future__ import annotations

import gc
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sift_core.errors import InvalidInputError, MissingDependencyError

if TYPE_CHECKING:
    from starlette.types import ASGIApp

MAX_CONNECTIONS = 512  # more get 503; a process may often open 1,024 files
GRACE_S = 1  # that requests have to end in when the service is stopped
LAST_S = 2.0  # after which the process ends without them
SIGNALLED = 128  # and the signal's number: the exit code, as shells have it


def listener_at(host: str, port: int) -> socket.socket:
    """Return a listening socket.

    Raises:
        InvalidInputError: If there is no such address here, or the port is taken.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise InvalidInputError(
            f"cannot listen at {host}:{port} ({error.strerror or error}); is the port taken? "
            f"--port 0 takes a free one"
        ) from error
    # asyncio sets this for sockets that it makes itself; without it small answers wait 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def serve_at(
    listener: socket.socket,
    app: ASGIApp,
    *,
    on_start: Callable[[], object],
    on_stop: Callable[[], object],
) -> None:
    """Serve at a listening socket until somebody stops the process.

    Args:
        listener: As `listener_at` returns it.
        app: Any ASGI application.
        on_start: Function that is called before the first request is read.
        on_stop: Function that is called at a signal to stop, while answers are still being sent.

    Raises:
        MissingDependencyError: If Uvicorn is not installed.
    """
    try:
        import uvicorn
    except ImportError as error:
        raise MissingDependencyError("uvicorn", extra="serve") from error

    from sift_core.service.guard import PromptHeaders

    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        ws="none",
        http=PromptHeaders,  # over h11; the other that Uvicorn may find takes headers of any size
        limit_concurrency=MAX_CONNECTIONS,
        timeout_graceful_shutdown=GRACE_S,
    )
    # What is there now stays: to look for waste in it took 0.3 s, in the middle of a large request.
    gc.collect()
    gc.freeze()
    on_start()

    class Server(uvicorn.Server):
        last: threading.Timer | None = None

        def handle_exit(self, sig: int, frame: Any) -> None:
            if self.last is not None:  # a second time
                os._exit(SIGNALLED + sig)
            self.last = threading.Timer(LAST_S, os._exit, [SIGNALLED + sig])
            self.last.daemon = True
            self.last.start()
            on_stop()
            super().handle_exit(sig, frame)

    server = Server(config)
    try:
        with _left_at_sigterm():
            server.run(sockets=[listener])
    finally:
        if server.last is not None:
            server.last.cancel()


@contextmanager
def _left_at_sigterm() -> Iterator[None]:
    """Leave the block by SystemExit at SIGTERM, so that stores close and the last spans are sent.

    Uvicorn raises a signal again after it has stopped, which would end the process at once.
    """

    def leave(number: int, _: Any) -> None:
        raise SystemExit(SIGNALLED + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)
