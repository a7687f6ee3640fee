"""The store searched over HTTP, as the library does it in process."""

import json
from contextlib import closing

import numpy as np
import pytest

from sift_core import ChoiceOptions, InMemorySource, MMRSelector, Query, explain
from sift_core.choice import search as search_in_process
from sift_core.repeats import COPY_COSINE
from sift_core.selection.words import pool_words
from sift_core.sources.content_ids import content_id
from sift_core.sources.metadata_filters import filter_for
from sift_core.sources.multi_query import queries_of
from sift_core.testing import HashingEmbedder
from sift_core.types import Document
from tests.service.servers import TEXTS, service

QUESTION = "how to fold a boat of paper"


@pytest.fixture
def search(http):
    def call(code=200, **body):
        answer = http.post("/search", json={"query": QUESTION, **body})
        assert answer.status_code == code, answer.text
        return answer.json()

    return call


OPTIONS = [
    {},
    {"words": 0.0},
    {"n_candidates": 3},  # and a second fetch
    {"n_candidates": 3, "hops": 0},
    {"max_tokens": 20, "n_select": 8},
    {"max_per_document": 1, "n_select": 8},  # every text is a file of its own
    {"queries": [QUESTION, "growing tomatoes on a balcony"]},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_picks_and_candidates_are_the_librarys(search, embedder, source, options):
    options = {"n_select": 3, **options}
    found = search(**options)
    query = queries_of(options.pop("queries", [QUESTION]), embedder)
    chosen = search_in_process(source, query, ChoiceOptions(**options))
    pool = chosen.pool
    assert [one["document_id"] for one in found["candidates"]] == list(pool.document_ids)
    column, expected = found["columns"]["sift"], json.loads(json.dumps(chosen.as_dict()))
    assert column.items() >= {name: expected[name] for name in ("stop_reason", "variances")}.items()
    assert column.get("hop") == expected.get("hop")
    assert [one["candidate"] for one in column["chunks"]] == chosen.positions.tolist()
    told = explain(query.vectors, pool.embeddings, chosen.positions)
    for i, (chunk, record) in enumerate(zip(column["chunks"], expected["chunks"], strict=True)):
        assert chunk.items() >= record.items()
        assert chunk["information"]["gain"] == pytest.approx(float(told.information_gains[i]))
        assert chunk["title"].endswith(".md")
    assert set(found["timings"]) == {"embed", *chosen.timings}
    assert found["query"] == QUESTION


def test_a_file_gives_as_many_chunks_as_are_asked_for(embedder):
    """The two nearest chunks, each with half of the question's words, are of one file."""
    texts = ["how to fold", "a boat of paper", "a boat", "tea"]
    files = [{"source": name} for name in ("a.md", "a.md", "b.md", "c.md")]
    source = InMemorySource(embedder.embed_documents(texts), texts, metadata=files)
    with service(source=source, embedder=embedder) as client:
        for most, chosen in {1: ["a.md", "b.md"], 2: ["a.md", "a.md"]}.items():
            body = {"query": QUESTION, "n_select": 2, "words": 0, "max_per_document": most}
            chunks = client.post("/search", json=body).json()["columns"]["sift"]["chunks"]
            assert sorted(one["metadata"]["source"] for one in chunks) == chosen


def test_methods_stand_side_by_side_and_copies_show(search, embedder, source):
    columns = search(n_select=4, compare=True)["columns"]
    assert list(columns) == ["nearest", "mmr", "hybrid", "sift"]
    assert columns["nearest"]["n_copies"] == 1
    assert columns["sift"]["n_copies"] == 0
    for column in columns.values():
        assert sum(one["is_copy"] for one in column["chunks"]) == column["n_copies"]
        for one in column["chunks"]:
            repeat = one["near_duplicate_of"]
            assert one["is_copy"] == (repeat is not None and repeat["cosine"] >= COPY_COSINE)
    query = embedder.embed_query(QUESTION)
    pool = source.fetch(Query(text=QUESTION, embedding=query), 200)
    chosen = MMRSelector(relevance_weight=0.7).select(query, pool.embeddings, 4)
    expected = [pool.document_ids[i] for i in chosen.positions]
    assert [one["document_id"] for one in columns["mmr"]["chunks"]] == expected
    nearest = [one["document_id"] for one in columns["nearest"]["chunks"]]
    assert nearest == list(pool.document_ids[:4])


def test_a_filter_restricts_and_a_kernel_is_obeyed(search):
    tea = search(filter={"topic": "tea"})
    assert {one["document_id"] for one in tea["candidates"]} == {"doc-4", "doc-5"}
    assert search(filter={"topic": "nothing"})["columns"]["sift"]["chunks"] == []
    paper = search(kernel="linear", noise_variance=0.01)["columns"]["sift"]
    assert paper["variances"][0] == pytest.approx(1.0)


@pytest.mark.parametrize(
    "body",
    [
        {"query": ""},
        {"query": "?"},  # a text without words, which this embedder refuses
        {"n_select": 0},
        {"n_select": 10**6},
        {"n_candidates": 10**6},
        {"kernel": "poly"},
        {"noise_variance": 0},
        {"filter": {"topic": []}},
        {"filter": {"topic": {"$gt": 1}}},
        {"filter": "topic = 'tea'"},
        {"top": 3},
        {"query": None},
        {"queries": [" "]},
        {"queries": ["a"] * 17},
        {"queries": ["a", "b"], "compare": True},
        {"newest": "day", "compare": True},
        {"max_tokens": 1, "compare": True},
        {"merge_neighbors": True, "compare": True},
        {"newest": "day", "half_life_days": 0},
        {"half_life_days": 3},
    ],
)
def test_what_cannot_be_searched_is_refused(search, body):
    assert len(search(400, **body)["detail"]) > 10


def test_metadata_of_any_kind_is_told(embedder):
    metadata = [{"price": np.float32("nan"), "size": np.int64(i)} for i in range(8)]
    source = InMemorySource(embedder.embed_documents(TEXTS), TEXTS, metadata=metadata)
    with service(source=source, embedder=embedder) as client:
        found = client.post("/search", json={"query": "boat", "n_select": 1}).raise_for_status()
        chunk = found.json()["columns"]["sift"]["chunks"][0]
        assert chunk["metadata"] == {"price": None, "size": int(chunk["document_id"])}


@pytest.mark.parametrize("lacks", ["store", "embedder"])
def test_a_service_without_a_part_says_that_it_cannot_search(source, embedder, lacks):
    parts = {"source": source, "embedder": embedder}
    parts["source" if lacks == "store" else lacks] = None
    with service(**parts) as client:
        answer = client.post("/search", json={"query": "x"})
        assert answer.status_code == 404
        assert f"no {lacks}" in answer.json()["detail"]


def test_a_key_that_no_document_has_is_named_with_those_that_there_are(search):
    """A misspelt key found nothing, and nothing said why."""
    (note,) = search(filter={"topik": "tea"})["notes"]
    assert "['topik']" in note
    assert "there are ['source', 'topic']" in note
    assert search(filter={"topic": "nothing"})["notes"] == []  # the key is there
    assert search(filter={"topic": "tea"})["notes"] == []


@pytest.fixture
def stores():
    """The same four documents in memory and in Qdrant, in this order."""
    models = pytest.importorskip("qdrant_client.models")
    from qdrant_client import QdrantClient

    from sift_core.sources import QdrantSource

    metadata = [
        {"kind": "a", "n": 1, "is_new": False, "tags": ["x", "y"]},
        {"kind": "a", "n": 2, "is_new": True, "tags": ["y"]},
        {"kind": "b", "n": 1, "is_new": False, "tags": ["x"]},
        {"kind": "c", "n": 3, "a key": "x", "$x": "x", "thème": "x"},
    ]
    vectors = HashingEmbedder(16).embed_documents(TEXTS[:4])
    ids = [str(i) for i in range(4)]
    points = [
        models.PointStruct(id=i, vector=vectors[i].tolist(), payload={"text": "t", **one})
        for i, one in enumerate(metadata)
    ]
    with closing(QdrantClient(":memory:")) as client:
        params = models.VectorParams(size=16, distance=models.Distance.COSINE)
        client.create_collection("c", vectors_config=params)
        client.upsert("c", points)
        in_memory = InMemorySource(vectors, TEXTS[:4], document_ids=ids, metadata=metadata)
        yield in_memory, QdrantSource(client, "c")


@pytest.mark.parametrize("key", ["", 'a"b', '"'])
def test_a_key_that_no_document_can_have_is_the_clients_error(stores, key):
    """The store failed on it: 503, and clients asked again."""
    with service(source=stores[1], embedder=HashingEmbedder(16)) as http:
        answer = http.post("/search", json={"query": "boat", "filter": {key: "x"}})
        assert answer.status_code == 400
        assert "metadata key" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ({"kind": "a"}, {0, 1}),
        ({"kind": ["a", "b"]}, {0, 1, 2}),
        ({"kind": "a", "n": 1}, {0}),
        ({"is_new": True}, {1}),
        ({"tags": "x"}, {0, 2}),
        ({"missing": "a"}, set()),
        ({"a key": "x"}, {3}),
        ({"$x": "x"}, {3}),
        ({"thème": "x"}, {3}),
    ],
)
@pytest.mark.filterwarnings("ignore::sift_core.errors.MissingKeyWarning")
def test_a_filter_means_the_same_in_every_store(stores, conditions, expected):
    query = Query(text="boat", embedding=HashingEmbedder(16).embed_query("boat"))
    for source in stores:
        pool = source.fetch(query, 4, filter=filter_for(source, conditions))
        assert {int(name) for name in pool.document_ids} == expected


