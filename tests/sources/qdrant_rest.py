"""A server that speaks the part of Qdrant's REST API that sources use, and fails on request.

The answers are those of qdrant-client's local mode; the sockets, the HTTP and the faults are
real, so that the real remote client is what gets tested.
"""

import json
import re
import socket
import socketserver
import struct
import sys
import threading
import time
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from importlib.metadata import version
from urllib.parse import parse_qs, unquote, urlsplit

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python
from qdrant_client import models
from qdrant_client.http.models import CountRequest, CreateCollection, ScrollRequest

from tests.sources.qdrant_faults import JSON


class Refusal(Exception):
    """A request that the server refuses, with the status and the text of the real one."""

    def __init__(self, status, text):
        super().__init__(text)
        self.status = status


class Api:
    """Qdrant's REST API over a local client, one call at a time.

    The local mode is not made for threads. Its own refusals are answered as 400; those whose
    text users meet in practice are spelled as the server spells them.
    """

    def __init__(self, client):
        self.client = client
        self.lock = threading.Lock()

    def answer(self, method, path, body):
        """Return the status and the JSON of the answer to one request."""
        started = time.perf_counter()
        try:
            with self.lock:
                result = self._result(method, path, body)
        except Refusal as refusal:
            status, content = refusal.status, {"status": {"error": str(refusal)}}
        except ValidationError as error:
            status, content = 400, {"status": {"error": f"Format error in JSON body: {error}"}}
        except (ValueError, KeyError) as error:
            status, content = 400, {"status": {"error": f"Wrong input: {error}"}}
        else:
            if path == "/":
                return 200, result
            status, content = 200, {"result": result, "status": "ok"}
        return status, {**content, "time": time.perf_counter() - started}

    def _result(self, method, path, body):
        parts = urlsplit(path)
        options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        for verb, pattern, function in ROUTES:
            match = re.fullmatch(pattern, parts.path)
            if match and verb == method:
                names = [unquote(name) for name in match.groups()]
                if names and function not in NEED_NO_COLLECTION:
                    self._check_exists(names[0])
                return function(self, *names, body=body, **options)
        raise Refusal(404, "")

    def _check_exists(self, collection):
        if not self.client.collection_exists(collection):
            raise Refusal(404, f"Not found: Collection `{collection}` doesn't exist!")

    def version(self, **_):
        return {"title": "qdrant - vector search engine", "version": version("qdrant-client")}

    def create(self, collection, *, body, **_):
        if self.client.collection_exists(collection):
            raise Refusal(409, f"Wrong input: Collection `{collection}` already exists!")
        config = CreateCollection.model_validate_json(body)
        return self.client.create_collection(
            collection,
            vectors_config=config.vectors,
            sparse_vectors_config=config.sparse_vectors,
            metadata=config.metadata,
        )

    def update(self, collection, *, body, **_):
        changes = models.UpdateCollection.model_validate_json(body)
        return self.client.update_collection(collection, metadata=changes.metadata)

    def describe(self, collection, **_):
        return self.client.get_collection(collection)

    def exists(self, collection, **_):
        return {"exists": self.client.collection_exists(collection)}

    def query(self, collection, *, body, **_):
        request = models.QueryRequest.model_validate_json(body)
        return self._queried(collection, [request])[0]

    def query_batch(self, collection, *, body, **_):
        batch = models.QueryRequestBatch.model_validate_json(body)
        return self._queried(collection, batch.searches)

    def _queried(self, collection, requests):
        config = self.client.get_collection(collection).config.params
        vectors = config.vectors or {}
        dense = vectors if isinstance(vectors, dict) else {"": vectors}
        names = {*dense, *(config.sparse_vectors or {})}
        for request in requests:
            self._check_vectors(request, dense, names)
        searched = [without_params(request) for request in requests]
        return self.client.query_batch_points(collection, searched)

    def _check_vectors(self, request, dense, names):
        """Refuse what the local mode would let through or refuse in other words."""
        for prefetch in prefetches(request):
            self._check_vectors(prefetch, dense, names)
        vector = getattr(request.query, "nearest", request.query)
        if not isinstance(vector, list | models.SparseVector):
            return
        name = request.using or ""
        if name not in names:
            raise Refusal(400, f"Wrong input: Not existing vector name error: {name}")
        if name in dense and isinstance(vector, list):
            check_dimension(vector, dense[name].size)

    def upsert(self, collection, *, body, wait="false", **_):
        batch = TypeAdapter(models.PointInsertOperations).validate_json(body)
        points = batch.points if isinstance(batch, models.PointsList) else batch.batch
        sizes = self.client.get_collection(collection).config.params.vectors
        if isinstance(points, list) and isinstance(sizes, models.VectorParams):
            for point in points:
                if isinstance(point.vector, list):
                    check_dimension(point.vector, sizes.size)
        self.client.upsert(collection, points)
        return updated(wait)

    def delete(self, collection, *, body, wait="false", **_):
        selector = TypeAdapter(models.PointsSelector).validate_json(body)
        self.client.delete(collection, selector)
        return updated(wait)

    def retrieve(self, collection, *, body, **_):
        request = models.PointRequest.model_validate_json(body)
        return self.client.retrieve(
            collection,
            request.ids,
            with_payload=True if request.with_payload is None else request.with_payload,
            with_vectors=request.with_vector or False,
        )

    def scroll(self, collection, *, body, **_):
        request = ScrollRequest.model_validate_json(body)
        points, following = self.client.scroll(
            collection,
            scroll_filter=request.filter,
            limit=request.limit or 10,
            order_by=request.order_by,
            offset=request.offset,
            with_payload=True if request.with_payload is None else request.with_payload,
            with_vectors=request.with_vector or False,
        )
        return {"points": points, "next_page_offset": following}

    def count(self, collection, *, body, **_):
        return self.client.count(collection, CountRequest.model_validate_json(body).filter)


