import faiss
import numpy as np
import pytest
from qdrant_client import QdrantClient, models

from sift_core.candidates import FaissSource, QdrantSource
from sift_core.diagnosis import qdrant_chunks
from sift_core.diagnosis.faiss_chunks import sample_faiss
from sift_core.diagnosis.qdrant_chunks import sample_qdrant
from sift_core.errors import CandidateSourceError, InvalidInputError
from sift_core.types import Document
from tests.diagnosis.collections import orthogonal

N = 200


def unit_rows():
    rows = np.random.default_rng(0).normal(size=(N, 32)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def documents():
    return [Document(document_id=f"d{i}", text=f"Text {i}.", metadata={"i": i}) for i in range(N)]


def faiss_index(kind, rows):
    index = faiss.index_factory(32, kind, faiss.METRIC_INNER_PRODUCT)
    index.train(rows)
    index.add(rows)
    return index


def qdrant_source(rows):
    client = QdrantClient(":memory:")
    params = models.VectorParams(size=rows.shape[1], distance=models.Distance.DOT)
    client.create_collection("docs", vectors_config=params)
    points = [
        models.PointStruct(id=i, vector=row.tolist(), payload={"text": f"Text {i}.", "i": i})
        for i, row in enumerate(rows)
    ]
    if points:
        client.upsert("docs", points)
    return QdrantSource(client, "docs")


def draw(source, n, seed=0):
    sample = sample_faiss if isinstance(source, FaissSource) else sample_qdrant
    return sample(source, n, np.random.default_rng(seed))


def sources():
    kinds = ["Flat", "IVF4,Flat", "HNSW16,Flat", "PCAR32,Flat"]
    made = {
        kind: lambda kind=kind: FaissSource(faiss_index(kind, unit_rows()), documents())
        for kind in kinds
    }
    return {**made, "qdrant": lambda: qdrant_source(unit_rows())}


@pytest.mark.parametrize("make", sources().values(), ids=sources())
def test_a_sample_has_every_chunk_with_its_own_text_and_vector(make):
    sample = draw(make(), N)
    assert len(sample) == sample.n_stored == N
    numbers = [metadata["i"] for metadata in sample.metadata]
    assert sorted(numbers) == list(range(N))
    assert numbers != sorted(numbers)
    assert sample.texts == type(sample.texts)(f"Text {i}." for i in numbers)
    np.testing.assert_allclose(sample.embeddings, unit_rows()[numbers], atol=1e-5)


@pytest.mark.parametrize("make", sources().values(), ids=sources())
def test_a_seed_draws_the_same_chunks_again_and_another_seed_others(make):
    source = make()
    first, again, other = (list(draw(source, 30, seed).document_ids) for seed in (0, 0, 1))
    assert first == again
    assert len(set(first)) == 30
    assert set(first) != set(other)


@pytest.mark.parametrize("make", [sources()["Flat"], sources()["qdrant"]], ids=["faiss", "qdrant"])
def test_every_chunk_is_drawn_equally_often(make, monkeypatch):
    monkeypatch.setattr(qdrant_chunks, "_IDS_A_PAGE", 30)  # several pages
    source = make()
    counts = np.zeros(N)
    for seed in range(100):
        for metadata in draw(source, 20, seed).metadata:
            counts[metadata["i"]] += 1
    # Each is drawn 10 times in the mean; a binomial count has a variance of 9.
    assert counts.sum() == 2_000
    assert counts.var() == pytest.approx(9, rel=0.4)
    assert abs(counts[:100].sum() - 1_000) < 120


def test_own_ids_and_deleted_documents_of_a_saved_index_are_respected(tmp_path):
    FaissSource(faiss.IndexFlatIP(32), [], embedder_name="m").save(tmp_path)
    source = FaissSource.load(tmp_path)
    names = [f"c{i}" for i in range(N)]
    source.add(names, documents(), unit_rows())
    source.remove(names[:150])
    sample = draw(source, N)
    assert sample.n_stored == 50
    assert sorted(metadata["i"] for metadata in sample.metadata) == list(range(150, N))


def test_deleted_documents_of_a_graph_are_passed_over(tmp_path):
    FaissSource(faiss.IndexHNSWFlat(32, 16, faiss.METRIC_INNER_PRODUCT), []).save(tmp_path)
    source = FaissSource.load(tmp_path)
    names = [f"c{i}" for i in range(N)]
    source.add(names, documents(), unit_rows())
    source.remove(names[:150])
    sample = draw(source, 20)
    assert len(sample) == 20
    assert min(metadata["i"] for metadata in sample.metadata) >= 150


def test_where_there_are_too_many_points_the_server_draws(monkeypatch):
    monkeypatch.setattr(qdrant_chunks, "MOST_LISTED", 100)
    sample = draw(qdrant_source(unit_rows()), 20)
    assert len(set(sample.document_ids)) == 20
    assert not sample.is_seeded
    assert sample.n_stored == N


@pytest.mark.parametrize(
    "make",
    [lambda: FaissSource(faiss.IndexFlatIP(32), []), lambda: qdrant_source(np.empty((0, 32)))],
    ids=["faiss", "qdrant"],
)
def test_an_empty_store_is_said_to_be_empty(make):
    with pytest.raises(InvalidInputError, match="the store is empty"):
        draw(make(), 10)


@pytest.mark.parametrize("bad", [np.nan, 0.0], ids=["NaN", "zeros"])
def test_a_vector_that_cannot_be_compared_is_named(bad):
    rows = unit_rows()
    rows[7] = bad
    with pytest.raises(CandidateSourceError, match="d7"):
        draw(FaissSource(faiss_index("Flat", rows), documents()), N)


def test_a_dead_client_is_an_error_of_the_store():
    source = qdrant_source(unit_rows())
    source._client.close()
    with pytest.raises(CandidateSourceError, match="sample"):
        draw(source, 10)


@pytest.mark.filterwarnings("ignore::sift_core.errors.LossyVectorsWarning")
def test_a_fast_scan_index_is_refused_with_advice():
    index = faiss_index("IVF4,PQ16x4fs", np.tile(unit_rows(), (5, 1)))
    with pytest.raises(InvalidInputError, match="an index of another type"):
        draw(FaissSource(index, documents() * 5), 10)


def test_orthogonal_rows_are_what_they_say():
    rows = orthogonal(50)
    np.testing.assert_allclose(rows @ rows.T, np.eye(50), atol=1e-5)
