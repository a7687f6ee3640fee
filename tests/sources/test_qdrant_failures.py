"""Every way in which Qdrant fails: an error with cause and advice, and a source that works again.

The clients are real ones. httpx hands their requests to a function in place of a socket: faults
are its answers, or what httpx raises of a connection.
"""

import asyncio
import json
import re
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime

import grpc
import httpx
import pytest

from sift_core import pacing
from sift_core.errors import CandidateSourceError, SiftError
from sift_core.protocols import Lookup
from sift_core.sources import QdrantSource
from sift_core.sources.qdrant.calls import failure
from sift_core.types import Query
from tests.sources.qdrant_grpc import serving_calls
from tests.sources.qdrant_rest import Api

qdrant_client = pytest.importorskip("qdrant_client")
models = qdrant_client.models

QUERY = Query(text="?", embedding=[2.0, 0.0])
CONTENT_ID = "5b0b0000-0000-4000-8000-00000000000a"
PATIENT_S = 300


class Remote:
    """A source over a client, called or awaited, whose requests a function answers."""

    def __init__(self, answer, *, is_async=False, **options):
        async def aanswer(request):
            result = answer(request)
            return await result if asyncio.iscoroutine(result) else result

        connect = qdrant_client.AsyncQdrantClient if is_async else qdrant_client.QdrantClient
        self.client = connect(
            url="http://qdrant.test",
            check_compatibility=False,
            timeout=PATIENT_S,
            transport=httpx.MockTransport(aanswer if is_async else answer),
            **options,
        )
        self.is_async, self.source = is_async, QdrantSource(self.client, "docs")

    def ask(self, method, *arguments):
        if self.is_async:
            return asyncio.run(getattr(self.source, f"a{method}")(*arguments))
        return getattr(self.source, method)(*arguments)

    def refusal(self, method="fetch", *arguments):
        """Return the error that a call ends in, which names the collection."""
        with pytest.raises(CandidateSourceError, match="'docs'") as caught:
            self.ask(method, *(arguments or (QUERY, 3)))
        return caught.value


def refusal(answer, **options):
    """Return the error that a fetch ends in whose every request is answered so, or raises that."""

    def respond(request):
        if isinstance(answer, Exception):
            raise answer
        return answer(request) if callable(answer) else answer

    remote = Remote(respond, **options)
    with closing(remote.client):
        return remote.refusal()


@pytest.mark.parametrize(
    ("answer", "advice"),
    [
        (302, "does the address lead to a Qdrant server"),
        (400, "are collection, vector name, filter and dimension right"),
        (401, "check the client's `api_key`"),
        (403, "check the client's `api_key`"),
        (404, "create the collection, or correct its name"),
        (408, "raise the client's `timeout`"),
        (429, "ask again later"),
        (500, "see the server's log"),
        (503, "ask again later"),
        (504, "raise the client's `timeout`"),
        (httpx.ReadTimeout("slow"), "raise the client's `timeout`"),
        (httpx.ConnectTimeout("slow"), "is the server up"),
        (httpx.PoolTimeout("busy"), "more calls at once than the client has connections"),
        (httpx.ConnectError("refused"), "is the server up"),
        (httpx.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED]"), "`https`, host name and cert"),
        (httpx.RemoteProtocolError("peer closed"), "ask again; if it stays"),
    ],
    ids=str,
)
def test_a_status_and_a_connection_have_their_advice(answer, advice):
    if isinstance(answer, int):
        error = refusal(httpx.Response(answer, json={"status": {"error": "what it says"}}))
        assert "Qdrant could not search collection 'docs' with a vector of 2" in str(error)
        assert f"{answer} " in str(error)
        assert "what it says" in str(error)
    else:
        error = refusal(answer)
        assert error.__cause__.source is answer
    assert advice in str(error)
    assert error.retry_after_s is None


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("value", "seconds"),
    [("7", 7), ("0", 0), ("nonsense", None), ("nan", None), ("", None)],
)
def test_a_retry_hint_is_kept(status, value, seconds):
    error = refusal(httpx.Response(status, headers={"Retry-After": value}, content=b""))
    assert error.retry_after_s == seconds
    if seconds:
        assert f"it asks for {seconds:g} s" in str(error)


def test_a_retry_hint_may_be_a_date():
    later = format_datetime(datetime.now(timezone.utc) + timedelta(hours=1), usegmt=True)
    response = httpx.Response(503, headers={"Retry-After": later})
    assert 3000 < refusal(response).retry_after_s <= 3600


def test_a_page_of_a_proxy_is_cut_short():
    message = str(refusal(httpx.Response(502, content=b"<html>" + b"long " * 10_000)))
    assert "<html>" in message
    assert len(message) < 700


