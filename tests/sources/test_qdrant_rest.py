"""The server of the tests answers the remote client as the local mode answers the local one."""

import pytest

qdrant_client = pytest.importorskip("qdrant_client")
models = qdrant_client.models

NAMED = {"dense": models.VectorParams(size=4, distance=models.Distance.COSINE)}
SPARSE = {"words": models.SparseVectorParams()}
EVEN = models.Filter(must=[models.FieldCondition(key="parity", match=models.MatchValue(value=0))])


def vector(corpus, seed=0):
    return corpus.query(seed).embedding.tolist()


def prefetches(corpus):
    return [
        models.Prefetch(query=vector(corpus, seed), limit=20, filter=EVEN, params={"exact": True})
        for seed in range(2)
    ]


READS = {
    "nearest": lambda c, corpus: c.query_points("docs", vector(corpus), limit=7),
    "with vectors": lambda c, corpus: c.query_points("docs", vector(corpus), with_vectors=True),
    "some payload": lambda c, corpus: c.query_points("docs", vector(corpus), with_payload=["lang"]),
    "a page": lambda c, corpus: c.query_points("docs", vector(corpus), limit=3, offset=4),
    "filtered": lambda c, corpus: c.query_points("docs", vector(corpus), query_filter=EVEN),
    "above a score": lambda c, corpus: c.query_points("docs", vector(corpus), score_threshold=0.3),
    "prefetched": lambda c, corpus: c.query_points(
        "docs", vector(corpus, 2), prefetch=prefetches(corpus)
    ),
    "fused": lambda c, corpus: c.query_points(
        "docs",
        models.FusionQuery(fusion=models.Fusion.RRF),
        prefetch=prefetches(corpus),
        with_vectors=True,
    ),
    "batch": lambda c, corpus: c.query_batch_points(
        "docs",
        [models.QueryRequest(query=vector(corpus, s), limit=s + 1, filter=EVEN) for s in range(3)],
    ),
    "scrolled": lambda c, corpus: c.scroll("docs", limit=9, offset=1000 + 7 * 30),
    "scrolled, filtered": lambda c, corpus: c.scroll("docs", EVEN, limit=500, with_vectors=True),
    "counted": lambda c, corpus: c.count("docs"),
    "counted, filtered": lambda c, corpus: c.count("docs", EVEN),
    "described": lambda c, corpus: c.get_collection("docs"),
    "is there": lambda c, corpus: c.collection_exists("docs"),
    "is not there": lambda c, corpus: c.collection_exists("nowhere"),
}


def plain(value):
    """Return an answer as lists and dicts; the last bits of a score depend on where it lay."""
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, float):
        return round(value, 5)
    return plain(value.model_dump()) if hasattr(value, "model_dump") else value


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_reads_as_the_local_client_does(rest_client, qdrant, corpus, read):
    assert plain(read(rest_client, corpus)) == plain(read(qdrant, corpus))


def test_searches_with_parameters_that_the_local_mode_does_not_know(rest_client, corpus):
    exact = models.SearchParams(exact=True, hnsw_ef=100)
    found = rest_client.query_points("docs", vector(corpus), search_params=exact)
    assert found == rest_client.query_points("docs", vector(corpus))


def test_a_collection_is_created_written_to_emptied_and_dropped(rest_client, qdrant):
    assert rest_client.create_collection(
        "new", vectors_config=NAMED, sparse_vectors_config=SPARSE, metadata={"by": "a"}
    )
    config = qdrant.get_collection("new").config
    assert config.params.vectors == NAMED
    assert set(config.params.sparse_vectors) == set(SPARSE)
    assert config.metadata == {"by": "a"}
    words = models.SparseVector(indices=[3], values=[1.0])
    both = {"dense": [1.0, 0.0, 0.0, 0.0], "words": words}
    points = [models.PointStruct(id=i, vector=both, payload={"parity": i % 2}) for i in range(4)]
    assert rest_client.upsert("new", points).status == models.UpdateStatus.COMPLETED
    lazy = rest_client.upsert("new", points[:1], wait=False)
    assert lazy.status == models.UpdateStatus.ACKNOWLEDGED
    assert rest_client.query_points("new", words, using="words").points
    rest_client.delete("new", models.PointIdsList(points=[1]))
    assert [point.id for point in rest_client.scroll("new")[0]] == [0, 2, 3]
    rest_client.delete("new", models.FilterSelector(filter=EVEN))
    assert rest_client.count("new").count == qdrant.count("new").count == 1
    assert rest_client.delete_collection("new")
    assert not qdrant.collection_exists("new")


@pytest.mark.parametrize(
    ("call", "status", "text"),
    [
        (lambda c: c.query_points("no", [1.0]), 404, "Not found: Collection `no` doesn't exist!"),
        (lambda c: c.count("no"), 404, "Not found: Collection `no` doesn't exist!"),
        (
            lambda c: c.query_points("docs", [1.0]),
            400,
            "Wrong input: Vector dimension error: expected dim: 16, got 1",
        ),
        (
            lambda c: c.query_points("docs", [1.0] * 16, using="title"),
            400,
            "Wrong input: Not existing vector name error: title",
        ),
        (
            lambda c: c.query_points(
                "docs", [1.0] * 16, prefetch=models.Prefetch(query=[1.0], limit=2)
            ),
            400,
            "Wrong input: Vector dimension error: expected dim: 16, got 1",
        ),
        (
            lambda c: c.upsert("docs", [models.PointStruct(id=1, vector=[1.0, 2.0])]),
            400,
            "Wrong input: Vector dimension error: expected dim: 16, got 2",
        ),
        (
            lambda c: c.create_collection("docs", vectors_config=NAMED),
            409,
            "Wrong input: Collection `docs` already exists!",
        ),
    ],
)
def test_refuses_as_the_server_does(rest_client, call, status, text):
    with pytest.raises(qdrant_client.http.exceptions.UnexpectedResponse) as caught:
        call(rest_client)
    assert caught.value.status_code == status
    assert caught.value.structured()["status"] == {"error": text}


def test_a_fault_falls_on_the_requests_that_it_was_asked_for(rest_server, rest_client):
    rest_server.fail(lambda call: call.respond(500, {}, b""), first=2, times=2)
    outcomes = []
    for _ in range(5):
        try:
            outcomes.append(rest_client.count("docs").count)
        except qdrant_client.http.exceptions.UnexpectedResponse as error:
            outcomes.append(error.status_code)
    assert outcomes == [160, 500, 500, 160, 160]
