import asyncio
from contextlib import closing

import numpy as np
import pytest

from sift_core.candidates import QdrantSource
from sift_core.errors import CandidateSourceError, InvalidInputError
from sift_core.types import Query

qdrant_client = pytest.importorskip("qdrant_client")
models = qdrant_client.models

COSINE = models.VectorParams(size=2, distance=models.Distance.COSINE)
QUERY = Query(text="?", embedding=[2.0, 0.0])


@pytest.fixture
def client():
    """An empty client of one's own."""
    with closing(qdrant_client.QdrantClient(":memory:")) as client:
        yield client


def collect(client, points, config=COSINE, **options):
    client.create_collection("small", vectors_config=config, **options)
    client.upsert("small", points)


def point(i, vector, payload=None):
    return models.PointStruct(id=i, vector=vector, payload=payload)


def refusal(source, query=QUERY, **options):
    """Return the message of the error that a fetch ends in, which must name the store's own."""
    with pytest.raises(CandidateSourceError) as info:
        source.fetch(query, 3, **options)
    assert isinstance(info.value.__cause__, Exception)
    assert "Qdrant" in str(info.value)
    return str(info.value)


def test_orders_by_the_metric_of_the_collection_and_states_cosines(client):
    # To (2, 0): (10, 0) has cosine 1 at distance 8, (2, 2) has cosine 0.7071 at distance 2.
    euclid = models.VectorParams(size=2, distance=models.Distance.EUCLID)
    points = [point(1, [10, 0], {"text": "far"}), point(2, [2, 2], {"text": "near"})]
    collect(client, points, euclid)
    pool = QdrantSource(client, "small").fetch(QUERY, 2)
    assert pool.texts == ("near", "far")
    assert pool.similarities == pytest.approx([0.5**0.5, 1])
    assert pool.embeddings.tolist() == [[2, 2], [10, 0]]


def test_ids_of_both_kinds_become_texts(client):
    uuid = "5b0b0000-0000-4000-8000-00000000000a"
    collect(client, [point(uuid, [1, 0], {"text": "a"}), point(7, [0, 1], {"text": "b"})])
    assert QdrantSource(client, "small").fetch(QUERY, 2).document_ids == (uuid, "7")


def test_the_text_may_be_under_another_key(client):
    collect(client, [point(1, [1, 0], {"body": "a", "text": "not this"})])
    pool = QdrantSource(client, "small", text_key="body").fetch(QUERY, 1)
    assert pool.texts == ("a",)
    assert pool.metadata == ({"text": "not this"},)


def test_a_point_may_have_other_vectors_beside(client):
    sparse = {"words": models.SparseVectorParams()}
    vector = {"": [1.0, 0.0], "words": models.SparseVector(indices=[3], values=[1.0])}
    collect(client, [point(1, vector, {"text": "a"})], sparse_vectors_config=sparse)
    assert QdrantSource(client, "small").fetch(QUERY, 1).embeddings.tolist() == [[1, 0]]


@pytest.mark.parametrize("payload", [None, {}, {"txt": "a"}, {"text": None}, {"text": 5}])
def test_a_point_without_text(client, payload):
    collect(client, [point(4, [1, 0], payload)])
    with pytest.raises(CandidateSourceError, match="point 4 of 'small' has no text under 'text'"):
        QdrantSource(client, "small").fetch(QUERY, 1)


def test_several_vectors_and_no_name(client):
    collect(client, [point(1, {"dense": [1, 0]}, {"text": "a"})], {"dense": COSINE})
    assert "vector name ''" in refusal(QdrantSource(client, "small"))


@pytest.mark.parametrize("config", [COSINE, {"dense": COSINE}], ids=["unnamed", "named"])
def test_an_unknown_vector_name(client, config):
    vector = [1, 0] if config is COSINE else {"dense": [1, 0]}
    collect(client, [point(1, vector, {"text": "a"})], config)
    assert "vector name 'title'" in refusal(QdrantSource(client, "small", vector_name="title"))


def test_an_empty_collection(client):
    client.create_collection("small", vectors_config=COSINE)
    source = QdrantSource(client, "small")
    with pytest.raises(InvalidInputError, match=r"no documents to fetch from in 'small'.*add some"):
        source.fetch(QUERY, 1)


def test_a_missing_collection(client):
    message = refusal(QdrantSource(client, "nowhere"))
    assert "'nowhere'" in message
    assert "is the server up, and are collection, vector name and dimension right?" in message


def test_a_missing_collection_on_a_server(rest_client, corpus):
    message = refusal(QdrantSource(rest_client, "nowhere"), corpus.query())
    assert "Not found: Collection `nowhere`" in message


def test_another_dimension_is_named(qdrant):
    assert "a vector of 2 numbers" in refusal(QdrantSource(qdrant, "docs"))


def test_a_query_of_another_embedder_is_the_callers_mistake_not_the_stores(qdrant):
    source = QdrantSource(qdrant, "docs", embedder_name="a")
    with pytest.raises(InvalidInputError, match="embedded by 'b'"):
        source.fetch(Query(text="?", embedding=np.ones(16), embedder_name="b"), 1)