@pytest.mark.parametrize(
    "options",
    [{"api_key": "hunter2"}, {"headers": {"authorization": "hunter2"}}],
    ids=["key", "header"],
)
@pytest.mark.parametrize("content", [b"no such key: hunter2", b'{"status": {"error": "hunter2?"}}'])
@pytest.mark.filterwarnings("ignore:Api key is used with an insecure connection")
def test_a_key_that_a_server_echoes_is_not_told(options, content):
    error = refusal(httpx.Response(401, content=content), **options)
    assert "(a key)" in str(error)
    assert "hunter2" not in str(error)


def altered(change):
    """Return a change of a right answer's content in which each point is changed, or left out."""

    def alter(content):
        results = content["result"] if isinstance(content["result"], list) else [content["result"]]
        for result in results:
            result["points"] = [changed for p in result["points"] if (changed := change(p))]
        return content

    return alter


def vectors(change):
    return altered(lambda point: {**point, "vector": change(point["vector"])})


ADDRESS = "address lead to a Qdrant server"
# What becomes of the content of a right answer, and what the error says of it. Bytes: the body.
WRONG_ANSWERS = {
    "half of the JSON": (lambda content: b'{"result": {"points": [', ADDRESS),
    "a page": (lambda content: b"<html>Please log in</html>", ADDRESS),
    "no result": (lambda content: {**content, "result": None}, ADDRESS),
    "an empty result": (lambda content: {**content, "result": {}}, ADDRESS),
    "no score": (altered(lambda point: {"id": point["id"]}), ADDRESS),
    "no vector": (vectors(lambda vector: None), "point .* got none.*`vector_name`"),
    "a number less": (vectors(lambda vector: vector[1:]), r"point .*\(15,\).*`vector_name`"),
    "NaN": (vectors(lambda vector: ["NaN", *vector[1:]]), "finite|NaN|not Qdrant"),
    "beyond float32": (vectors(lambda vector: [1e300, *vector[1:]]), "finite|inf|range"),
    "no text": (altered(lambda p: {**p, "payload": {}}), "point .* no text.*`text_key`"),
    "no points": (altered(lambda point: None), "no documents to fetch from"),
}


@pytest.fixture
def api(qdrant):
    return Api(qdrant)


@pytest.mark.parametrize("is_async", [False, True], ids=["called", "awaited"])
@pytest.mark.parametrize("name", WRONG_ANSWERS)
def test_a_wrong_answer_is_told_and_the_next_is_taken(api, corpus, name, is_async):
    change, says = WRONG_ANSWERS[name]
    is_wrong = False

    def answer(request):
        response = api.respond(request)
        if not is_wrong:
            return response
        content = change(response.json())
        kind = {"content": content} if isinstance(content, bytes) else {"json": content}
        return httpx.Response(200, **kind)

    query = corpus.query()
    remote = Remote(answer, is_async=is_async)
    for asked in (("fetch", query, 5), ("fetch_batch", [query] * 3, 5)):
        is_wrong = False
        found = ids_of(remote.ask(*asked))
        is_wrong = True
        with pytest.raises(SiftError, match=f"(?s){says}") as caught:
            remote.ask(*asked)
        assert "'docs'" in str(caught.value)
        is_wrong = False
        assert ids_of(remote.ask(*asked)) == found


def ids_of(found):
    return [pool.document_ids for pool in (found if isinstance(found, list) else [found])]


@pytest.mark.parametrize("is_async", [False, True], ids=["called", "awaited"])
def test_a_batch_that_lacks_an_answer_is_told(api, corpus, is_async):
    def answer(request):
        content = api.respond(request).json()
        return httpx.Response(200, json={**content, "result": content["result"][:-1]})

    remote = Remote(answer, is_async=is_async)
    query = corpus.query()
    lookups = [Lookup(n_candidates=5, vector=vector) for vector in corpus.embeddings[:3]]
    for asked in (("fetch_batch", [query] * 3, 5), ("look_up", query, lookups)):
        error = remote.refusal(*asked)
        assert re.search("2 answers to 3 requests.*versions of server and client", str(error))


def test_a_refusal_is_told_also_if_the_server_is_silent_about_its_collection():
    def refused_and_then_silent(request):
        if request.method == "POST":
            error = "Wrong input: Vector dimension error: expected dim: 4, got 16"
            return httpx.Response(400, json={"status": {"error": error}})
        raise httpx.ReadTimeout("slow")

    error = Remote(refused_and_then_silent).refusal()
    assert re.search("expected dim: 4.*dimension right", str(error))


@pytest.mark.parametrize("is_async", [False, True], ids=["called", "awaited"])
def test_a_collection_that_goes_and_comes_back_otherwise_between_calls(
    api, qdrant, corpus, refill, is_async
):
    remote, asked = Remote(api.respond, is_async=is_async), (corpus.query(), 5)
    found = remote.ask("fetch", *asked)
    qdrant.delete_collection("docs")
    missing = "404.*Not found: Collection `docs` doesn't exist!.*create the collection"
    assert re.search(missing, str(remote.refusal("fetch", *asked)))
    four = models.VectorParams(size=4, distance=models.Distance.COSINE)
    qdrant.create_collection("docs", vectors_config=four)
    other = "400.*expected dim: 4, got 16.*'' of 4.*model"
    assert re.search(other, str(remote.refusal("fetch", *asked)))
    qdrant.delete_collection("docs")
    refill(qdrant)
    assert remote.ask("fetch", *asked).document_ids == found.document_ids


