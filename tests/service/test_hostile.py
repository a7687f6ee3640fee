"""Bodies made to cost more than they weigh, or to be misunderstood."""

import gc
import json
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

import httpx
import pytest
from pydantic import ValidationError

from sift_core import InMemorySource
from sift_core.service import create_app, openai_models, rerank, search, status
from sift_core.service.errors import RefusedError
from sift_core.service.http import check_values
from sift_core.service.server import listener_at, serve_at
from tests.service.servers import (
    CHAT,
    PATIENCE_S,
    RERANK,
    TEXTS,
    connection_to,
    figures,
    service,
    until,
)

CHAT_PATH = "/v1/chat/completions"
WRONG = [1, 1.5, "x", None, True, {}, []]
MODELS = {
    openai_models.ChatRequest: {"model": "m", "messages": [{"role": "user", "content": "q"}]},
    openai_models.CompletionRequest: {"model": "m", "prompt": "q"},
    openai_models.EmbeddingRequest: {"model": "m", "input": "q"},
    rerank.DocumentsRequest: {"query": "q", "documents": ["a"]},
    rerank.TextsRequest: {"query": "q", "texts": ["a"]},
    search.SearchRequest: {"query": "q"},
    openai_models.Sift: {},
    openai_models.ChatMessage: {"role": "user"},
}


@pytest.mark.parametrize("model", MODELS)
def test_many_faults_are_told_as_few(model):
    """Two megabytes of wrong documents took 3 GB and 23 s to be told one by one."""
    right = MODELS[model]
    n_refused = 0
    for field in [*model.model_fields, None]:
        for wrong in WRONG:
            lists = [[wrong] * 2000, [[wrong] * 400] * 400, {str(i): wrong for i in range(2000)}]
            for values in lists:
                body = {**right, field: values} if field else {**right, **lists[-1]}
                n_faults = _n_faults(model, body)
                n_refused += n_faults > 0
                assert n_faults <= 20, field
    assert n_refused > 0


def _n_faults(model, body):
    try:
        model.model_validate(body)
    except ValidationError as error:
        return error.error_count()
    return 0


def test_texts_for_numbers_are_refused_as_small_as_they_are(http):
    # NumPy gave each of 10,000 texts the room of the longest: 40 GB
    given = [["1"]] * 9_999 + [["x" * 1_000_000]]
    documents = ["a"] * len(given)
    body = {"query": "q", "documents": documents, "embeddings": given, "query_embedding": [1.0]}
    answer = http.post("/v1/rerank", json=body)
    assert answer.status_code == 400
    assert len(answer.text) < 1000


def test_a_field_counts_once_however_often_it_is_named(http):
    document = {"a": "boat " * 1000}
    body = {"query": "q", "documents": [document], "rank_fields": ["a"] * 100}
    tokens = http.post("/v1/rerank", json=body).json()["usage"]["total_tokens"]
    assert 1000 <= tokens < 2500  # an estimate: two for each "boat"
    body["rank_fields"] *= 2
    assert http.post("/v1/rerank", json=body).status_code == 400


