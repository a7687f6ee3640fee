"""A real server on a loopback port, for a `with` block."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import contextmanager

import uvicorn

TEXTS = [
    "to fold a paper boat, fold the sheet in half",
    "to fold a paper boat, fold the sheet in half!",  # a copy
    "a paper boat floats until the paper is wet",
    "boats of paper are painted with wax to stay dry",
    "water for green tea must not boil",
    "black tea takes four minutes in boiling water",
    "the river has cold water",
    "many leaves fall from a tree in the wind",
]


@contextmanager
def serving(app):
    """Serve an application from another thread; yield its address."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="on"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    try:
        yield address
    finally:
        server.should_exit = True
        thread.join(timeout=30)
        listener.close()
