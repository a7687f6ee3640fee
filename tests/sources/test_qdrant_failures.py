"""Each kind of failure that a client can raise, by the real client where a test can provoke it."""

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime

import grpc
import httpx
import pytest

from sift_core.errors import CandidateSourceError
from sift_core.sources import QdrantSource
from sift_core.sources.qdrant.calls import failure
from sift_core.types import Query

qdrant_client = pytest.importorskip("qdrant_client")

QUERY = Query(text="?", embedding=[2.0, 0.0])


def told(answer, **options):
    """Return the error that a real REST client makes of an httpx response or exception."""

    def transport(request):
        if isinstance(answer, Exception):
            raise answer
        return answer

    client = qdrant_client.QdrantClient(
        url="http://qdrant.test",
        check_compatibility=False,
        transport=httpx.MockTransport(transport),
        **options,
    )
    with closing(client), pytest.raises(CandidateSourceError) as info:
        QdrantSource(client, "docs").fetch(QUERY, 3)
    return info.value


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        (302, "does the address lead to a Qdrant server"),
        (400, "were both embedded|are collection, vector name, filter and dimension right"),
        (401, "check the client's `api_key`"),
        (403, "check the client's `api_key`"),
        (404, "create the collection, or correct its name"),
        (408, "raise the client's `timeout`"),
        (429, "ask again later"),
        (500, "see the server's log"),
        (503, "ask again later"),
        (504, "raise the client's `timeout`"),
    ],
)
def test_a_status_has_its_advice(status, advice):
    error = told(httpx.Response(status, json={"status": {"error": "what it says"}}))
    assert "Qdrant could not search collection 'docs'" in str(error)
    assert f"{status} " in str(error)
    assert "what it says" in str(error)
    assert any(part in str(error) for part in advice.split("|"))
    assert error.retry_after_s is None


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("value", "seconds"),
    [("7", 7), ("0", 0), ("nonsense", None), ("nan", None), ("", None)],
)
def test_a_retry_hint_is_kept(status, value, seconds):
    error = told(httpx.Response(status, headers={"Retry-After": value}, content=b""))
    assert error.retry_after_s == seconds
    if seconds:
        assert f"it asks for {seconds:g} s" in str(error)


def test_a_retry_hint_may_be_a_date():
    later = datetime.now(timezone.utc) + timedelta(hours=1)
    response = httpx.Response(503, headers={"Retry-After": format_datetime(later, usegmt=True)})
    assert 3000 < told(response).retry_after_s <= 3600


@pytest.mark.parametrize(
    ("raised", "advice"),
    [
        (httpx.ReadTimeout("slow"), "raise the client's `timeout`"),
        (httpx.ConnectTimeout("slow"), "is the server up"),
        (httpx.PoolTimeout("busy"), "more calls at once than the client has connections"),
        (httpx.ConnectError("refused"), "is the server up"),
        (httpx.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED]"), "`https`, host name and cert"),
        (httpx.ReadError("reset"), "ask again; if it stays"),
        (httpx.RemoteProtocolError("peer closed"), "ask again; if it stays"),
    ],
)
def test_a_connection_has_its_advice(raised, advice):
    error = told(raised)
    assert advice in str(error)
    assert error.__cause__.source is raised


def test_a_page_of_a_proxy_is_cut_short():
    message = str(told(httpx.Response(502, content=b"<html>" + b"long " * 10_000)))
    assert "<html>" in message
    assert len(message) < 700


class Refuse(grpc.GenericRpcHandler):
    """Ends every call with one code."""

    def __init__(self, code):
        self.code = code

    def service(self, details):
        def abort(request, context):
            context.abort(self.code, "what it says")

        return grpc.unary_unary_rpc_method_handler(abort)


@contextmanager
def grpc_server(code):
    with ThreadPoolExecutor(1) as executor:
        server = grpc.server(executor, handlers=[Refuse(code)])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield port
        finally:
            server.stop(None).wait()


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (grpc.StatusCode.UNAUTHENTICATED, "check the client's `api_key`"),
        (grpc.StatusCode.PERMISSION_DENIED, "check the client's `api_key`"),
        (grpc.StatusCode.NOT_FOUND, "create the collection"),
        (grpc.StatusCode.INVALID_ARGUMENT, "are collection, vector name"),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "raise the client's `timeout`"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "ask again later"),
        (grpc.StatusCode.UNAVAILABLE, "is the server up"),
        (grpc.StatusCode.INTERNAL, "see the server's log"),
    ],
)
def test_a_grpc_code_has_its_advice(code, advice):
    with grpc_server(code) as port:
        client = qdrant_client.QdrantClient(
            url="http://127.0.0.1",
            grpc_port=port,
            prefer_grpc=True,
            timeout=300,
            check_compatibility=False,
        )
        with closing(client), pytest.raises(CandidateSourceError) as info:
            QdrantSource(client, "docs").fetch(QUERY, 3)
    assert advice in str(info.value)
    assert f"{code.name}, what it says" in str(info.value)
    assert isinstance(info.value.__cause__, grpc.RpcError)


@pytest.mark.parametrize(
    "options",
    [{"api_key": "hunter2"}, {"headers": {"authorization": "hunter2"}}],
    ids=["key", "header"],
)
@pytest.mark.parametrize("content", [b"no such key: hunter2", b'{"status": {"error": "hunter2?"}}'])
@pytest.mark.filterwarnings("ignore:Api key is used with an insecure connection")
def test_a_key_that_a_server_echoes_is_not_told(options, content):
    error = told(httpx.Response(401, content=content), **options)
    assert "(a key)" in str(error)
    assert "hunter2" not in str(error)


@pytest.mark.parametrize(
    "raised", [sqlite3.OperationalError("disk I/O error"), OSError("gone"), RuntimeError("closed")]
)
def test_a_folder_that_cannot_be_read(raised):
    with closing(qdrant_client.QdrantClient(":memory:")) as client:
        told_by = failure(raised, client)
    assert "let no other process hold its folder" in told_by.advice
    assert str(raised) in told_by.cause