def test_bodies_together_have_a_bound(source, embedder):
    body = json.dumps({**RERANK, "query": "x" * 6000}).encode()
    head = b"POST /v1/rerank HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    with (
        service(source=source, embedder=embedder, max_body_bytes=10_000) as client,
        ExitStack() as slow,
    ):

        def status():
            headers = {"content-type": "application/json"}
            return client.post("/v1/rerank", content=body, headers=headers).status_code

        for _ in range(6):  # of which four times the largest body may be held
            one = slow.enter_context(connection_to(client))
            one.sendall(head + b"content-length: 9000\r\n\r\n" + body)  # waits for the rest
        until(lambda: status() == 429)
        assert client.post("/v1/rerank", json=RERANK).status_code == 200  # small ones pass
        slow.close()
        until(lambda: status() == 200)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b'{"query": "\xff"}', "no JSON"),
        (b"[" * 100_000 + b"]" * 100_000, "no JSON: recursion limit"),
        (b'{"top_n": ' + b"9" * 50_000 + b"}", "no JSON: number out of range"),
        (json.dumps(RERANK).encode("utf-16"), "no JSON"),
        (b"", "empty"),
    ],
)
def test_what_is_no_json_is_told_why(http, body, why):
    answer = http.post("/v1/rerank", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert why in answer.json()["message"]


@pytest.mark.parametrize("kind", [None, "application/x-www-form-urlencoded", "text/plain"])
@pytest.mark.parametrize("path", ["/v1/rerank", "/rerank", "/v1/embeddings", "/search"])
def test_a_body_that_does_not_call_itself_json_is_told_how(http, path, kind):
    """What `curl -d` sends where nobody names the type, and what a page's form may send."""
    headers = {} if kind is None else {"content-type": kind}
    answer = http.post(path, content=json.dumps(RERANK), headers=headers)
    assert answer.status_code == 415
    assert "content-type: application/json" in answer.text


def test_an_error_is_short_whatever_arrived(http):
    for body in ({"query": "x", "y" * 100_000: 1}, {"query": "x", "filter": {"k" * 9999: 1.5}}):
        answer = http.post("/search", json=body)
        assert answer.status_code == 400
        assert len(answer.text) < 3000


def test_the_beginning_of_a_body_is_no_request(source, embedder):
    """What arrived of a body whose client left was read as JSON, and could be a request."""
    body = json.dumps(RERANK).encode()
    head = b"POST /rerank HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    with service(source=source, embedder=embedder) as client:
        with connection_to(client) as connection:
            connection.sendall(head + f"content-length: {len(body) + 1}\r\n\r\n".encode() + body)
        gone = 'sift_requests_total{route="other",status="499"}'
        until(lambda: gone in figures(client))
        assert not any('route="/rerank"' in name for name in figures(client))


class _CountingSource(InMemorySource):
    n_fetches = 0

    def fetch_batch(self, *args, **options):
        self.n_fetches += 1
        return super().fetch_batch(*args, **options)


def test_whoever_asks_whether_it_is_ready_costs_one_look(embedder, monkeypatch):
    monkeypatch.setattr(status, "STORE_CHECK_S", PATIENCE_S)  # the asking may take longer
    source = _CountingSource(embedder.embed_documents(TEXTS), TEXTS)
    with service(source=source, embedder=embedder) as client, ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: client.get("/ready").status_code, range(32)))
    assert answers == [200] * 32
    assert source.n_fetches == 1


class _SlowSource(_CountingSource):
    def fetch_batch(self, *args, **options):
        time.sleep(0.3)
        return super().fetch_batch(*args, **options)


def test_a_probe_that_leaves_early_has_looked_for_the_next_one(embedder, monkeypatch):
    monkeypatch.setattr(status, "STORE_CHECK_S", PATIENCE_S)
    source = _SlowSource(embedder.embed_documents(TEXTS), TEXTS)
    with service(source=source, embedder=embedder) as client:
        with pytest.raises(httpx.TimeoutException):
            client.get("/ready", timeout=0.05)
        assert client.get("/ready").json()["status"] == "ready"
    assert source.n_fetches == 1


def test_megabytes_of_words_are_refused_uncut(engine):
    with service(engine) as client:
        messages = [{"role": "user", "content": "word " * 200_000}]
        answer = client.post(CHAT_PATH, json={**CHAT, "messages": messages})
        assert answer.status_code == 400
        assert "characters in" in answer.json()["error"]["message"]
        answer = client.post(CHAT_PATH, json={**CHAT, "messages": CHAT["messages"] * 2001})
        assert answer.status_code == 400
        assert "at most 2000" in answer.json()["error"]["message"]


LIMIT, CONTAINERS = 500_000, 100_000


