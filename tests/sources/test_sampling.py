"""What every source promises that draws documents at random.

Each test of the contract runs for every kind of store that the corpus is put into.
"""

import faiss
import numpy as np
import pytest
import qdrant_client
from qdrant_client import models

from sift_core.errors import CandidateSourceError, InvalidInputError
from sift_core.protocols import SamplableSource
from sift_core.sources import (
    FaissSource,
    InMemorySource,
    QdrantSource,
)
from sift_core.sources.qdrant.points import PointReader
from sift_core.types import Document
from tests.sources import stores

KINDS = [
    f"{kind}, called"
    for kind in (
        "in memory",
        "faiss flat, inner product",
        "faiss IDMap flat",
        "faiss IVF, own ids",
        "faiss HNSW",
        "faiss SQ8",
        "faiss folder, flat",
        "qdrant memory",
        "qdrant named",
        "qdrant REST",
    )
]


@pytest.fixture(scope="module", params=KINDS)
def sampled(request, corpus, tmp_path_factory):
    """The corpus in one kind of store after another."""
    with stores.opened(request.param, corpus, tmp_path_factory.mktemp("store")) as store:
        yield store


def draw(source, n, seed=0):
    return source.sample(n, np.random.default_rng(seed))


def test_a_sample_of_more_than_there_is_has_every_document_once_with_its_own_columns(
    sampled, corpus
):
    assert isinstance(sampled.source, SamplableSource)
    sample = draw(sampled.source, 10 * stores.N)
    assert len(sample) == sample.n_stored == stores.N
    assert sample.is_seeded
    rows = [corpus.ids.index(int(name)) for name in sample.document_ids]
    assert sorted(rows) == list(range(stores.N))
    assert rows != sorted(rows)
    assert list(sample.texts) == [corpus.texts[row] for row in rows]
    assert list(sample.metadata) == [corpus.metadata[row] for row in rows]
    assert sample.embeddings.dtype == np.float32
    cosines = (sample.embeddings * corpus.embeddings[rows]).sum(axis=1)
    np.testing.assert_allclose(cosines, 1, atol=0.4 if sampled.is_lossy else 1e-5)
    np.testing.assert_allclose(np.linalg.norm(sample.embeddings, axis=1), 1, atol=1e-5)


def test_a_seed_draws_the_same_documents_again_and_another_seed_others(sampled):
    first, again, other = (draw(sampled.source, 30, seed) for seed in (0, 0, 1))
    assert first.document_ids == again.document_ids
    np.testing.assert_array_equal(first.embeddings, again.embeddings)
    assert first.n_stored == stores.N
    assert len(set(first.document_ids)) == 30
    assert set(first.document_ids) != set(other.document_ids)


def test_every_document_is_drawn_equally_often(sampled, corpus):
    generator = np.random.default_rng(3)
    counts = dict.fromkeys(map(str, corpus.ids), 0)
    n_draws = 60
    for _ in range(n_draws):
        for name in sampled.source.sample(40, generator).document_ids:
            counts[name] += 1
    # Each is drawn 60 · 40 / 160 = 15 times in the mean; a binomial count has a variance of
    # 60 · ¼ · ¾ = 11.25. Half the store gets 1,200 of 2,400, with a standard deviation below 25.
    drawn = np.array(list(counts.values()))
    assert drawn.sum() == 2_400
    assert drawn.var() == pytest.approx(11.25, rel=0.5)
    assert abs(drawn[:80].sum() - 1_200) < 100


def test_changing_what_was_drawn_leaves_the_store_alone(sampled):
    first = draw(sampled.source, 3)
    first.metadata[0]["parity"] = "changed"
    first.embeddings[:] = 0
    again = draw(sampled.source, 3)
    assert again.metadata[0]["parity"] in (0, 1)
    np.testing.assert_allclose(np.linalg.norm(again.embeddings, axis=1), 1, atol=1e-5)


def test_refuses_a_number_of_documents_that_is_no_count(sampled):
    for n in (0, -3, 2.5, "5", None):
        with pytest.raises(InvalidInputError, match="`n_documents` must be"):
            draw(sampled.source, n)
    with pytest.raises(InvalidInputError, match=r"numpy\.random\.Generator, got int"):
        sampled.source.sample(3, 0)


def filled(kind, rows, folder):
    """Return a source over rows with the names d0, d1, ..., which may be none or broken."""
    documents = [Document(document_id=f"d{i}", text=f"Text {i}.") for i in range(len(rows))]
    if kind == "in memory":
        return InMemorySource(
            rows, [one.text for one in documents], document_ids=[o.document_id for o in documents]
        )
    if kind.startswith("faiss"):
        index = faiss.index_factory(rows.shape[1], kind.split()[1], faiss.METRIC_INNER_PRODUCT)
        index.train(np.eye(rows.shape[1], dtype=np.float32))
        index.add(rows)
        return FaissSource(index, documents)
    reader = PointReader()
    payloads = [reader.payload(one) for one in documents]
    client = qdrant_client.QdrantClient(":memory:")
    params = models.VectorParams(size=rows.shape[1], distance=models.Distance.DOT)
    client.create_collection("docs", vectors_config=params)
    if len(rows):
        client.upsert("docs", [
            models.PointStruct(id=i, vector=row.tolist(), payload=payloads[i])
            for i, row in enumerate(rows)
        ])  # fmt: skip
    return QdrantSource(client, "docs")


