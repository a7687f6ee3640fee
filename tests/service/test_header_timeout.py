"""Headers that come slowly or never, and answers that nobody reads, over our own connections."""

import json
import socket
from contextlib import ExitStack, suppress

import pytest

from sift_core.service import create_app
from sift_core.service.guard import PromptHeaders
from sift_core.testing import HashingEmbedder
from tests.service.servers import PATIENCE_S, serving, until

HEALTH = b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n"
RERANK = b'{"query": "a boat", "documents": ["a boat", "tea"]}'


timers = []  # of all connections' headers
counting = []  # whether one went on at each embedding


class Noted(PromptHeaders):
    """Notes what counts the time, so that a test need not wait for it."""

    headers_s = PATIENCE_S  # until a test is in a hurry: a busy one may be late itself

    def _wait(self):
        super()._wait()
        timers.append(self._late)


class _NotingEmbedder(HashingEmbedder):
    def embed_query(self, text):
        counting.append(not none_counts())
        return super().embed_query(text)


def none_counts():
    """Return whether there was a time for headers, and it is over."""
    return bool(timers) and all(timer.cancelled() for timer in timers)


@pytest.fixture
def connect():
    """Return a function that opens a connection to a service."""
    timers.clear()
    with serving(create_app(embedder=_NotingEmbedder(8)), http=Noted) as address:
        port = int(address.rpartition(":")[2])
        yield lambda: socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)


@pytest.fixture
def in_a_hurry(monkeypatch):
    """Return a function after which headers have little time."""
    return lambda: monkeypatch.setattr(Noted, "headers_s", 0.3)


def rest(connection):
    """Return what comes until the connection is closed, perhaps while something was sent."""
    received = b""
    with suppress(ConnectionError):
        while part := connection.recv(4096):
            received += part
    return received


@pytest.mark.parametrize("sent", [b"", b"GET /health HTTP/1.1\r\nhost: x\r\nx-a: "])
def test_headers_that_never_end_are_not_waited_for(connect, in_a_hurry, sent):
    in_a_hurry()
    with connect() as connection:
        with suppress(ConnectionError):  # closed already, if this was late
            connection.sendall(sent)
        assert rest(connection) == b""


def test_headers_that_drip_have_no_more_time_than_others(connect, in_a_hurry):
    in_a_hurry()
    with connect() as connection:

        def is_closed():
            try:
                connection.sendall(b"y")
            except ConnectionError:
                return True
            return False

        with suppress(ConnectionError):
            connection.sendall(b"GET /health HTTP/1.1\r\nx: ")
        until(is_closed)


def test_the_headers_of_a_second_request_are_waited_for_as_long(connect, in_a_hurry):
    with connect() as connection:
        connection.sendall(HEALTH)
        assert b" 200 " in connection.recv(4096)
        in_a_hurry()
        connection.sendall(HEALTH[:-2])  # all but the end
        assert rest(connection) == b""


def test_bodies_and_answers_have_a_time_of_their_own(connect):
    head = f"POST /v2/rerank HTTP/1.1\r\nhost: x\r\ncontent-length: {len(RERANK)}\r\n"
    with connect() as connection:
        connection.sendall(f"{head}content-type: application/json\r\n\r\n".encode() + RERANK[:5])
        until(none_counts)
        counting.clear()
        connection.sendall(RERANK[5:])
        assert b" 200 " in connection.recv(4096)
        assert set(counting) == {False}
        until(none_counts)  # nothing is asked, and it stays open
        connection.sendall(HEALTH)
        assert b" 200 " in connection.recv(4096)


@pytest.mark.parametrize("sent", [b"", HEALTH[:-2], b"POST /v2/rerank HTTP/1.1\r\nhost: x\r\n"])
def test_slow_connections_leave_room_for_a_request(sent, monkeypatch):
    """All were answered by 503 until the slow ones ended: 4 are the limit, and 8 are slow."""
    monkeypatch.setattr(Noted, "spared_s", 0.0)
    body = b"content-length: 9\r\ncontent-type: application/json\r\n\r\n{" * sent.startswith(b"P")
    app = create_app(embedder=HashingEmbedder(8))
    with serving(app, http=Noted, limit_concurrency=4) as address, ExitStack() as slow:
        place = ("127.0.0.1", int(address.rpartition(":")[2]))
        for _ in range(8):
            one = slow.enter_context(socket.create_connection(place, timeout=PATIENCE_S))
            with suppress(ConnectionError):
                one.sendall(sent + body)

        def is_served():
            with socket.create_connection(place, timeout=PATIENCE_S) as connection:
                connection.sendall(HEALTH)
                return b" 200 " in connection.recv(4096)

        until(is_served, seconds=20)  # those that begin with it are spared


def test_an_answer_that_nobody_reads_is_not_kept():
    """Answers of 27 MB stayed in memory as long as their clients, who read nothing of them."""
    lost = []

    class Watched(Noted):
        unread_s = 0.2

        def connection_lost(self, exc):
            lost.append(self)
            super().connection_lost(exc)

    request = {"query": "a boat", "documents": ["x" * 900_000] * 8, "return_documents": True}
    content = json.dumps(request).encode()
    head = f"POST /v1/rerank HTTP/1.1\r\nhost: x\r\ncontent-length: {len(content)}\r\n"
    with serving(create_app(embedder=HashingEmbedder(8)), http=Watched) as address:
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", int(address.rpartition(":")[2])))
            client.sendall(f"{head}content-type: application/json\r\n\r\n".encode() + content)
            until(lambda: lost)  # though it is open on this side
