"""Vectors that a store holds, read with its client or index by whoever has one."""

import asyncio
import uuid

import numpy as np
import pytest

faiss = pytest.importorskip("faiss")
qdrant_client = pytest.importorskip("qdrant_client")

from sift_core.errors import CandidateSourceError, InvalidInputError  # noqa: E402
from sift_core.sources import faiss as of_faiss  # noqa: E402
from sift_core.sources import qdrant as of_qdrant  # noqa: E402

models = qdrant_client.models
D = 16
UUIDS = [str(uuid.UUID(int=7**i)) for i in range(3)]


@pytest.fixture
def client():
    """Two integers and three UUIDs; "words" on all but the last, and one multivector."""
    client = qdrant_client.QdrantClient(":memory:")
    vector = models.VectorParams(size=2, distance=models.Distance.DOT)
    many = vector.model_copy(
        update={"multivector_config": models.MultiVectorConfig(comparator="max_sim")}
    )
    client.create_collection("docs", vectors_config={"words": vector, "many": many})
    client.upsert(
        "docs",
        [
            models.PointStruct(
                id=point,
                vector={"words": [i, 0.5], "many": [[1, 2]]},
                payload={"body": f"text {i}"},
            )
            for i, point in enumerate([4, 5, *UUIDS[:2]])
        ],
    )
    client.upsert("docs", [models.PointStruct(id=UUIDS[2], vector={"many": [[1, 2]]}, payload={})])
    yield client
    client.close()


def plain(found):
    return [None if vector is None else vector.tolist() for vector in found]


ASKED = [UUIDS[1], "5", 4, "no id of Qdrant's", -1, UUIDS[2], 99, UUIDS[0].replace("-", ""), 4]
HELD = [[3, 0.5], [1, 0.5], [0, 0.5], None, None, None, None, [2, 0.5], [0, 0.5]]


def test_qdrants_vectors_come_in_the_order_asked_for_and_none_where_there_is_none(client):
    assert plain(of_qdrant.stored_vectors(client, "docs", ASKED, vector_name="words")) == HELD
    found = of_qdrant.astored_vectors(client, "docs", ASKED, vector_name="words", dimension=2)
    assert plain(asyncio.run(found)) == HELD
    assert of_qdrant.stored_vectors(client, "docs", ["?"], vector_name="words") == [None]
    assert of_qdrant.stored_vectors(client, "docs", [4], vector_name="many") == [None]


def test_an_async_client_of_qdrant_is_awaited():
    async def read():
        client = qdrant_client.AsyncQdrantClient(":memory:")
        vector = models.VectorParams(size=2, distance=models.Distance.DOT)
        await client.create_collection("docs", vectors_config=vector)
        await client.upsert("docs", [models.PointStruct(id=8, vector=[1, 2], payload={})])
        try:
            return await of_qdrant.astored_vectors(client, "docs", ["8", "9"])
        finally:
            await client.close()

    assert plain(asyncio.run(read())) == [[1, 2], None]


def test_a_vector_counts_only_where_the_text_is_the_points(client):
    asked = {"vector_name": "words", "text_key": "body"}
    found = of_qdrant.stored_vectors(client, "docs", [4, 5], texts=["text 0", "half"], **asked)
    assert plain(found) == [[0, 0.5], None]
    with pytest.raises(InvalidInputError, match="one text a point, got 1 for 2"):
        of_qdrant.stored_vectors(client, "docs", [4, 5], texts=["text 0"], **asked)


def test_many_points_are_asked_for_in_several_requests(client, monkeypatch):
    monkeypatch.setattr("sift_core.sources.qdrant.by_id.VECTORS_A_REQUEST", 2)
    assert plain(of_qdrant.stored_vectors(client, "docs", ASKED, vector_name="words")) == HELD


def test_what_qdrant_refuses_is_told_with_the_collection(client):
    with pytest.raises(CandidateSourceError, match="vectors of 1 points of collection 'other'"):
        of_qdrant.stored_vectors(client, "other", [4])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (7, 7),
        (True, None),
        (2**64, None),
        ("18446744073709551615", 2**64 - 1),
        ("007", None),
        ("7" * 32, "77777777-7777-7777-7777-777777777777"),
        ("9" * 5000, None),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        ("{" + UUIDS[0].upper() + "}", UUIDS[0]),
        ("doc-1", None),
        (None, None),
    ],
)
def test_ids_are_spelled_as_qdrant_does(value, expected):
    assert of_qdrant.point_id(value) == expected


def test_vectors_of_hits_that_brought_them(client):
    points = client.query_points(
        "docs", [1, 0], using="words", with_vectors=of_qdrant.vectors_wanted("words"), limit=2
    ).points
    assert of_qdrant.dense_vectors(points, vector_name="words").tolist() == [[3, 0.5], [2, 0.5]]
    vector = of_qdrant.dense_vector(points[0], vector_name="words")
    assert (vector.dtype, vector.tolist()) == (np.float32, [3, 0.5])
    assert of_qdrant.dense_vector(points[0]) is None
    assert of_qdrant.dense_vectors([], dimension=2).shape == (0, 2)
    with pytest.raises(CandidateSourceError, match=r"has the vectors .* but not 'other'"):
        of_qdrant.dense_vectors(points, vector_name="other")


def test_faiss_with_nothing_to_find_or_to_give():
    none = of_faiss.search_with_vectors(faiss.IndexFlatIP(D), np.ones(D), 3)
    assert none.embeddings.shape == (0, D)
    assert of_faiss.stored_vectors(faiss.IndexFlatIP(D), []).shape == (0, D)
    with pytest.raises(InvalidInputError, match="8 dimensions, the Faiss index has 16"):
        of_faiss.search_with_vectors(faiss.IndexFlatIP(D), np.ones(8), 3)
    with pytest.raises(InvalidInputError, match="must be integers"):
        of_faiss.stored_vectors(faiss.IndexFlatIP(D), ["doc-1"])


@pytest.mark.parametrize("kind", ["IndexIDMap", "IndexIDMap2"])
def test_of_an_id_that_faiss_was_given_twice_the_last_vector_counts(kind):
    index = getattr(faiss, kind)(faiss.IndexFlatIP(2))
    index.add_with_ids(np.eye(2, dtype=np.float32), np.array([7, 7]))
    assert of_faiss.stored_vectors(index, [7]).tolist() == [[0.0, 1.0]]
