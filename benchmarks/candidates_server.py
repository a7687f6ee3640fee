"""A server in a process of its own that gives one prepared answer to every Qdrant query."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from http.server import BaseHTTPRequestHandler, HTTPServer
from multiprocessing.connection import Connection

from benchmarks.server_process import served_by
from sift_core.types import CandidatePool


def answering(pool: CandidatePool) -> AbstractContextManager[str]:
    """Yield the URL of a server that answers with the points of a pool, until the block ends."""
    points = [
        {
            "id": i,
            "version": 0,
            "score": float(pool.similarities[i]),
            "payload": {"text": pool.texts[i], "page": i},
            "vector": [round(float(x), 8) for x in pool.embeddings[i]],  # as many digits as Qdrant
        }
        for i in range(len(pool))
    ]
    answer = {"result": {"points": points}, "status": "ok", "time": 0.0}
    return served_by(_serve, json.dumps(answer).encode())


def _serve(connection: Connection, body: bytes) -> None:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # keeps the connection, as Qdrant does
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Keep quiet."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    connection.send(server.server_address[1])
    server.serve_forever()
