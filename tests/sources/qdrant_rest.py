"""The part of Qdrant's REST API that sources use, over the client's local mode.

`serving` answers on a port of this machine; `Api.respond` answers httpx without one.
"""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from urllib.parse import parse_qs, unquote, urlsplit

import httpx
from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python
from qdrant_client import models
from qdrant_client.http.models import CountRequest, CreateCollection, ScrollRequest

JSON = {"Content-Type": "application/json"}


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
        """Return the status and the content of the answer to one request."""
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
            status, content = 200, {"result": result, "status": "ok"}
            content |= result if path == "/" else {}
        return status, to_jsonable_python({**content, "time": 0.0})

    def respond(self, request):
        """Answer a request of httpx, whose transport this may be."""
        path = request.url.raw_path.decode()
        status, content = self.answer(request.method, path, request.content)
        return httpx.Response(status, json=content)

    def _result(self, method, path, body):
        parts = urlsplit(path)
        if parts.path == "/":
            return {"title": "qdrant - vector search engine", "version": version("qdrant-client")}
        options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        _, _, collection, *rest = parts.path.split("/")
        collection, function = unquote(collection), ROUTES.get((method, "/".join(rest)))
        if function is None:
            raise Refusal(404, "")
        if function not in (Api.create, Api.exists) and not self.client.collection_exists(
            collection
        ):
            raise Refusal(404, f"Not found: Collection `{collection}` doesn't exist!")
        return function(self, collection, body=body, **options)

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
        return self.query_batch(collection, body=b'{"searches": [%s]}' % body)[0]

    def query_batch(self, collection, *, body, **_):
        requests = models.QueryRequestBatch.model_validate_json(body).searches
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
            **wanted(request),
        )

    def scroll(self, collection, *, body, **_):
        request = ScrollRequest.model_validate_json(body)
        points, following = self.client.scroll(
            collection,
            scroll_filter=request.filter,
            limit=request.limit or 10,
            order_by=request.order_by,
            offset=request.offset,
            **wanted(request),
        )
        return {"points": points, "next_page_offset": following}

    def count(self, collection, *, body, **_):
        return self.client.count(collection, CountRequest.model_validate_json(body).filter)


ROUTES = {
    ("PUT", ""): Api.create,
    ("PATCH", ""): Api.update,
    ("GET", ""): Api.describe,
    ("GET", "exists"): Api.exists,
    ("PUT", "points"): Api.upsert,
    ("POST", "points"): Api.retrieve,
    ("POST", "points/delete"): Api.delete,
    ("POST", "points/scroll"): Api.scroll,
    ("POST", "points/count"): Api.count,
    ("POST", "points/query"): Api.query,
    ("POST", "points/query/batch"): Api.query_batch,
}


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


def wanted(request):
    payload = True if request.with_payload is None else request.with_payload
    return {"with_payload": payload, "with_vectors": request.with_vector or False}


def updated(wait):
    return {"operation_id": 0, "status": "completed" if wait == "true" else "acknowledged"}


class Call(BaseHTTPRequestHandler):
    """One connection; each of its requests is answered genuinely, or by a fault of the server."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def serve(self):
        self.body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.server.fault is None:
            self.respond(*self.genuine())
        else:
            self.server.fault(self)

    do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = serve

    def genuine(self):
        """Return the status, headers and body of the right answer."""
        status, content = self.server.api.answer(self.command, self.path, self.body)
        return status, JSON, json.dumps(content).encode()

    def respond(self, status, headers, body):
        self.send_response_only(status)
        for name, value in {**headers, "Content-Length": len(body)}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format, *args):
        """Keep quiet."""


class RestServer(ThreadingHTTPServer):
    """A local client's collections on a port of this machine, with faults at will."""

    request_queue_size = 512  # hundreds of tasks connect at once

    def __init__(self, client):
        super().__init__(("127.0.0.1", 0), Call)
        self.client, self.api = client, Api(client)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.fault = None

    def fail(self, fault):
        """Let `fault`, a function of a Call, answer all requests from now on; None: none."""
        self.fault = fault

    def handle_error(self, request, client_address):
        """Keep quiet of clients that went away."""


@contextmanager
def serving(client):
    """Serve a local client on this machine for a `with` block."""
    with RestServer(client) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
