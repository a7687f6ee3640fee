import asyncio
import json
from contextlib import closing

import httpx
import numpy as np
import pytest

from sift_core.errors import CandidateSourceError, InvalidInputError
from sift_core.sources import QdrantSource
from sift_core.types import Query
from tests.sources.stores import UUID, beside_others

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


@pytest.mark.parametrize("payload", [None, {}, {"txt": "a"}, {"text": None}, {"text": 5}])
def test_a_point_without_text(client, payload):
    collect(client, [point(4, [1, 0], payload)])
    with pytest.raises(
        CandidateSourceError, match=r"point 4 of .*'small' has no text under 'text'"
    ):
        QdrantSource(client, "small").fetch(QUERY, 1)


@pytest.mark.parametrize("location", [{"location": ":memory:"}, {"url": "http://127.0.0.1:1"}])
def test_a_closed_client(location):
    client = qdrant_client.QdrantClient(**location, check_compatibility=False)
    client.close()
    assert "closed" in refusal(QdrantSource(client, "docs"))


def test_an_async_client_cannot_fetch():
    client = qdrant_client.AsyncQdrantClient(":memory:")
    with pytest.raises(InvalidInputError, match="`afetch_batch` only; await these"):
        QdrantSource(client, "docs").fetch(QUERY, 1)
    asyncio.run(client.close())


def ids_of(pool):
    return [int(i) for i in pool.document_ids]


@pytest.mark.parametrize(
    ("key", "payload", "rest"),
    [
        ("body", {"body": "a", "text": "not this"}, {"text": "not this"}),
        ("of.body.text", {"of": {"body": {"text": "a"}, "n": 1}}, {"of": {"body": {}, "n": 1}}),
    ],
)
def test_the_text_may_be_under_another_key_or_inside_an_object(client, key, payload, rest):
    collect(client, [point(1, [1, 0], payload)])
    for _ in range(2):  # what the local client keeps stays whole
        pool = QdrantSource(client, "small", text_key=key).fetch(QUERY, 1)
        assert pool.texts == ("a",)
        assert pool.metadata == (rest,)


def test_one_of_several_vectors_is_searched_and_an_unknown_name_lists_the_dense_ones(client):
    beside_others(client)
    pool = QdrantSource(client, "small", vector_name="dense").fetch(QUERY, 2)
    assert pool.document_ids == ("1", UUID)  # ids of both kinds become texts
    assert pool.similarities == pytest.approx([1 / 1.0625**0.5, 0.25 / 1.0625**0.5])
    for name in ("", "words", "tokens", "nowhere"):
        message = refusal(QdrantSource(client, "small", vector_name=name))
        assert "its dense vectors are 'dense' of 2, 'title' of 7" in message
    assert "were both embedded by one model" in refusal(
        QdrantSource(client, "small", vector_name="title")
    )


LINE = np.array([[3, 1], [2, 2], [0, 1], [-1, 2], [-2, -1], [-3, 0], [-1, -4]], dtype=float)
# Cosines with (2, 0): .95, .71, 0, -.45, -.89, -1, -.24


def line(client, distance=models.Distance.COSINE):
    config = models.VectorParams(size=2, distance=distance)
    points = [point(i, row, {"text": f"{i}"}) for i, row in enumerate(LINE.tolist())]
    collect(client, points, config)


def test_a_score_threshold_leaves_out_the_far_ones_and_an_answer_may_be_empty(client):
    line(client)
    source = QdrantSource(client, "small", score_threshold=0.9)
    first, second = source.fetch_batch([QUERY, Query(text="?", embedding=[1.0, -1.0])], 3)
    assert (ids_of(first), len(second)) == ([0], 0)


def hybrid(client):
    """Fill a collection of dense vectors and words; document i has the word i."""
    sparse = {"words": models.SparseVectorParams()}
    points = [
        point(
            i,
            {"dense": row, "words": models.SparseVector(indices=[i], values=[1.0])},
            {"text": f"{i}", "odd": bool(i % 2)},
        )
        for i, row in enumerate(LINE.tolist())
    ]
    collect(client, points, {"dense": COSINE}, sparse_vectors_config=sparse)


def dense_and_words(query, n):
    words = models.SparseVector(indices=[int(query.text)], values=[1.0])
    return [
        models.Prefetch(query=query.embedding.tolist(), using="dense", limit=3),
        models.Prefetch(query=words, using="words", limit=3),
    ]


