import asyncio

import numpy as np
import pytest

from sift_core.errors import CandidateSourceError, InvalidInputError, LossyVectorsWarning
from sift_core.sources import FaissSource
from sift_core.types import Query

faiss = pytest.importorskip("faiss")

from tests.sources.faiss_corpus import (  # noqa: E402  # needs faiss
    built,
    documents,
    elsewhere,
    query,
    vectors,
)


def is_even(metadata):
    return metadata["even"]


class Counting:
    """A filter that counts its calls."""

    def __init__(self, rule):
        self.rule, self.n_calls = rule, 0

    def __call__(self, metadata):
        self.n_calls += 1
        return self.rule(metadata)


def recorded(index):
    """Return a list that grows by (number of queries, number of hits) with every search."""
    searches, bare = [], index.search_and_reconstruct

    def search_and_reconstruct(x, k, **options):
        searches.append((len(x), k))
        return bare(x, k, **options)

    index.search_and_reconstruct = search_and_reconstruct
    return searches


def ranked(n, wanted, keep=lambda i: True):
    """Return the document ids that exact search finds for `elsewhere()`."""
    similarities = vectors(n) @ elsewhere().embedding
    return tuple(f"doc-{i}" for i in np.argsort(-similarities) if keep(i))[:wanted]


def test_orders_by_the_index_metric_and_states_cosines():
    # To (2, 0): (10, 0) has cosine 1 at distance 8, (2, 2) has cosine 0.7071 at distance 2.
    index = faiss.IndexFlatL2(2)
    index.add(np.float32([[10, 0], [2, 2]]))
    source = FaissSource(index, documents(2))
    pool = source.fetch(Query(text="?", embedding=[2.0, 0.0]), 2)
    assert pool.document_ids == ("doc-1", "doc-0")
    assert pool.similarities == pytest.approx([0.5**0.5, 1])
    assert pool.embeddings.tolist() == [[2, 2], [10, 0]]


@pytest.mark.parametrize(
    ("period", "most_calls"),
    [(1, 40), (2, 40), (20, 1600), (200, 4000)],
    ids=["all pass", "half pass", "few pass", "hardly any pass"],
)
@pytest.mark.parametrize("description", ["Flat", "IDMap,Flat", "HNSW16,Flat"])
def test_a_filter_gives_the_nearest_that_pass_at_a_cost_that_its_selectivity_sets(
    description, period, most_calls
):
    n = 2000
    index = built(description, n, ids=np.arange(n) if description.startswith("ID") else None)
    keep = Counting(lambda metadata: metadata["number"] % period == 0)
    pool = FaissSource(index, documents(n)).fetch(elsewhere(), 10, filter=keep)
    assert pool.document_ids == ranked(n, 10, lambda i: i % period == 0)
    assert keep.n_calls <= most_calls


def test_an_error_of_the_filter_comes_through():
    source = FaissSource(built("Flat"), documents(100))
    with pytest.raises(KeyError, match="absent"):
        source.fetch(query(), 1, filter=lambda metadata: metadata["absent"])


@pytest.mark.parametrize("description", ["SQ8", "HNSW16,SQ8", "PCA4,Flat"])
def test_an_index_that_compresses_warns_once_and_gives_unit_vectors(description):
    index = built(description)
    with pytest.warns(LossyVectorsWarning, match="IndexRefineFlat") as caught:
        source = FaissSource(index, documents(100))
    assert [warning.filename for warning in caught] == [__file__]
    pool = source.fetch(query(), 5)  # any further warning is an error
    source.fetch(query(), 5, filter=is_even)
    np.testing.assert_allclose(np.linalg.norm(pool.embeddings, axis=1), 1, atol=1e-6)
    _, _, stored = index.search_and_reconstruct(query().embedding[None], 5)
    expected = stored[0] / np.linalg.norm(stored[0], axis=1, keepdims=True)
    np.testing.assert_allclose(pool.embeddings, expected, atol=1e-6)


def test_documents_may_be_plain_texts():
    texts = ["zero", "one", "two"]
    for kept in (texts, tuple(texts), dict(enumerate(texts)), ["zero", *documents(2)[1:], "two"]):
        pool = FaissSource(built("Flat", 3), kept).fetch(query(), 1)
        assert pool.document_ids == ("2",)
        assert pool.texts == ("two",)
        assert pool.metadata == ({},)


@pytest.mark.parametrize(
    ("kept", "message"),
    [
        (42, "must be a sequence or a mapping"),
        ("text", "must be a sequence or a mapping"),
        (documents(4), "holds 5 vectors but there are 4 `documents`"),
        (dict(enumerate(documents(4))), "holds 5 vectors but there are 4 `documents`"),
    ],
)
def test_refuses_documents_that_are_none_or_too_few(kept, message):
    with pytest.raises(InvalidInputError, match=message):
        FaissSource(built("Flat", 5), kept)


def test_a_batch_is_one_search():
    index = built("Flat")
    source = FaissSource(index, documents(100))
    queries = [query(i) for i in range(7)]
    searches = recorded(index)
    source.fetch_batch(queries, 4)
    asyncio.run(source.afetch_batch(queries, 4))
    assert searches == [(7, 4), (7, 4)]
    assert source.fetch_batch([], 4) == []


def test_an_index_that_grew_without_its_documents():
    index = built("Flat", 5)
    source = FaissSource(index, documents(5))
    index.add(query().embedding[None] * 1.0001)
    with pytest.raises(CandidateSourceError, match="returned id 5, for which there is no document"):
        source.fetch(query(), 6)


def test_an_index_that_cannot_give_vectors_back_says_so():
    source = FaissSource(built("IVF2,FlatDedup", metric=faiss.METRIC_L2), documents(100))
    with pytest.raises(CandidateSourceError, match="IndexIVFFlatDedup of 100 vectors") as info:
        source.fetch(query(), 1)
    assert isinstance(info.value.__cause__, RuntimeError)
