from contextlib import closing

import numpy as np
import pytest

from sift_core.errors import InvalidInputError
from sift_core.protocols import DocumentIndex, Lookup
from sift_core.sources import QdrantSource
from sift_core.sources.content_ids import content_id
from sift_core.types import Document, Query

qdrant_client = pytest.importorskip("qdrant_client")
models = qdrant_client.models

QUERY = Query(text="?", embedding=[2.0, 0.0])
IDS = [f"00000000-0000-4000-8000-{i:012d}" for i in range(5)]
DOCUMENTS = [
    Document(document_id=f"книга.md#{i}", text=f"text {i} 🙂", metadata={"page": i, "tags": ["é"]})
    for i in range(5)
]
EMBEDDINGS = np.float32([[1, 0], [3, 4], [0, 2], [-1, 1], [-1, 0]])


@pytest.fixture(params=["", "dense"], ids=["unnamed", "named"])
def source(request):
    with closing(qdrant_client.QdrantClient(":memory:")) as client:
        yield QdrantSource(client, "new", vector_name=request.param, embedder_name="a")


def filled(source):
    source.prepare(embedder_name="a", dimension=2)
    source.add(IDS, DOCUMENTS, EMBEDDINGS)
    source.complete()
    return source


def test_what_is_added_is_fetched_as_it_was(source):
    assert isinstance(source, DocumentIndex)
    assert source.content_ids() == set()
    pool = filled(source).fetch(QUERY, 10)
    assert source.content_ids() == set(IDS)
    order = [0, 1, 2, 3, 4]  # cosines 1, .6, 0, -.7, -1
    assert pool.document_ids == tuple(DOCUMENTS[i].document_id for i in order)
    assert pool.texts == tuple(DOCUMENTS[i].text for i in order)
    assert pool.metadata == tuple(DOCUMENTS[i].metadata for i in order)
    units = EMBEDDINGS / np.linalg.norm(EMBEDDINGS, axis=1, keepdims=True)
    np.testing.assert_allclose(pool.embeddings, units[order], atol=1e-6)


def test_adding_again_replaces(source):
    filled(source).add(IDS[:1], [Document(document_id="x", text="new")], np.float32([[0, -1]]))
    pool = source.fetch(Query(text="?", embedding=[0.0, -1.0]), 1)
    assert (pool.document_ids, pool.texts, len(source.content_ids())) == (("x",), ("new",), 5)


def test_what_another_source_adds_has_words_where_the_collection_keeps_them(source):
    filled(source)
    other = QdrantSource(source._client, "new", vector_name=source._reader.vector_name)
    document = Document(document_id="x", text="a needle")
    other.add(["00000000-0000-4000-8000-00000000dead"], [document], np.float32([[0, -1]]))
    (pool,) = source.look_up(QUERY, [Lookup(n_candidates=3, words=["needle"])])
    assert pool.document_ids == ("x",)


def test_removing_leaves_the_others(source):
    filled(source).remove([*IDS[1:3], "00000000-0000-4000-8000-00000000dead"])
    assert source.content_ids() == {IDS[0], IDS[3], IDS[4]}
    source.remove([])
    assert len(source.fetch(QUERY, 10)) == 3


def test_points_of_others_are_not_ours():
    with closing(qdrant_client.QdrantClient(":memory:")) as client:
        source = filled(QdrantSource(client, "new"))
        theirs = models.PointStruct(id=7, vector=[1.0, 0.0], payload={"text": "theirs"})
        client.upsert("new", [theirs])
        assert source.content_ids() == set(IDS)
        assert source.fetch(QUERY, 10).document_ids.count("7") == 1