WRITES = {
    "prepare": lambda source, corpus: source.prepare(embedder_name="model-a", dimension=16),
    "content_ids": lambda source, corpus: source.content_ids(),
    "add": lambda source, corpus: source.add(
        [CONTENT_ID], corpus.documents[:1], corpus.embeddings[:1]
    ),
    "remove": lambda source, corpus: source.remove([CONTENT_ID]),
}


@pytest.mark.parametrize("action", WRITES)
def test_a_fault_while_writing_is_told_and_forgotten(api, corpus, action):
    is_busy = [True]

    def answer(request):
        if is_busy[0]:
            return httpx.Response(429, headers={"Retry-After": "7"})
        return api.respond(request)

    source = Remote(answer).source
    with pytest.raises(CandidateSourceError, match=r"'docs'.*429.*ask again later") as caught:
        WRITES[action](source, corpus)
    assert caught.value.retry_after_s == 7
    is_busy[0] = False
    WRITES[action](source, corpus)


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
    with serving_calls(lambda request, context: context.abort(code, "what it says")) as options:
        client = qdrant_client.QdrantClient(**options)
        with closing(client), pytest.raises(CandidateSourceError) as info:
            QdrantSource(client, "docs").fetch(QUERY, 3)
    assert advice in str(info.value)
    assert f"{code.name}, what it says" in str(info.value)
    assert isinstance(info.value.__cause__, grpc.RpcError)


def test_a_point_without_an_id_by_grpc_is_an_error_of_the_store():
    messages = qdrant_client.grpc
    broken = messages.QueryResponse(result=[messages.ScoredPoint(score=1.0)]).SerializeToString()
    with serving_calls(lambda request, context: broken) as options:
        client = qdrant_client.QdrantClient(**options)
        with closing(client), pytest.raises(CandidateSourceError, match="invalid PointId"):
            QdrantSource(client, "docs").fetch(QUERY, 2)


@pytest.mark.parametrize(
    "raised", [sqlite3.OperationalError("disk I/O error"), OSError("gone"), RuntimeError("closed")]
)
def test_a_folder_that_cannot_be_read(raised):
    with closing(qdrant_client.QdrantClient(":memory:")) as client:
        told_by = failure(raised, client)
    assert "let no other process hold its folder" in told_by.advice
    assert str(raised) in told_by.cause


async def test_awaited_fetches_are_paced(api, corpus, monkeypatch):
    # Two answers of five candidates of 16 numbers fit in at a time.
    monkeypatch.setattr(pacing, "MAX_NUMBERS", 2 * 5 * 16)
    monkeypatch.setattr(pacing, "TURN_S", PATIENT_S)
    n_inside, seen = 0, []

    async def answer(request):
        nonlocal n_inside
        n_inside += 1
        seen.append(n_inside)
        for _ in range(30):  # turns of the loop, enough for whoever can go on
            await asyncio.sleep(0)
        n_inside -= 1
        return api.respond(request)

    source = Remote(answer, is_async=True).source
    await asyncio.gather(*(source.afetch(corpus.query(), 5) for _ in range(6)))
    assert len(seen) == 6
    assert max(seen) == 2


REFUSED_SIZE = 3


def is_refused(request):
    return json.loads(request.content)["limit"] == REFUSED_SIZE


def assert_one_failed(found):
    failed = found.pop(REFUSED_SIZE - 1)
    assert isinstance(failed, CandidateSourceError)
    assert "503 Service Unavailable" in str(failed)
    assert [len(pool) for pool in found] == [1, 2, 4, 5, 6]


def test_of_several_calls_at_once_one_fails_and_the_others_go_on(api, corpus):
    has_failed = threading.Event()

    def answer(request):
        if is_refused(request):
            return httpx.Response(503)
        assert has_failed.wait(PATIENT_S)  # in flight while the other fails
        return api.respond(request)

    source = Remote(answer).source
    with ThreadPoolExecutor(6) as threads:
        calls = [threads.submit(source.fetch, corpus.query(), n) for n in range(1, 7)]
        calls[REFUSED_SIZE - 1].exception(PATIENT_S)
        has_failed.set()
        assert_one_failed([call.exception() or call.result() for call in calls])


async def test_of_several_awaited_calls_one_fails_and_the_others_go_on(api, corpus):
    has_failed = asyncio.Event()

    async def answer(request):
        if is_refused(request):
            return httpx.Response(503)
        await has_failed.wait()
        return api.respond(request)

    source = Remote(answer, is_async=True).source
    calls = [asyncio.create_task(source.afetch(corpus.query(), n)) for n in range(1, 7)]
    await asyncio.wait([calls[REFUSED_SIZE - 1]])
    has_failed.set()
    assert_one_failed(await asyncio.gather(*calls, return_exceptions=True))