NESTED = [
    {"author": {"name": "Ann", "tags": ["x", "y"]}},
    {"author.name": "Ann"},  # a key with a dot
    {"author": [{"name": "Bob"}, {"name": "Ann"}], "tags": ["p", ["q"]]},
    {"author": {"name": ["Ann", "Cy"]}, "a b": {"c": 1}},
    {"author": "name", "metadata": {"topic": "x", "author": {"name": "Dee"}, "a b": 2}},
    {"meta": {"topic": ["x", "z"]}, "topic": "y"},
]


@pytest.mark.parametrize(
    ("conditions", "expected"),  # by Qdrant's rules for the path of a key
    [
        ({"author.name": "Ann"}, {0, 3}),
        ({"author.name": ["Bob", "Cy"]}, {3}),
        ({'"author.name"': "Ann"}, {1}),
        ({"author[].name": "Ann"}, {2}),
        ({"author[0].name": "Ann"}, set()),
        ({"author[1].name": "Ann"}, {2}),
        ({"author.tags": "y"}, {0}),
        ({"author.tags[1]": "y"}, {0}),
        ({"author.name[]": "Cy"}, {3}),
        ({"tags": "q"}, set()),  # a list in a list is no element
        ({"tags[]": "q"}, {2}),
        ({'"a b".c': 1}, {3}),
        ({"author.name.first": "Ann"}, set()),
        ({"author.name": "name"}, set()),  # a path that goes past a text
        ({"author.name": "Dee"}, {4}),  # in an object that another tool keeps metadata in
        ({"topic": "x"}, {4, 5}),
        ({"topic": ["y", "z"]}, {5}),
        ({"metadata.topic": "x"}, {4}),
        ({'"topic"': "x"}, set()),  # quotes mean this very place
        ({"a b": 2}, {4}),
        ({"metadata.meta.topic": "x"}, set()),
        ({"tags[99999999999999999999]": "p"}, set()),  # no position, so a key
    ],
)
@pytest.mark.filterwarnings("ignore::sift_core.errors.MissingKeyWarning")
def test_a_nested_key_means_the_same_in_every_store(conditions, expected):
    """Memory and Faiss looked for a key that is spelled with the dots."""
    faiss = pytest.importorskip("faiss")
    QdrantClient = pytest.importorskip("qdrant_client").QdrantClient
    from sift_core.sources import FaissSource, QdrantSource

    rows = np.eye(6, dtype=np.float32)
    pairs = enumerate(NESTED)
    documents = [Document(document_id=str(i), text="t", metadata=each) for i, each in pairs]
    index = faiss.IndexFlatIP(6)
    index.add(rows)
    qdrant = QdrantSource(QdrantClient(":memory:"), "c")
    qdrant.prepare(embedder_name="e", dimension=6)
    qdrant.add([content_id(each) for each in documents], documents, rows)
    memory = InMemorySource(rows, ["t"] * 6, metadata=NESTED)
    for source in (qdrant, memory, FaissSource(index, documents)):
        query = Query(text="", embedding=np.ones(6))
        pool = source.fetch(query, 6, filter=filter_for(source, conditions))
        assert {int(name) for name in pool.document_ids} == expected