COLLECTION = r"/collections/([^/]+)"
ROUTES = [
    ("GET", "/", Api.version),
    ("PUT", COLLECTION, Api.create),
    ("PATCH", COLLECTION, Api.update),
    ("GET", COLLECTION, Api.describe),
    ("GET", f"{COLLECTION}/exists", Api.exists),
    ("PUT", f"{COLLECTION}/points", Api.upsert),
    ("POST", f"{COLLECTION}/points", Api.retrieve),
    ("POST", f"{COLLECTION}/points/delete", Api.delete),
    ("POST", f"{COLLECTION}/points/scroll", Api.scroll),
    ("POST", f"{COLLECTION}/points/count", Api.count),
    ("POST", f"{COLLECTION}/points/query", Api.query),
    ("POST", f"{COLLECTION}/points/query/batch", Api.query_batch),
]
NEED_NO_COLLECTION = {Api.create, Api.exists}


def prefetches(request):
    """Return a request's own prefetches as a list."""
    found = request.prefetch or []
    return found if isinstance(found, list) else [found]


def without_params(request):
    """Return a request without search parameters, of which the local mode only warns."""
    inner = [without_params(prefetch) for prefetch in prefetches(request)]
    return request.model_copy(update={"params": None, "prefetch": inner or None})


def check_dimension(vector, size):
    for row in vector if isinstance(vector[0], list) else [vector]:
        if len(row) != size:
            text = f"Vector dimension error: expected dim: {size}, got {len(row)}"
            raise Refusal(400, f"Wrong input: {text}")


def updated(wait):
    return {"operation_id": 0, "status": "completed" if wait == "true" else "acknowledged"}


