"""Headers that come slowly or never, over connections of our own."""

import socket
import time

import pytest

from sift_core.service import create_app
from sift_core.service.header_timeout import PromptHeaders
from sift_core.testing import HashingEmbedder
from tests.service.servers import serving

HEALTH = b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n"
RERANK = b'{"query": "a boat", "documents": ["a boat", "tea"]}'


class Hurried(PromptHeaders):
    headers_s = 0.3


class _SlowEmbedder(HashingEmbedder):
    def embed_query(self, text):
        time.sleep(3 * Hurried.headers_s)
        return super().embed_query(text)


@pytest.fixture
def connection():
    with serving(create_app(embedder=_SlowEmbedder(8)), http=Hurried) as address:
        port = int(address.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=60) as opened:
            yield opened


def rest(connection):
    """Return what comes until the connection is closed."""
    return b"".join(iter(lambda: connection.recv(4096), b""))


@pytest.mark.parametrize("sent", [b"", b"G", b"GET /health HTTP/1.1\r\nhost: x\r\nx-a: "])
def test_headers_that_never_end_are_not_waited_for(connection, sent):
    connection.sendall(sent)
    assert rest(connection) == b""


def drip(connection):
    """Send a header that does not end until the connection is closed, at most 600 bytes."""
    connection.sendall(b"GET /health HTTP/1.1\r\nx: ")
    for _ in range(600):
        connection.sendall(b"y")
        time.sleep(0.05)


def test_headers_that_drip_have_no_more_time_than_others(connection):
    with pytest.raises(OSError, match=r"reset|pipe|closed"):
        drip(connection)


def test_the_headers_of_a_second_request_are_waited_for_as_long(connection):
    connection.sendall(HEALTH)
    assert b" 200 " in connection.recv(4096)
    connection.sendall(HEALTH[:-2])  # all but the end
    assert rest(connection) == b""


def test_bodies_and_answers_have_a_time_of_their_own(connection):
    head = f"POST /v2/rerank HTTP/1.1\r\nhost: x\r\ncontent-length: {len(RERANK)}\r\n"
    connection.sendall(f"{head}content-type: application/json\r\n\r\n".encode() + RERANK[:5])
    time.sleep(3 * Hurried.headers_s)
    connection.sendall(RERANK[5:])
    assert b" 200 " in connection.recv(4096)
    time.sleep(2 * Hurried.headers_s)  # nothing is asked, and it stays open
    connection.sendall(HEALTH)
    assert b" 200 " in connection.recv(4096)
