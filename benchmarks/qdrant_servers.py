"""Qdrant servers in processes of their own, so that their work and interpreter locks are not ours.

They give one prepared answer to every query.
"""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from typing import TypeVar

import grpc
from qdrant_client import models
from qdrant_client.conversions.conversion import RestToGrpc
from qdrant_client.grpc import QueryResponse

from sift_core.types import CandidatePool

QUERY = "/qdrant.Points/Query"
T = TypeVar("T")


@contextmanager
def served_by(serve: Callable[[Connection, T], None], served: T) -> Iterator[str]:
    """Yield the URL of a server on this machine, until the block ends.

    `serve` is a function of a module. It sends its port over the connection, and serves.
    """
    context = multiprocessing.get_context("spawn")  # threads of other libraries stay behind
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs, served), daemon=True)
    process.start()
    theirs.close()  # so that waiting ends where the process dies before it serves
    try:
        yield f"http://127.0.0.1:{ours.recv()}"
    finally:
        process.terminate()
        process.join()


def answering(pool: CandidatePool) -> AbstractContextManager[str]:
    """Yield the URL of a REST server that answers with the points of a pool, until the block ends.

    Numbers have as many digits as Qdrant gives them.
    """
    points = [point.model_dump(exclude_none=True) for point in _points(pool)]
    answer = {"result": {"points": points}, "status": "ok", "time": 0.0}
    return served_by(_serve_rest, json.dumps(answer).encode())


def answering_grpc(pool: CandidatePool) -> AbstractContextManager[str]:
    """Yield the URL of a gRPC server that answers with the points of a pool, until the block ends.

    Numbers have as many digits as Qdrant gives them.
    """
    answer = QueryResponse(result=map(RestToGrpc.convert_scored_point, _points(pool)))
    return served_by(_serve_grpc, answer.SerializeToString())


def _points(pool: CandidatePool) -> list[models.ScoredPoint]:
    return [
        models.ScoredPoint(
            id=i,
            version=0,
            score=float(pool.similarities[i]),
            payload={"text": pool.texts[i], "page": i},
            vector=[round(float(x), 8) for x in pool.embeddings[i]],
        )
        for i in range(len(pool))
    ]


def _serve_grpc(connection: Connection, body: bytes) -> None:
    class Answer(grpc.GenericRpcHandler):
        def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
            if details.method != QUERY:
                return None
            return grpc.unary_unary_rpc_method_handler(lambda request, context: body)

    server = grpc.server(ThreadPoolExecutor(1), handlers=[Answer()])
    connection.send(server.add_insecure_port("127.0.0.1:0"))
    server.start()
    server.wait_for_termination()


def _serve_rest(connection: Connection, content: bytes) -> None:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # keeps the connection, as Qdrant does
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST

        def log_message(self, format: str, *args: object) -> None:
            """Keep quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    connection.send(server.server_address[1])
    server.serve_forever()