class Call(BaseHTTPRequestHandler):
    """One connection; each of its requests is answered genuinely or by the fault of the hour."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def setup(self):
        if self.server.tls is not None:
            self.request.do_handshake()
        super().setup()

    def serve(self):
        self.body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fault = self.server.next_fault()
        if self.server.stopping.wait(self.server.delay_s):
            self.close_connection = True
        elif fault is not None:
            fault(self)
        else:
            self.respond(*self.genuine())

    do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = serve

    def genuine(self):
        """Return the status, headers and body of the right answer."""
        key = self.server.api_key
        if key is not None and self.headers.get("api-key") != key:
            missing = "Must provide an API key or an Authorization bearer token"
            wrong = "Invalid API key or JWT"
            text = wrong if self.headers.get("api-key") else missing
            return 401, {"Content-Type": "text/plain"}, text.encode()
        status, content = self.server.api.answer(self.command, self.path, self.body)
        return status, JSON, json.dumps(to_jsonable_python(content)).encode()

    def head(self, status, headers, length):
        """Return the first lines of an answer, as bytes."""
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", f"Content-Length: {length}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    def respond(self, status, headers, body):
        self.wfile.write(self.head(status, headers, len(body)) + body)

    def drop(self, *, reset=False):
        """End the connection: by a reset, or in order."""
        self.close_connection = True
        if reset:
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.rfile.close()
            self.connection.close()

    def log_message(self, format, *args):
        """Keep quiet."""


class RestServer(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """A local client's collections on a port of this machine, with faults at will.

    Args:
        client: The local client that has the answers.
        tls: An `ssl.SSLContext` to speak TLS with; None for plain HTTP.
        api_key: What every request must bring; None for nothing.
    """

    allow_reuse_address = True
    request_queue_size = 512  # hundreds of tasks connect at once

    def __init__(self, client, *, tls=None, api_key=None):
        super().__init__(("127.0.0.1", 0), Call)
        self.client, self.api = client, Api(client)
        self.tls, self.api_key = tls, api_key
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self.server_address[1]}"
        self.delay_s = 0
        self.errors = []  # what went wrong in the server itself
        self.n_connections = 0
        self.stopping = threading.Event()
        self._fault, self._from, self._until = None, 0, 0  # from which request to before which
        self._n_seen = 0
        self._connections = set()
        self._lock = threading.Lock()
        self._thread = None

    def fail(self, fault, *, first=1, times=float("inf")):
        """Let `fault` answer `times` requests from the first-th on, counted from now."""
        with self._lock:
            self._fault, self._from, self._until = fault, first, first + times
            self._n_seen = 0

    def next_fault(self):
        with self._lock:
            self._n_seen += 1
            return self._fault if self._from <= self._n_seen < self._until else None

    def start(self):
        """Listen, on the same port as before where the server was stopped."""
        if self.socket.fileno() == -1:
            self.socket = socket.socket(self.address_family, self.socket_type)
            self.server_bind()
            self.server_activate()
        self.stopping.clear()
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,))
        self._thread.start()

    def stop(self):
        """Stop listening and break all connections; wait until that is done."""
        self.shutdown()
        self.server_close()
        if self._thread is not None:
            self._thread.join()

    def server_close(self):
        self.stopping.set()
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        super().server_close()

    def get_request(self):
        connection, address = super().get_request()
        if self.tls is not None:
            connection = self.tls.wrap_socket(
                connection, server_side=True, do_handshake_on_connect=False
            )
        with self._lock:
            self.n_connections += 1
            self._connections.add(connection)
        return connection, address

    def close_request(self, request):
        with self._lock:
            self._connections.discard(request)
        super().close_request(request)

    def handle_error(self, request, client_address):
        """Keep errors of the server; a client that went away or spoke no TLS is none."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            self.errors.append(error)


@contextmanager
def serving(client, **options):
    """Serve a local client on this machine for a `with` block."""
    server = RestServer(client, **options)
    server.start()
    try:
        yield server
    finally:
        server.stop()
    if server.errors:
        raise server.errors[0]
