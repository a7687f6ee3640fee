import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import pytest

faiss = pytest.importorskip("faiss")

from sift_core.errors import CandidateSourceError, InvalidInputError  # noqa: E402
from sift_core.sources import FaissSource  # noqa: E402
from sift_core.sources.faiss.entries import lossy_part  # noqa: E402
from sift_core.sources.faiss.search import (  # noqa: E402
    of_unit_length,
    search,
    search_with_vectors,
    stored_vectors,
)
from sift_core.types import Document, Query  # noqa: E402
from tests.sources.faiss_corpus import built, vectors  # noqa: E402

N, D, K = 300, 16, 25

EXACT = """
    Flat IDMap,Flat IDMap2,Flat HNSW16,Flat NSG16,Flat IVF4,Flat RR16,Flat RR16,IVF4,Flat
    L2norm,IVF4,Flat IDMap2,RR16,IVF4,Flat IDMap,HNSW16,Flat IDMap2,SQ8,RFlat IVF4,SQ8,RFlat
""".split()
LOSSY = {  # and the part that compresses
    "PQ4x4": "IndexPQ",
    "IDMap2,SQ8": "IndexScalarQuantizer",
    "IVF4,PQ4x4": "IndexIVFPQ",
    "HNSW16,SQ8": "IndexScalarQuantizer",
    "PCA8,Flat": "PCAMatrix",
    "RQ4x4": "IndexResidualQuantizer",
    "IVF4,RaBitQ": "IndexIVFRaBitQ",
    "SQ8,Refine(SQfp16)": "IndexScalarQuantizer",
}
OWN = ("IDMap", "IVF", "RR16,IVF", "L2norm,IVF")


def filled(description, metric=faiss.METRIC_INNER_PRODUCT):
    """Return an index that searches widely, and the row of `vectors` behind each id."""
    data, rows = serialized(description, metric)
    return faiss.deserialize_index(data), rows


@cache
def serialized(description, metric):
    has_ids = description.startswith(OWN) and not description.endswith("RFlat")
    has_ids |= description.startswith("IDMap")
    ids = 7 * np.arange(N)[::-1] + 1000 if has_ids else np.arange(N)
    index = built(description, N, metric=metric, ids=ids if has_ids else None, d=D)
    ivf = faiss.try_extract_index_ivf(index)
    if ivf is None and "RFlat" in description and description.startswith("IVF"):
        ivf = faiss.downcast_index(index.base_index)
    if ivf is not None:
        ivf.nprobe = 4
    rows = {int(key): row for row, key in enumerate(ids)}
    return faiss.serialize_index(index), rows


def rows_of(hits, rows):
    return np.array([[rows[key] for key in found] for found in hits.ids.tolist()])


def nearest(queries, k, metric, among=None):
    """Return the rows of the k nearest vectors, by a dense product or distance."""
    stored = vectors(N, D).astype(np.float64)
    distances = -queries @ stored.T
    if metric == faiss.METRIC_L2:
        distances = ((queries[:, None] - stored) ** 2).sum(axis=2)
    if among is not None:
        distances[:, np.setdiff1d(np.arange(N), among)] = np.inf
    return np.argsort(distances, axis=1)[:, :k]


QUERIES = 2 * vectors(3, D, seed=9)


@pytest.mark.parametrize("metric", [faiss.METRIC_INNER_PRODUCT, faiss.METRIC_L2], ids=["ip", "l2"])
@pytest.mark.parametrize("description", EXACT)
def test_an_exact_index_gives_the_nearest_vectors_as_they_were_added(description, metric):
    index, rows = filled(description, metric)
    hits = search(index, QUERIES, K)
    found = rows_of(hits, rows)
    expected = nearest(QUERIES, K, metric)
    # A graph, and a refined code, may miss a few; PCA moves the origin of inner products.
    recall = [len(np.intersect1d(*pair)) for pair in zip(found, expected, strict=True)]
    assert min(recall) >= (0.4 if "RFlat" in description else 0.85) * K
    np.testing.assert_allclose(hits.embeddings, vectors(N, D)[found], atol=1e-6)
    assert hits.embeddings.dtype == np.float32
    one = search_with_vectors(index, QUERIES[0], K)
    np.testing.assert_array_equal(one.ids, hits.ids[0])
    np.testing.assert_allclose(one.scores, hits.scores[0], rtol=1e-5)
    stored = stored_vectors(index, one.ids.tolist())
    np.testing.assert_allclose(stored, one.embeddings, atol=1e-6)
    for absent in (-1, 50_000):
        with pytest.raises(CandidateSourceError, match="belong together"):
            stored_vectors(index, [one.ids[0], absent])
    assert lossy_part(index) is None