def test_a_callable_filter_is_refused(qdrant, corpus):
    with pytest.raises(InvalidInputError, match=r"must be a qdrant_client.models.Filter, got func"):
        QdrantSource(qdrant, "docs").fetch(corpus.query(), 1, filter=lambda metadata: True)


@pytest.mark.parametrize("prefer_grpc", [False, True], ids=["rest", "grpc"])
def test_an_unreachable_server(prefer_grpc):
    client = qdrant_client.QdrantClient(
        url="http://127.0.0.1:1",
        grpc_port=1,
        prefer_grpc=prefer_grpc,
        timeout=1,
        check_compatibility=False,
    )
    with closing(client):
        assert "is the server up" in refusal(QdrantSource(client, "docs"))


def test_an_unreachable_server_awaited():
    async def fetch():
        client = qdrant_client.AsyncQdrantClient(
            url="http://127.0.0.1:1", timeout=1, check_compatibility=False
        )
        try:
            await QdrantSource(client, "docs").afetch(QUERY, 1)
        finally:
            await client.close()

    with pytest.raises(CandidateSourceError, match="is the server up"):
        asyncio.run(fetch())


@pytest.mark.parametrize("location", [{"location": ":memory:"}, {"url": "http://127.0.0.1:1"}])
def test_a_closed_client(location):
    client = qdrant_client.QdrantClient(**location, check_compatibility=False)
    client.close()
    assert "closed" in refusal(QdrantSource(client, "docs"))


def test_a_closed_async_client():
    async def fetch():
        client = qdrant_client.AsyncQdrantClient(":memory:")
        await client.close()
        await QdrantSource(client, "docs").afetch(QUERY, 1)

    with pytest.raises(CandidateSourceError, match="closed"):
        asyncio.run(fetch())


def test_an_async_client_cannot_fetch():
    client = qdrant_client.AsyncQdrantClient(":memory:")
    with pytest.raises(InvalidInputError, match="serves `afetch` only; await that"):
        QdrantSource(client, "docs").fetch(QUERY, 1)
    asyncio.run(client.close())


def test_a_server_that_dies_between_two_calls_and_comes_back(rest_server, rest_client, corpus):
    source = QdrantSource(rest_client, "docs")
    first = source.fetch(corpus.query(), 3)
    rest_server.fault = (500, {"status": {"error": "disk full"}, "time": 0.0})
    assert "disk full" in refusal(source, corpus.query())
    rest_server.fault = None
    assert source.fetch(corpus.query(), 3).document_ids == first.document_ids


def test_a_server_that_stops_listening_between_two_calls(rest_server, rest_client, corpus):
    source = QdrantSource(rest_client, "docs")
    assert len(source.fetch(corpus.query(), 3)) == 3
    rest_server.shutdown()
    rest_server.server_close()
    assert "is the server up" in refusal(source, corpus.query())


@pytest.mark.parametrize(
    "fault",
    [
        (200, b"<html>a proxy's login page</html>"),
        (200, {"result": {"points": [{"id": 1}]}, "status": "ok", "time": 0.0}),
        (403, {"status": {"error": "forbidden"}, "time": 0.0}),
        (404, b"404 page not found"),
        (503, b""),
    ],
    ids=["not JSON", "not the schema", "forbidden", "not found", "unavailable"],
)
def test_a_server_that_answers_nonsense(rest_server, rest_client, corpus, fault):
    rest_server.fault = fault
    assert "'docs'" in refusal(QdrantSource(rest_client, "docs"), corpus.query())


@pytest.mark.parametrize(
    "vector",
    [None, {"title": [1.0, 0.0]}, [[1.0, 0.0], [0.0, 1.0]], [1.0, 0.0, 0.0]],
    ids=["none", "another name", "one a token", "another dimension"],
)
def test_a_server_that_returns_no_such_vector(rest_server, rest_client, vector):
    found = {"id": 9, "version": 0, "score": 1.0, "payload": {"text": "a"}, "vector": vector}
    rest_server.fault = (200, {"result": {"points": [found]}, "status": "ok", "time": 0.0})
    with pytest.raises(CandidateSourceError, match=r"point 9 of 'docs'.*`vector_name`"):
        QdrantSource(rest_client, "docs").fetch(QUERY, 1)


def test_a_server_that_is_too_slow(rest_server, corpus):
    rest_server.delay_s, rest_server.fault = 1.5, (503, b"")
    client = qdrant_client.QdrantClient(url=rest_server.url, timeout=1, check_compatibility=False)
    with closing(client):
        assert "timed out" in refusal(QdrantSource(client, "docs"), corpus.query())


def test_a_cancelled_fetch_is_cancelled(rest_server, corpus):
    rest_server.delay_s, rest_server.fault = 1.0, (503, b"")

    async def fetch():
        client = qdrant_client.AsyncQdrantClient(url=rest_server.url, check_compatibility=False)
        try:
            await asyncio.wait_for(QdrantSource(client, "docs").afetch(corpus.query(), 1), 0.1)
        finally:
            await client.close()

    with pytest.raises(asyncio.TimeoutError):
        asyncio.run(fetch())
