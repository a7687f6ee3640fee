"""Entries whose ids are negative or unsigned: only its place tells a hit from no hit (issue 41)."""

import numpy as np
import pytest

faiss = pytest.importorskip("faiss")

from sift_core.errors import CandidateSourceError  # noqa: E402
from sift_core.protocols import Lookup  # noqa: E402
from sift_core.sources import FaissSource  # noqa: E402
from sift_core.sources.faiss import search_with_vectors, stored_vectors  # noqa: E402
from sift_core.types import Document, Query  # noqa: E402

N, D = 40, 8
# The ends of 64 bits, Faiss' own mark of "no hit" (-1), and negative ones.
IDS = np.array([-1, -7, -(1 << 62), -(1 << 63), (1 << 63) - 1, 0, *range(-134, -100)], np.int64)
ROWS = np.random.default_rng(0).standard_normal((N, D)).astype(np.float32)
ROWS /= np.linalg.norm(ROWS, axis=1, keepdims=True)
WORDS = [f"number{i}" for i in range(N)]
QUERY = Query(text="Which?", embedding=ROWS[0])
KINDS = ["IDMap,Flat", "IDMap2,Flat", "IDMap2,HNSW8,Flat", "IDMap2,RR8,Flat"]
KINDS += ["IVF4,Flat", "RR8,IVF4,Flat", "IDMap2,IVF4,Flat"]
LOSSY = ["IDMap2,SQ8", "IVF4,SQ8", "IDMap2,PQ4x4fs"]

pytestmark = pytest.mark.filterwarnings("ignore::sift_core.errors.LossyVectorsWarning")


def index_of(kind, metric=faiss.METRIC_INNER_PRODUCT):
    index = faiss.index_factory(D, kind, metric)
    index.train(ROWS)
    index.add_with_ids(ROWS, IDS)
    if (ivf := faiss.try_extract_index_ivf(index)) is not None:
        ivf.nprobe = 4
    return index


def source_of(index):
    rows = enumerate(WORDS)
    documents = [Document(document_id=text, text=text, metadata={"row": i}) for i, text in rows]
    return FaissSource(index, dict(zip(IDS.tolist(), documents, strict=True)))


def check(pool, rows, atol):
    """Each document with its own vector, none twice and none left out."""
    assert sorted(pool.texts) == sorted(WORDS[row] for row in rows)
    for text, vector in zip(pool.texts, pool.embeddings, strict=True):
        np.testing.assert_allclose(vector, ROWS[WORDS.index(text)], atol=atol)


def check_all(source, atol):
    check(source.fetch(QUERY, N + 3), range(N), atol)
    for pool in source.fetch_batch([QUERY, Query(text="", embedding=-ROWS[0])], N):
        check(pool, range(N), atol)
    check(source.fetch(QUERY, N, filter=lambda m: m["row"] % 3 == 0), range(0, N, 3), atol)
    check(source.fetch(QUERY, 9, filter=lambda m: m["row"] < 2), (0, 1), atol)  # few pass
    check(source.sample(N, np.random.default_rng(0)), range(N), atol)
    check(source.look_up(QUERY, [Lookup(words=["number2"], n_candidates=3)])[0], (2,), atol)


@pytest.mark.parametrize("kind", KINDS + LOSSY)
def test_each_document_comes_with_its_own_vector(kind, tmp_path):
    atol = 0.6 if kind in LOSSY else 1e-5  # PQ's codes are coarse, and yet another row is farther
    source = source_of(index_of(kind))
    check_all(source, atol)
    source.save(tmp_path)
    check_all(FaissSource.load(tmp_path), atol)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("metric", [faiss.METRIC_INNER_PRODUCT, faiss.METRIC_L2])
def test_entries_are_found_by_their_ids(kind, metric):
    index = index_of(kind, metric)
    np.testing.assert_allclose(stored_vectors(index, IDS), ROWS, atol=1e-5)
    assert search_with_vectors(index, ROWS[0], N).ids[0] == -1  # row 0 is the nearest to itself
    assert set(search_with_vectors(index, ROWS[0], N).ids.tolist()) == set(IDS.tolist())
    allowed = search_with_vectors(index, ROWS[0], 3, allowed=[-1, -7, 12345])  # no such third
    assert allowed.ids.tolist() == [-1, -7]
    np.testing.assert_allclose(allowed.embeddings, ROWS[:2], atol=1e-5)


@pytest.mark.parametrize("kind", ["IDMap2,Flat", "IVF4,Flat", "IDMap2,HNSW8,Flat"])
def test_documents_are_added_beside_the_largest_id_and_removed(kind):
    source = source_of(index_of(kind))  # 2^63 - 1 is taken, so that no larger id is left
    new = Document(document_id="new", text="new", metadata={"row": N})
    source.add(["a"], [new], ROWS[:1])
    source.add(["b"], [Document(document_id="newer", text="newer", metadata={"row": N})], ROWS[:1])
    first = next(key for key, each in source.documents().items() if each.text == WORDS[0])
    source.remove([first, "a"])
    assert set(source.fetch(QUERY, N + 3).texts) == {*WORDS[1:], "newer"}


@pytest.mark.parametrize("kind", ["IDMap2,Flat", "IVF1,Flat"])
def test_unsigned_ids_are_the_callers_own(kind):
    unsigned = np.array([2**64 - 7, 3, 2**63, 2**64 - 1], np.uint64)
    index = faiss.index_factory(D, kind, faiss.METRIC_INNER_PRODUCT)
    index.train(ROWS[:4])
    index.add_with_ids(ROWS[:4], unsigned.view(np.int64))  # as Faiss keeps them
    source = FaissSource(index, dict(zip(unsigned.tolist(), WORDS, strict=False)))
    for keep in (None, lambda metadata: True):
        pool = source.fetch(QUERY, 4, filter=keep)
        check(pool, range(4), 1e-5)
        assert set(pool.document_ids) == set(map(str, unsigned.tolist()))
    np.testing.assert_allclose(stored_vectors(index, unsigned), ROWS[:4], atol=1e-5)


def test_a_negative_id_counts_from_the_end_of_no_list():
    index = faiss.IndexIDMap2(faiss.IndexFlatIP(D))
    index.add_with_ids(ROWS[:2], np.array([0, -1], np.int64))
    with pytest.raises(CandidateSourceError, match="id -1, for which there is no document"):
        FaissSource(index, ["first", "second"]).fetch(QUERY, 2)