def test_a_fused_query_keeps_its_order_and_its_scores(client):
    hybrid(client)
    source = QdrantSource(
        client,
        "small",
        vector_name="dense",
        prefetch=dense_and_words,
        fusion=models.FusionQuery(fusion=models.Fusion.RRF),
    )
    pool = source.fetch(Query(text="6", embedding=[2.0, 0.0]), 10)
    # Dense: 0, 1, 2. Words: 6 alone. By ranks 6 stands beside 0, before 1 and 2.
    assert sorted(ids_of(pool)[:2]) == [0, 6]
    assert ids_of(pool)[2:] == [1, 2]
    assert pool.relevance[0] == pool.relevance[1] > pool.relevance[2] > pool.relevance[3] > 0
    cosines = LINE[ids_of(pool)] @ [1, 0] / np.linalg.norm(LINE[ids_of(pool)], axis=1)
    np.testing.assert_allclose(pool.similarities, cosines, atol=1e-6)
    some = pool.take([2, 0])
    assert some.relevance.tolist() == [pool.relevance[2], pool.relevance[0]]


def test_prefetched_points_may_be_ranked_by_the_dense_vector_and_a_filter_holds(client):
    hybrid(client)
    source = QdrantSource(client, "small", vector_name="dense", prefetch=dense_and_words)
    query = Query(text="6", embedding=[2.0, 0.0])
    pool = source.fetch(query, 10)
    assert ids_of(pool) == [0, 1, 2, 6]
    assert pool.relevance is None
    match = models.MatchValue(value=True)
    odd = models.Filter(must=[models.FieldCondition(key="odd", match=match)])
    assert ids_of(source.fetch(query, 10, filter=odd)) == [1, 3, 5]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"client": "http://localhost:6333"}, "must be a QdrantClient or an AsyncQdrantClient"),
        ({"fusion": models.FusionQuery(fusion=models.Fusion.RRF)}, "pass that too"),
        ({"prefetch": models.Prefetch(query=[1.0, 0.0])}, "must be a function of the query"),
    ],
)
def test_options_that_do_not_go_together(client, options, message):
    with pytest.raises(InvalidInputError, match=message):
        QdrantSource(**{"client": client, "collection": "small", **options})


@pytest.mark.parametrize(
    "options",
    [
        {"search_params": {"no_such": 1}},
        {"score_threshold": "much"},
        {"prefetch": lambda query, n: ["nothing of Qdrant's"]},
    ],
)
def test_options_that_qdrant_does_not_have(client, options):
    line(client)
    with pytest.raises(InvalidInputError, match=r"as qdrant_client\.models has them"):
        QdrantSource(client, "small", **options).fetch(QUERY, 2)


async def test_an_async_client_is_awaited_in_this_very_thread(monkeypatch):
    def hop(*arguments, **options):
        raise AssertionError("handed to another thread")

    monkeypatch.setattr(asyncio, "to_thread", hop)
    client = qdrant_client.AsyncQdrantClient(":memory:")
    await client.create_collection("small", vectors_config=COSINE)
    await client.upsert("small", [point(1, [1, 0], {"text": "a"})])
    source = QdrantSource(client, "small")
    assert (await source.afetch(QUERY, 3)).texts == ("a",)
    assert [pool.texts for pool in await source.afetch_batch([QUERY] * 2, 3)] == [("a",)] * 2
    with pytest.raises(CandidateSourceError, match="its dense vectors are '' of 2"):
        await QdrantSource(client, "small", vector_name="b").afetch(QUERY, 3)
    await client.close()


def sent_by(source_options, call):
    """Return (path, body) of every request that a source sends to a remote server."""
    sent = []

    def answer(request):
        body = json.loads(request.content)
        sent.append((request.url.path, body))
        found = {"id": 1, "version": 0, "score": 1.0, "vector": [1.0, 0.0], "payload": {"text": ""}}
        result = {"points": [found]}
        if request.url.path.endswith("/batch"):
            result = [result] * len(body["searches"])
        return httpx.Response(200, json={"result": result, "status": "ok", "time": 0.0})

    client = qdrant_client.QdrantClient(
        url="http://qdrant.test", check_compatibility=False, transport=httpx.MockTransport(answer)
    )
    with closing(client):
        call(QdrantSource(client, "docs", **source_options))
    return sent


def test_a_fetch_is_one_trip_that_brings_vectors_and_ranks_by_the_originals():
    ((path, body),) = sent_by({}, lambda source: source.fetch(QUERY, 7))
    assert path == "/collections/docs/points/query"
    assert body["with_vector"] == [""]  # the unnamed one, without the words
    assert body["with_payload"] is True
    assert body["limit"] == 7
    assert body["params"]["quantization"]["rescore"] is True


def test_only_the_vector_that_is_searched_comes_back_and_ones_own_parameters_hold():
    options = {"vector_name": "dense", "search_params": models.SearchParams(exact=True)}
    ((_, body),) = sent_by(options, lambda source: source.fetch(QUERY, 1))
    assert body["with_vector"] == ["dense"]
    assert body["using"] == "dense"
    assert body["params"]["exact"] is True
    assert body["params"]["quantization"]["rescore"] is True
    quantization = models.QuantizationSearchParams(ignore=True)
    options["search_params"] = models.SearchParams(quantization=quantization)
    ((_, body),) = sent_by(options, lambda source: source.fetch(QUERY, 1))
    assert body["params"]["quantization"] == {"ignore": True}