@pytest.mark.parametrize("description", [*EXACT, *LOSSY])
def test_every_kind_can_be_restricted_to_some_ids(description):
    index, rows = filled(description)
    allowed = np.array(sorted(rows))[::6]  # 50 of 300
    hits = search(index, QUERIES, K, allowed=allowed)
    assert hits.ids.shape == (3, K)
    assert np.isin(hits.ids, allowed).all()
    assert all(len(set(found)) == K for found in hits.ids.tolist())
    few = search_with_vectors(index, QUERIES[0], 9, allowed=allowed[:3])
    assert sorted(few.ids) == allowed[:3].tolist()
    if description in EXACT:
        among = [rows[key] for key in allowed.tolist()]
        expected = nearest(QUERIES, K, faiss.METRIC_INNER_PRODUCT, among)
        np.testing.assert_array_equal(rows_of(hits, rows), expected)
        np.testing.assert_allclose(hits.embeddings, vectors(N, D)[expected], atol=1e-6)


@pytest.mark.parametrize("description", LOSSY)
def test_a_compressing_index_gives_back_something_near(description):
    index, rows = filled(description)
    hits = search(index, QUERIES, K)
    originals = vectors(N, D)[rows_of(hits, rows)]
    cosines = (of_unit_length(hits.embeddings) * originals).sum(axis=2)
    assert cosines.mean() > 0.6
    assert lossy_part(index) == LOSSY[description]


def test_settings_of_an_ivf_index_hold_when_it_is_restricted():
    index, rows = filled("IVF4,PQ4x4")
    every = np.array(sorted(rows))
    index.nprobe = 1
    few = search(index, QUERIES, N, allowed=every)
    assert ((few.ids >= 0).sum(axis=1) < N).all()
    np.testing.assert_array_equal(few.ids, index.search(QUERIES, N)[1])
    index.nprobe = 4
    assert (search(index, QUERIES, N, allowed=every).ids >= 0).all()


def test_a_graph_with_a_narrow_beam_fills_the_list(monkeypatch):
    index, _ = filled("HNSW16,Flat")
    assert index.hnsw.efSearch == 16
    _, all_ids = index.search(QUERIES, N)
    assert (all_ids < 0).any()  # what Faiss does by itself
    for k in (200, N):
        hits = search(index, QUERIES, k)
        expected = nearest(QUERIES, k, faiss.METRIC_INNER_PRODUCT)
        assert (hits.ids >= 0).all()
        recall = np.mean([len(np.intersect1d(*p)) for p in zip(hits.ids, expected, strict=True)])
        assert recall >= 0.98 * k
    assert index.hnsw.efSearch == 16
    monkeypatch.setattr("sift_core.sources.faiss.search.GRAPHS", ())
    assert (search(index, QUERIES, 200).ids >= 0).all()  # without comparing all vectors


def test_a_graph_whose_nodes_nothing_leads_to_is_left_aside():
    index = faiss.IndexHNSWFlat(D, 4, faiss.METRIC_INNER_PRODUCT)
    index.add(vectors(N, D))
    links = faiss.vector_to_array(index.hnsw.neighbors)
    faiss.copy_array_to_vector(np.full_like(links, -1), index.hnsw.neighbors)
    assert (search(index, QUERIES, 9).ids == nearest(QUERIES, 9, faiss.METRIC_INNER_PRODUCT)).all()


def test_an_id_map_whose_change_was_interrupted_is_not_searched():
    index, _ = filled("IDMap,Flat")
    faiss.downcast_index(index.index).add(vectors(1, D))
    with pytest.raises(
        CandidateSourceError, match=rf"holds {N} ids for {N + 1} vectors.*interrupted"
    ):
        search(index, QUERIES, 3)


class GpuIndexFlat(faiss.IndexFlatIP):
    """Stands for one that faiss-gpu has: by its name, its limit, and one search at a time."""

    n_inside = 0

    def search_and_reconstruct(self, queries, k):
        assert k <= 2048, "getMaxKSelection"
        self.n_inside += 1
        assert self.n_inside == 1
        found = super().search_and_reconstruct(queries, k)
        self.n_inside -= 1
        return found


def test_an_index_on_a_gpu_is_searched_by_one_thread_and_neither_changed_nor_saved(tmp_path):
    index = GpuIndexFlat(D)
    rows = np.random.default_rng(0).standard_normal((3000, D)).astype(np.float32)
    index.add(rows)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        source = FaissSource(index, [str(i) for i in range(3000)])
    queries = [Query(text="?", embedding=row) for row in rows[:32]]
    with ThreadPoolExecutor(8) as executor:
        pools = list(executor.map(lambda query: source.fetch(query, 5), queries))
    assert all(len(pool) == 5 for pool in pools)
    assert len(source.fetch(queries[0], 2900)) == 2048
    for change in (
        lambda: source.add(["x"], [Document(document_id="x", text="x")], rows[:1]),
        lambda: source.save(tmp_path / "index"),
    ):
        with pytest.raises(InvalidInputError, match=r"on a GPU.*faiss\.index_gpu_to_cpu"):
            change()
    assert not (tmp_path / "index").exists()


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (faiss.index_factory(D, "IDMap,RR16,IVF4,PQ4x4fs"), "put IndexRefineFlat around it"),
        (faiss.IndexBinaryFlat(8), "must hold vectors of floats"),
        ("index.faiss", "must be a Faiss index, got str"),
    ],
)
def test_what_cannot_give_vectors_of_floats_back_is_refused(index, message):
    with pytest.raises(InvalidInputError, match=message):
        FaissSource(index, [])