SOURCES = ["in memory", "faiss Flat", "faiss IVF2,Flat", "faiss HNSW8,Flat", "qdrant"]


@pytest.mark.parametrize("kind", SOURCES)
def test_an_empty_store_is_said_to_be_empty(kind, tmp_path):
    source = filled(kind, np.empty((0, 8), dtype=np.float32), tmp_path)
    with pytest.raises(InvalidInputError, match="no documents to sample in"):
        draw(source, 3)


@pytest.mark.parametrize("bad", [np.nan, np.inf], ids=["NaN", "infinity"])
@pytest.mark.parametrize("kind", ["faiss Flat", "faiss HNSW8,Flat", "qdrant"])
def test_a_vector_that_is_not_finite_is_refused_with_its_document(kind, bad, tmp_path):
    rows = np.eye(8, dtype=np.float32)
    rows[3] = bad
    try:
        source = filled(kind, rows, tmp_path)
    except ValueError:
        assert (kind, np.isnan(bad)) == ("qdrant", True)  # refuses it itself, as its server does
        return
    with pytest.raises(CandidateSourceError, match=r"'d3'.*NaN or infinity"):
        draw(source, 8)


def test_what_no_list_of_an_index_took_is_not_there(tmp_path):
    rows = np.eye(8, dtype=np.float32)
    rows[3] = np.nan  # Faiss counts it, and stores it in none of its lists
    sample = draw(filled("faiss IVF2,Flat", rows, tmp_path), 20)
    assert sorted(sample.document_ids) == [f"d{i}" for i in range(8) if i != 3]
    assert sample.n_stored == 7


@pytest.mark.parametrize(
    "make",
    [faiss.IndexFlatIP, lambda d: faiss.IndexHNSWFlat(d, 16, faiss.METRIC_INNER_PRODUCT)],
    ids=["flat", "graph"],
)
def test_deleted_documents_of_an_index_are_passed_over(corpus, tmp_path, make):
    source = FaissSource(make(stores.D), [], embedder_name="m")
    names = [f"c{i}" for i in range(stores.N)]
    source.add(names, corpus.documents, corpus.embeddings)
    source.remove(names[:120])
    for n in (20, stores.N):
        sample = draw(source, n)
        assert len(sample) == min(n, 40)
        assert sample.n_stored == 40
        rows = [corpus.ids.index(int(name)) for name in sample.document_ids]
        assert min(rows) >= 120
        np.testing.assert_allclose(sample.embeddings, corpus.embeddings[rows], atol=1e-6)


def test_a_draw_from_many_pages_and_requests_is_the_same(qdrant, monkeypatch):
    whole = draw(QdrantSource(qdrant, stores.NAME), 40)
    monkeypatch.setattr("sift_core.sources.qdrant.collection.IDS_A_PAGE", 30)
    monkeypatch.setattr("sift_core.sources.qdrant.collection.POINTS_A_REQUEST", 7)
    assert draw(QdrantSource(qdrant, stores.NAME), 40).document_ids == whole.document_ids


def test_where_there_are_too_many_points_the_server_draws(qdrant, monkeypatch):
    monkeypatch.setattr("sift_core.sources.qdrant.collection.MOST_LISTED", 100)
    sample = draw(QdrantSource(qdrant, stores.NAME), 20)
    assert len(set(sample.document_ids)) == 20
    assert not sample.is_seeded
    assert sample.n_stored == stores.N


def test_another_vector_name_is_named(qdrant):
    with pytest.raises(InvalidInputError, match="none is called 'other'"):
        draw(QdrantSource(qdrant, stores.NAME, vector_name="other"), 3)


def test_a_point_without_its_text_or_vector_is_named(qdrant):
    with pytest.raises(CandidateSourceError, match="has no text under 'body'"):
        draw(QdrantSource(qdrant, stores.NAME, text_key="body"), 3)
    client = qdrant_client.QdrantClient(":memory:")
    params = models.VectorParams(size=4, distance=models.Distance.DOT)
    client.create_collection("docs", vectors_config={"dense": params, "other": params})
    point = models.PointStruct(id=5, vector={"other": [1.0] * 4}, payload={"text": "one"})
    client.upsert("docs", [point])
    with pytest.raises(CandidateSourceError, match=r"point 5 of .* but not 'dense'"):
        draw(QdrantSource(client, "docs", vector_name="dense"), 3)
