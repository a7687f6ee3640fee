"""What every source promises, checked against exact search in memory: values and order."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from sift_core.errors import InvalidInputError, SiftError
from sift_core.protocols import CandidateSource


def is_even(metadata):
    return metadata["parity"] == 0


def assert_same(pool, expected, recall=1.0):
    """Assert that all columns agree; an approximate store may miss documents, no more."""
    kept = [i for i, name in enumerate(expected.document_ids) if name in pool.document_ids]
    assert len(kept) >= recall * len(expected)
    if recall < 1:
        n = len(kept)  # beyond the first miss, a store has room for others
        pool = pool.take([pool.document_ids.index(expected.document_ids[i]) for i in kept])
        assert len(pool) == n
    expected = expected.take(kept)
    assert pool.document_ids == expected.document_ids
    assert pool.texts == expected.texts
    assert pool.metadata == expected.metadata
    np.testing.assert_allclose(pool.embeddings, expected.embeddings, rtol=0, atol=1e-6)
    np.testing.assert_allclose(pool.similarities, expected.similarities, rtol=0, atol=1e-6)


def test_follows_the_protocol(store):
    assert isinstance(store.source, CandidateSource)
    assert store.source.embedder_name == "model-a"


@pytest.mark.parametrize("n_candidates", [1, 7, 50])
def test_fetches_what_exact_search_finds_in_the_same_order(store, corpus, reference, n_candidates):
    for seed in range(4):
        query = corpus.query(seed)
        expected = reference.fetch(query, n_candidates)
        pool = store.fetch(query, n_candidates)
        assert len(pool) == n_candidates
        assert (np.diff(pool.similarities) <= 1e-6).all()
        assert_same(pool, expected, store.recall)


def test_columns_have_the_promised_types(store, corpus):
    pool = store.fetch(corpus.query(), 5)
    assert pool.embeddings.dtype == np.float32
    assert pool.embeddings.shape == (5, 16)
    assert pool.similarities.dtype == np.float32
    assert pool.similarities.shape == (5,)
    assert all(type(name) is str for name in pool.document_ids)
    assert all(type(text) is str for text in pool.texts)


def test_every_row_is_one_document(store, corpus):
    pool = store.fetch(corpus.query(3), 20)
    for i in range(len(pool)):
        row = corpus.ids.index(int(pool.document_ids[i]))
        assert pool.texts[i] == corpus.texts[row]
        assert pool.metadata[i] == corpus.metadata[row]
        np.testing.assert_allclose(pool.embeddings[i], corpus.embeddings[row], atol=1e-6)


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
    assert_same(pool, reference.fetch(corpus.query(), 10_000), store.recall)
    assert len(set(pool.document_ids)) == len(pool) <= len(corpus.ids)


def test_a_filter_in_the_stores_own_form_gives_the_same_documents(store, corpus, reference):
    for seed in range(3):
        query = corpus.query(seed)
        pool = store.fetch(query, 12, filter=store.even)
        assert_same(pool, reference.fetch(query, 12, filter=is_even), store.recall)
        assert all(is_even(metadata) for metadata in pool.metadata)


def test_a_filter_that_excludes_all_gives_an_empty_pool(store, corpus):
    pool = store.fetch(corpus.query(), 12, filter=store.nothing)
    assert len(pool) == 0
    assert pool.embeddings.shape == (0, 16)


def test_fetching_and_awaiting_agree(store, corpus):
    query = corpus.query(2)
    for options in ({}, {"filter": store.even}):
        assert_same(store.afetch(query, 9, **options), store.fetch(query, 9, **options))


@pytest.mark.parametrize("dtype", [np.float64, np.float16, list])
def test_a_query_may_hold_any_kind_of_number(store, corpus, reference, dtype):
    embedding = np.rint(corpus.query().embedding * 8)  # exact in every type
    query = corpus.query(embedding=embedding.tolist() if dtype is list else dtype(embedding))
    expected = reference.fetch(corpus.query(embedding=embedding), 6)
    assert_same(store.fetch(query, 6), expected, store.recall)


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


def test_the_query_is_not_modified(store, corpus):
    query = corpus.query()
    before = query.embedding.copy()
    query.embedding.flags.writeable = False
    store.fetch(query, 3)
    np.testing.assert_array_equal(query.embedding, before)


def test_eight_threads_on_one_source_equal_one(store, corpus):
    queries = [corpus.query(seed) for seed in range(24)]
    serial = [store.fetch(query, 5) for query in queries]
    with ThreadPoolExecutor(8) as executor:
        parallel = list(executor.map(lambda query: store.fetch(query, 5), queries))
    for one, other in zip(serial, parallel, strict=True):
        assert_same(one, other)


def test_refuses_a_query_of_another_embedder(store, corpus):
    assert len(store.fetch(corpus.query(embedder_name="model-a"), 1)) == 1
    assert len(store.fetch(corpus.query(embedder_name=None), 1)) == 1
    with pytest.raises(InvalidInputError, match="'model-b', the store by 'model-a'; embed"):
        store.fetch(corpus.query(embedder_name="model-b"), 1)
    with pytest.raises(InvalidInputError, match="'model-b', the store by 'model-a'; embed"):
        store.afetch(corpus.query(embedder_name="model-b"), 1)


@pytest.mark.parametrize("n_candidates", [0, -3, 2.5, "5", None])
def test_refuses_a_number_of_candidates_that_is_no_count(store, corpus, n_candidates):
    with pytest.raises(InvalidInputError, match="`n_candidates` must be"):
        store.fetch(corpus.query(), n_candidates)


def test_takes_a_numpy_integer_for_the_number_of_candidates(store, corpus):
    assert len(store.fetch(corpus.query(), np.int32(4))) == 4


@pytest.mark.parametrize("d", [3, 17])
def test_refuses_a_query_of_another_dimension(store, corpus, d):
    with pytest.raises(SiftError, match=rf"{d} (dimensions|numbers).*(one model|dimension right)"):
        store.fetch(corpus.query(embedding=np.ones(d)), 1)


def test_refuses_the_filter_of_another_kind_of_store(store, corpus):
    with pytest.raises(InvalidInputError, match="`filter` must be"):
        store.fetch(corpus.query(), 1, filter={"parity": 0})