def test_more_numbers_than_a_request_takes_and_more_ids_than_a_page(monkeypatch):
    monkeypatch.setattr("sift_core.sources.qdrant.collection.NUMBERS_A_REQUEST", 5)
    monkeypatch.setattr("sift_core.sources.qdrant.collection.IDS_A_REQUEST", 2)
    monkeypatch.setattr("sift_core.sources.qdrant.collection.IDS_A_PAGE", 2)
    with closing(qdrant_client.QdrantClient(":memory:")) as client:
        source = filled(QdrantSource(client, "new"))
        assert source.content_ids() == set(IDS)
        source.remove(IDS)
        assert source.content_ids() == set()


def test_refuses_another_embedder_or_dimension(source):
    filled(source)
    with pytest.raises(InvalidInputError, match="was embedded by 'a', not by 'b'"):
        source.prepare(embedder_name="b", dimension=2)
    with pytest.raises(InvalidInputError, match=r"of 2\}|: 2\}.*makes 3 numbers"):
        source.prepare(embedder_name="a", dimension=3)


def test_a_collection_of_others_without_a_name_may_be_written_to():
    with closing(qdrant_client.QdrantClient(":memory:")) as client:
        vectors = models.VectorParams(size=2, distance=models.Distance.DOT)
        client.create_collection("new", vectors_config=vectors)
        assert len(filled(QdrantSource(client, "new")).fetch(QUERY, 9)) == 5


def test_a_collection_made_by_others_keeps_the_embedders_name_from_then_on():
    with closing(qdrant_client.QdrantClient(":memory:")) as client:
        vectors = models.VectorParams(size=2, distance=models.Distance.COSINE)
        client.create_collection("new", vectors_config=vectors, metadata={"owner": "me"})
        filled(QdrantSource(client, "new"))
        assert client.get_collection("new").config.metadata["owner"] == "me"
        again = QdrantSource(client, "new")
        assert again.embedder_name is None
        assert again.content_ids() == set(IDS)
        assert again.embedder_name == "a"
        with pytest.raises(InvalidInputError, match="was embedded by 'a', not by 'b'"):
            QdrantSource(client, "new").prepare(embedder_name="b", dimension=2)
        with pytest.raises(InvalidInputError, match="embedded by 'a', this source says 'b'"):
            QdrantSource(client, "new", embedder_name="b").content_ids()


@pytest.mark.parametrize("key", ["text", "sift_document_id"])
def test_metadata_that_would_be_overwritten(source, key):
    filled(source)
    document = Document(document_id="x", text="x", metadata={key: "mine"})
    with pytest.raises(InvalidInputError, match=f"'x' must not have the key '{key}'"):
        source.add(IDS[:1], [document], EMBEDDINGS[:1])


async def test_an_async_client_cannot_be_written_to():
    client = qdrant_client.AsyncQdrantClient(":memory:")
    with pytest.raises(InvalidInputError, match="pass a QdrantClient"):
        QdrantSource(client, "new").content_ids()
    await client.close()


@pytest.mark.parametrize("datatype", ["uint8", "turbo4", "turbo8", "turbo16", "float16", "float32"])
@pytest.mark.parametrize("name", ["", "dense"])
def test_a_datatype_that_changes_numbers_is_refused_before_anything_is_written(name, datatype):
    """Of unit vectors uint8 keeps zeros alone."""
    client = qdrant_client.QdrantClient(":memory:")
    params = models.VectorParams(size=4, distance=models.Distance.COSINE, datatype=datatype)
    client.create_collection("c", vectors_config={name: params} if name else params)
    source = QdrantSource(client, "c", vector_name=name)
    document = Document(document_id="d", text="t")
    row = np.full((1, 4), 0.5, np.float32)
    if datatype.startswith("float"):
        source.prepare(embedder_name="e", dimension=4)
        source.add([content_id(document)], [document], row)
        assert client.count("c").count == 1
        return
    for write in (
        lambda: source.prepare(embedder_name="e", dimension=4),
        lambda: source.add([content_id(document)], [document], row),
    ):
        with pytest.raises(InvalidInputError, match=f"as {datatype}, .*nothing was written"):
            write()
    assert client.count("c").count == 0
    assert not client.get_collection("c").config.metadata  # nor the embedder's name
