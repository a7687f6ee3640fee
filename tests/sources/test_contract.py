"""What every source promises, checked against exact search in memory: values and order.

Each test runs for every kind of store, called and awaited.
"""

import numpy as np
import pytest

from sift_core.errors import InvalidInputError, SiftError
from sift_core.protocols import BatchCandidateSource, CandidateSource
from tests.sources.stores import is_even


def assert_same(store, pool, expected):
    """Assert that all columns agree; an approximate store may miss documents, no more."""
    kept = [i for i, name in enumerate(expected.document_ids) if name in pool.document_ids]
    assert len(kept) >= store.recall * len(expected)
    if store.recall < 1:  # beyond the first miss, a store has room for others
        pool = pool.take([pool.document_ids.index(expected.document_ids[i]) for i in kept])
    expected = expected.take(kept)
    assert pool.document_ids == expected.document_ids
    assert pool.texts == expected.texts
    assert pool.metadata == expected.metadata
    assert pool.relevance is None
    if not store.is_lossy:
        np.testing.assert_allclose(pool.embeddings, expected.embeddings, rtol=0, atol=1e-6)
        np.testing.assert_allclose(pool.similarities, expected.similarities, rtol=0, atol=1e-6)


def test_follows_the_protocol(store):
    assert isinstance(store.source, CandidateSource)
    assert isinstance(store.source, BatchCandidateSource)
    assert store.source.embedder_name == "model-a"


@pytest.mark.parametrize("n_candidates", [1, 7, 50])
def test_fetches_what_exact_search_finds_in_the_same_order(store, corpus, reference, n_candidates):
    n_found = 0
    for seed in range(4):
        query = corpus.query(seed)
        expected = reference.fetch(query, n_candidates)
        pool = store.fetch(query, n_candidates)
        assert len(pool) == n_candidates
        assert pool.embeddings.dtype == pool.similarities.dtype == np.float32
        np.testing.assert_allclose(np.linalg.norm(pool.embeddings, axis=1), 1, atol=1e-5)
        assert store.is_lossy or (np.diff(pool.similarities) <= 1e-6).all()
        n_found += len(set(pool.document_ids) & set(expected.document_ids))
        if store.recall == 1 or n_candidates == 50:  # a recall needs some documents
            assert_same(store, pool, expected)
    assert n_found >= store.recall * 4 * n_candidates


def test_similarities_are_cosines_by_hand(store, corpus):
    query = corpus.query(5)
    pool = store.fetch(query, 10)
    q = query.embedding.astype(float)
    for i in range(10):
        x = pool.embeddings[i].astype(float)
        cosine = (q @ x) / (q @ q) ** 0.5 / (x @ x) ** 0.5
        assert pool.similarities[i] == pytest.approx(cosine, abs=1e-6)


def test_returns_all_when_the_store_is_small(store, corpus, reference):
    pool = store.fetch(corpus.query(), 10_000)
    assert_same(store, pool, reference.fetch(corpus.query(), 10_000))
    assert len(set(pool.document_ids)) == len(pool) <= len(corpus.ids)


def test_a_batch_is_what_its_queries_are_one_by_one(store, corpus):
    queries = [corpus.query(seed) for seed in (0, 1, 0, 2)]
    pools = store.fetch_batch(queries, 9)
    assert len(pools) == 4
    for query, pool in zip(queries, pools, strict=True):
        alone = store.fetch(query, 9)
        assert pool.document_ids == alone.document_ids
        assert pool.texts == alone.texts
        assert pool.metadata == alone.metadata
        np.testing.assert_allclose(pool.embeddings, alone.embeddings, rtol=0, atol=1e-6)
        np.testing.assert_allclose(pool.similarities, alone.similarities, rtol=0, atol=1e-6)


def test_a_filter_in_the_stores_own_form_gives_the_same_documents(store, corpus, reference):
    for seed in range(3):
        query = corpus.query(seed)
        pool = store.fetch(query, 40, filter=store.even)
        assert_same(store, pool, reference.fetch(query, 40, filter=is_even))
        assert all(is_even(metadata) for metadata in pool.metadata)


def test_a_filter_that_excludes_all_gives_an_empty_pool(store, corpus):
    pool = store.fetch(corpus.query(), 12, filter=store.nothing)
    assert len(pool) == 0
    assert pool.embeddings.shape == (0, 16)


def test_changing_what_was_fetched_leaves_the_store_alone(store, corpus):
    query = corpus.query()
    first = store.fetch(query, 3)
    first.metadata[0]["parity"] = "changed"
    first.embeddings[:] = 0
    first.similarities[:] = 0
    again = store.fetch(query, 3)
    assert again.metadata[0]["parity"] in (0, 1)
    np.testing.assert_allclose(np.linalg.norm(again.embeddings, axis=1), 1, atol=1e-5)
    assert (again.similarities != 0).all()


def test_refuses_a_query_of_another_embedder(store, corpus):
    assert len(store.fetch(corpus.query(embedder_name="model-a"), 1)) == 1
    assert len(store.fetch(corpus.query(embedder_name=None), 1)) == 1
    other = corpus.query(embedder_name="model-b")
    with pytest.raises(InvalidInputError, match="'model-b', the store by 'model-a'; embed"):
        store.fetch(other, 1)
    with pytest.raises(InvalidInputError, match="'model-b', the store by 'model-a'"):
        store.fetch_batch([corpus.query(), other], 3)


def test_refuses_a_number_of_candidates_that_is_no_count(store, corpus):
    for n_candidates in (0, -3, 2.5, "5", None):
        with pytest.raises(InvalidInputError, match="`n_candidates` must be"):
            store.fetch(corpus.query(), n_candidates)


@pytest.mark.parametrize("d", [3, 17])
def test_refuses_a_query_of_another_dimension(store, corpus, d):
    with pytest.raises(SiftError, match=rf"{d} (dimensions|numbers).*one model"):
        store.fetch(corpus.query(embedding=np.ones(d)), 1)


def test_refuses_the_filter_of_another_kind_of_store(store, corpus):
    with pytest.raises(InvalidInputError, match="`filter` must be"):
        store.fetch(corpus.query(), 1, filter={"parity": 0})
