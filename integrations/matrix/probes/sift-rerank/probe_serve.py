"""The service answers whether it lives."""

import socket
import threading
import urllib.request

import uvicorn

from sift_core.service import create_app

with socket.socket() as listening:
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    server = uvicorn.Server(uvicorn.Config(create_app(), log_level="warning"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    port = listening.getsockname()[1]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=60) as answer:
        assert answer.status == 200, answer.status
    server.should_exit = True
    thread.join()