@pytest.mark.parametrize(
    ("body", "is_small_enough"),
    [
        (b"[" + b"1," * LIMIT + b"1]", True),
        (b"[" + b"1," * (LIMIT + 1) + b"1]", False),
        (b"[" + b"[]," * (CONTAINERS - 1) + b"1]", True),
        (b"[" + b"[]," * CONTAINERS + b"1]", False),
        (b'{"a":' * (CONTAINERS // 2), True),
        (b'{"a":' * (CONTAINERS // 2 + 1), False),
        # what stands in a text counts nothing, wherever a block of a megabyte ends
        (b'["' + b"a, b: [ {" * 400_000 + b'"]', True),
        (b'["' + b'\\",[{:' * 400_000 + b'"]', True),
        (b'["' + b"\\\\" * 400_000 + b'",[' + b"1," * (LIMIT + 1) + b"1]]", False),
        (b'["a' + b"\\\\" * 600_000 + b'\\"' + b"[" * (CONTAINERS + 1) + b'"]', True),
    ],
)
def test_values_are_counted_before_they_are_made(body, is_small_enough):
    if is_small_enough:
        check_values(body)
    else:
        with pytest.raises(RefusedError, match="at most 500,000 values") as refused:
            check_values(body)
        assert refused.value.status == 413


@pytest.mark.parametrize("text", [rb"\n", rb"\\", rb"\u00e9", rb"\ud83d"])
def test_escapes_are_counted_before_they_are_read(text):
    n = 2_000_000 // text.count(b"\\")
    check_values(b'"' + text * n + b'"')
    with pytest.raises(RefusedError, match="at most 2,000,000 escapes") as refused:
        check_values(b'"' + text * (n + 1) + b'"')
    assert refused.value.status == 413


def test_what_a_service_begins_with_is_no_waste_to_look_for():
    """A collection of waste amid a body of 100,000 lists stopped all others for 0.3 s."""

    class Started(Exception):
        pass

    def stop():
        assert gc.get_freeze_count() > 10_000
        raise Started

    with closing(listener_at("127.0.0.1", 0)) as listener, pytest.raises(Started):
        serve_at(listener, create_app(), on_start=stop, on_stop=stop)
    gc.unfreeze()


@pytest.mark.parametrize(
    ("path", "field", "value", "status"),
    [
        ("/v1/rerank", "documents", [""] * (LIMIT + 2), 413),
        ("/v1/rerank", "embeddings", [[0]] * CONTAINERS, 413),
        ("/v1/rerank", "documents", ["x" * 1_000_001], 413),
        ("/search", "filter", {"a": [1] * (LIMIT + 2)}, 413),
        ("/search", "filter", {"a": [1] * 1001}, 400),
        ("/search", "query", "x" * 1_000_001, 413),
        ("/v1/embeddings", "input", ["x", "x" * 1_000_001], 413),
        (CHAT_PATH, "messages", [{"role": "user", "content": "a"}] * CONTAINERS, 413),
    ],
)
def test_what_would_stop_all_others_is_refused(http, path, field, value, status):
    body = {"model": "hashing-64", "query": "q", "input": "a", "documents": ["a"], field: value}
    if path == "/search":
        body = {"query": "q", field: value}
    answer = http.post(path, json=body)
    assert answer.status_code == status, answer.text
    assert len(answer.text) < 1000


def test_half_a_surrogate_pair_is_one_unknown_character(http):
    """A client cut an emoji in two. U+FFFD stands for what cannot be known."""
    # the last has an escaped backslash before a "u", which is no escape
    texts = [
        r"cut \ud83d",
        r"\ude00 cut",
        r"whole \ud83d\ude00",
        r"two \ud83d\ud83d\ude00",
        r"\\ud83d",
    ]
    body = '{"query": "q", "documents": [' + ",".join(f'"{text}"' for text in texts) + "]}"
    headers = {"content-type": "application/json"}
    answer = http.post("/rerank", content=body.encode(), headers=headers).raise_for_status()
    read = {one["index"]: one["document"]["text"] for one in answer.json()["results"]}
    face = chr(0x1F600)
    right = ["cut \ufffd", "\ufffd cut", f"whole {face}", f"two \ufffd{face}", r"\ud83d"]
    assert [read[i] for i in range(5)] == right


def test_texts_that_end_an_answer_are_short(engine):
    with service(engine) as client:
        assert client.post(CHAT_PATH, json={**CHAT, "stop": ["x" * 1000]}).status_code == 200
        answer = client.post(CHAT_PATH, json={**CHAT, "stop": ["x" * 1001]})
        assert answer.json()["error"]["param"] == "stop"


def test_the_rest_of_a_refused_body_is_no_request(source, embedder):
    """A request hidden in the body of one that is refused before its body was read."""
    hidden = b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n"
    head = f"POST /rerank HTTP/1.1\r\nhost: x\r\ncontent-length: {len(hidden)}\r\n\r\n".encode()
    after = b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    with service(source=source, embedder=embedder, api_key="k") as client:
        with connection_to(client) as connection:
            connection.sendall(head + hidden + after)
            received = b"".join(iter(lambda: connection.recv(4096), b""))
    assert received.count(b"HTTP/1.1 401") == 1
    assert received.count(b"HTTP/1.1 200") <= 1
    assert b"sift_requests" not in received
