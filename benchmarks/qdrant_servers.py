"""Qdrant servers in processes of their own, so that their work and interpreter locks are not ours.

`answering` and `answering_grpc` give one prepared answer to every query. `serving` gives each query
documents of its own, takes many connections at once, and answers what the frameworks' stores ask
besides: collection info, points by id, batches. There the vectors of all queries' documents are the
same, their ids and texts are not, so that an answer meant for another query shows.
"""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from typing import Any, TypeVar

import grpc
import numpy as np
from qdrant_client import QdrantClient, models
from qdrant_client.conversions.conversion import RestToGrpc
from qdrant_client.grpc import QueryResponse

from sift_core.types import CandidatePool

QUERY = "/qdrant.Points/Query"
ID_STEP = 10_000  # more than any query has documents
T = TypeVar("T")


@contextmanager
def served_by(serve: Callable[[Connection, T], None], served: T) -> Iterator[str]:
    """Yield the URL of a server on this machine, until the block ends.

    Args:
        serve: A function of a module; it sends its port over the connection, and serves.
        served: What it is given beside the connection; it is pickled.
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


def _serve_rest(connection: Connection, content: bytes) -> None:
    _serve_http(connection, lambda path, body: content)


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


@dataclass(frozen=True, kw_only=True, eq=False)
class Served:
    """A collection as the server holds it.

    Args:
        name: Of the collection.
        vector_name: "" for the unnamed one.
        asked: The queries' vectors, shape (g, d), unit rows.
        vectors: The documents' vectors, nearest first, shape (k, d): the same for each query.
        payloads: k payloads for each of the g queries.
    """

    name: str
    vector_name: str
    asked: np.ndarray
    vectors: np.ndarray
    payloads: list[list[dict[str, Any]]]


def point_id(group: int, position: int) -> str:
    """Return the id of a document, a UUID that tells whose it is."""
    return f"00000000-0000-4000-8000-{group * ID_STEP + position:012d}"


def serving(*collections: Served) -> AbstractContextManager[str]:
    """Yield the URL of a server of some collections, until the block ends."""
    return served_by(_serve_collections, collections)


class Answers:
    """The JSON of every answer about one collection, put together from prepared parts."""

    def __init__(self, served: Served) -> None:
        self._asked = served.asked
        self._scores = [f"{score:.8f}" for score in served.vectors @ served.asked[0]]
        self._payloads = [
            [json.dumps(payload) for payload in payloads] for payloads in served.payloads
        ]
        self._vectors = []
        for row in served.vectors:
            bare: Any = [round(float(x), 8) for x in row]  # as many digits as Qdrant
            self._vectors.append(
                json.dumps({served.vector_name: bare} if served.vector_name else bare)
            )
        self._info = _info(served)

    def answer(self, path: str, body: bytes) -> str:
        """Return the result of one request; `path` is what follows the collection's name.

        Raises:
            KeyError: If there is no such request.
        """
        if path == "":
            return self._info
        if path == "/exists":
            return '{"exists": true}'
        request = json.loads(body)
        if path == "/points/query":
            return self._nearest(request)
        if path == "/points/query/batch":
            return f"[{','.join(self._nearest(each) for each in request['searches'])}]"
        if path == "/points":
            return self._by_id(request)
        raise KeyError(path)

    def _nearest(self, request: dict[str, Any]) -> str:
        query = request["query"]
        vector = query["nearest"] if isinstance(query, dict) else query
        group = int(np.argmax(self._asked @ np.asarray(vector)))
        n = min(request.get("limit", 10), len(self._vectors))
        points = [self._point(request, group, i, scored=True) for i in range(n)]
        return f'{{"points": [{",".join(points)}]}}'

    def _by_id(self, request: dict[str, Any]) -> str:
        places = [divmod(int(str(each)[-12:]), ID_STEP) for each in request["ids"]]
        return f"[{','.join(self._point(request, *place, scored=False) for place in places)}]"

    def _point(self, request: dict[str, Any], group: int, i: int, *, scored: bool) -> str:
        parts = [f'"id": "{point_id(group, i)}"']
        if scored:
            parts.append(f'"version": 0, "score": {self._scores[i]}')
        if request.get("with_payload"):
            parts.append(f'"payload": {self._payloads[group][i]}')
        if request.get("with_vector"):
            parts.append(f'"vector": {self._vectors[i]}')
        return f"{{{', '.join(parts)}}}"


def _info(served: Served) -> str:
    """Return what Qdrant says of such a collection."""
    size = models.VectorParams(size=served.vectors.shape[1], distance=models.Distance.COSINE)
    client = QdrantClient(":memory:")
    name = served.vector_name
    client.create_collection(served.name, {name: size} if name else size)
    return client.get_collection(served.name).model_dump_json(exclude_none=True)


def _serve_collections(connection: Connection, collections: tuple[Served, ...]) -> None:
    answers = {served.name: Answers(served) for served in collections}

    def answer(path: str, body: bytes) -> bytes:
        _, _, name, *rest = path.split("?")[0].split("/")
        result = answers[name].answer("".join(f"/{part}" for part in rest), body)
        return f'{{"result": {result}, "status": "ok", "time": 0.0}}'.encode()

    _serve_http(connection, answer)


def _serve_http(connection: Connection, answer: Callable[[str, bytes], bytes]) -> None:
    """Send the port over the connection, and answer requests; a `KeyError` is 404."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # keeps the connection, as Qdrant does
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            try:
                content = answer(self.path, body)
            except KeyError as error:
                self.send_error(404, str(error))
                return
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST

        def log_message(self, format: str, *args: object) -> None:
            """Keep quiet."""

    class Server(ThreadingHTTPServer):
        request_queue_size = 512  # hundreds of tasks connect at once
        daemon_threads = True

    server = Server(("127.0.0.1", 0), Handler)
    connection.send(server.server_address[1])
    server.serve_forever()