def test_hybrid_search_joins_the_ranks_by_vector_and_by_words(search, embedder, source):
    """By hand: 1 / (60 + rank) by cosine, and as much again for a text with words of the query."""
    found = search(query="cold water river", n_select=4, compare=True)
    query = Query(text="cold water river", embedding=embedder.embed_query("cold water river"))
    pool = source.fetch(query, 200)
    by_words = pool_words(list(pool.texts), [query.text]).question[0]
    scores = {}
    for values in (pool.similarities, by_words):
        for rank, row in enumerate(np.argsort(-values, kind="stable").tolist(), start=1):
            if values is pool.similarities or values[row] > 0:
                name = pool.document_ids[row]
                scores[name] = scores.get(name, 0) + 1 / (60 + rank)
    best = sorted(scores, key=scores.get, reverse=True)[:4]
    chunks = found["columns"]["hybrid"]["chunks"]
    assert [one["document_id"] for one in chunks] == best
    assert best[0] == "doc-6"  # "the river has cold water"


def test_a_comparison_says_where_the_rare_words_are(search):
    found = search(query="river of wax in Peru", n_select=2, compare=True)
    words = {one["word"]: one for one in found["rare_words"]}
    assert words["peru"]["n_candidates"] == 0
    assert words["wax"]["n_candidates"] == words["river"]["n_candidates"] == 1
    for word in ("river", "wax"):
        for name, column in found["columns"].items():
            ranks = [one["rank"] for one in column["chunks"] if word in one["text"]]
            assert words[word]["ranks"][name] == ranks
    assert any(words["wax"]["ranks"].values())
    assert "rare_words" not in search()
    absent = [f"x{i}x" for i in range(9)]  # no candidate has them: none is rarer
    found = search(query=f"river {' '.join(absent)} wax", compare=True)
    assert [(one["word"], one["n_candidates"]) for one in found["rare_words"]] == [
        (word, 0) for word in absent[:6]
    ]
