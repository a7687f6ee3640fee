import numpy as np
import pytest

from sift_core.candidates import FaissSource
from sift_core.errors import CandidateSourceError, InvalidInputError
from sift_core.types import Document, Query

faiss = pytest.importorskip("faiss")

D = 8


def vectors(n):
    return np.random.default_rng(0).standard_normal((n, D)).astype(np.float32)


def documents(n):
    return [
        Document(document_id=f"doc-{i}", text=f"text {i}", metadata={"even": i % 2 == 0})
        for i in range(n)
    ]


def built(description, n=100):
    index = faiss.index_factory(D, description)
    index.train(vectors(n))
    index.add(vectors(n))
    return index


QUERY = Query(text="?", embedding=vectors(3)[2])


def is_even(metadata):
    return metadata["even"]


def test_orders_by_the_index_metric_and_states_cosines():
    # To (2, 0): (10, 0) has cosine 1 at distance 8, (2, 2) has cosine 0.7071 at distance 2.
    index = faiss.IndexFlatL2(2)
    index.add(np.float32([[10, 0], [2, 2]]))
    source = FaissSource(index, documents(2))
    pool = source.fetch(Query(text="?", embedding=[2.0, 0.0]), 2)
    assert pool.document_ids == ("doc-1", "doc-0")
    assert pool.similarities == pytest.approx([0.5**0.5, 1])
    assert pool.embeddings.tolist() == [[2, 2], [10, 0]]


def test_an_ivf_index_needs_a_direct_map_only_for_a_filter():
    index = built("IVF2,Flat")
    source = FaissSource(index, documents(100))
    assert source.fetch(QUERY, 1).document_ids == ("doc-2",)
    with pytest.raises(CandidateSourceError, match=r"with a filter.*for IVF a direct map"):
        source.fetch(QUERY, 1, filter=is_even)
    index.make_direct_map()
    assert source.fetch(QUERY, 1, filter=is_even).document_ids == ("doc-2",)


def test_a_filtered_search_keeps_the_settings_of_the_index():
    index = built("IVF10,Flat")
    index.make_direct_map()
    source = FaissSource(index, documents(100))
    index.nprobe = 1
    few = source.fetch(QUERY, 100, filter=is_even)
    index.nprobe = 10
    assert len(few) < len(source.fetch(QUERY, 100, filter=is_even)) == 50


def test_an_index_that_compresses_gives_back_what_it_kept():
    source = FaissSource(built("SQ8"), documents(100))
    pool = source.fetch(QUERY, 5)
    assert pool.document_ids[0] == "doc-2"
    np.testing.assert_allclose(pool.embeddings[0], QUERY.embedding, atol=0.05)


def test_an_index_that_cannot_filter_says_so():
    source = FaissSource(built("PQ4x4"), documents(100))
    assert len(source.fetch(QUERY, 5)) == 5
    with pytest.raises(
        CandidateSourceError, match=r"IndexPQ could not search with a filter.*params"
    ):
        source.fetch(QUERY, 5, filter=is_even)


def test_index_id_map_cannot_return_vectors():
    index = faiss.IndexIDMap(faiss.IndexFlatIP(D))
    index.add_with_ids(vectors(5), np.arange(5))
    source = FaissSource(index, documents(5))
    for options in ({}, {"filter": is_even}):
        with pytest.raises(CandidateSourceError, match="IndexIDMap2 instead of IndexIDMap") as info:
            source.fetch(QUERY, 1, **options)
        assert isinstance(info.value.__cause__, RuntimeError)


@pytest.mark.parametrize("shorter", [documents(4), dict(enumerate(documents(4)))])
def test_refuses_fewer_documents_than_vectors(shorter):
    with pytest.raises(InvalidInputError, match="holds 5 vectors but there are 4 `documents`"):
        FaissSource(built("Flat", 5), shorter)


def test_an_index_that_grew_without_its_documents():
    index = built("Flat", 5)
    source = FaissSource(index, documents(5))
    index.add(QUERY.embedding[None] * 1.0001)
    with pytest.raises(CandidateSourceError, match="returned id 5, for which there is no document"):
        source.fetch(QUERY, 6)


def test_ids_of_ones_own_that_the_documents_do_not_know():
    index = faiss.IndexIDMap2(faiss.IndexFlatL2(D))
    index.add_with_ids(vectors(5), np.arange(5) + 10)
    source = FaissSource(index, dict(enumerate(documents(5))))
    with pytest.raises(
        CandidateSourceError, match="returned id 12, for which there is no document"
    ):
        source.fetch(QUERY, 1)


def test_no_documents():
    with pytest.raises(InvalidInputError, match="no documents to fetch from; add some first"):
        FaissSource(faiss.IndexFlatIP(D), []).fetch(QUERY, 1)


def test_an_index_that_is_emptied_between_two_calls():
    index = built("Flat", 5)
    source = FaissSource(index, documents(5))
    assert len(source.fetch(QUERY, 9)) == 5
    index.reset()
    with pytest.raises(InvalidInputError, match="no documents to fetch from"):
        source.fetch(QUERY, 9)


def test_another_dimension_names_both():
    with pytest.raises(InvalidInputError, match="query has 3 dimensions, the store has 8"):
        FaissSource(built("Flat", 5), documents(5)).fetch(Query(text="?", embedding=np.ones(3)), 1)
