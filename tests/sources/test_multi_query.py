"""One pool for several queries: each document once, asked for in one batch."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from sift_core import ChoiceOptions, ContextSelector, asearch, cosine_similarities, search
from sift_core.errors import InvalidInputError
from sift_core.sources import InMemorySource
from sift_core.sources.multi_query import afetch_for_all, fetch_for_all, queries_of
from sift_core.testing import HashingEmbedder
from sift_core.types import CandidatePool, Query


class Counting:
    """A source that notes how it was asked; with batches or without."""

    def __init__(self, source, relevance=None):
        self.source, self.asked, self.relevance = source, [], relevance

    def fetch(self, query, n_candidates, *, filter=None):
        self.asked.append((query.text, n_candidates, filter))
        pool = self.source.fetch(query, n_candidates)
        if self.relevance is None:
            return pool
        columns = {name: getattr(pool, name) for name in ("document_ids", "texts", "embeddings")}
        relevance = self.relevance[: len(pool)]
        return CandidatePool(**columns, similarities=pool.similarities, relevance=relevance)

    async def afetch(self, query, n_candidates, *, filter=None):
        return self.fetch(query, n_candidates, filter=filter)


class CountingBatches(Counting):
    def fetch_batch(self, queries, n_candidates, *, filter=None):
        self.asked.append(tuple(query.text for query in queries))
        return self.source.fetch_batch(queries, n_candidates)

    async def afetch_batch(self, queries, n_candidates, *, filter=None):
        return self.fetch_batch(queries, n_candidates)


@pytest.fixture
def store():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((60, 8)).astype(np.float32)
    return InMemorySource(
        document_ids=[str(i) for i in range(60)],
        texts=[f"text {i}" for i in range(60)],
        embeddings=rows,
    )


def query(n=2):
    vectors = np.random.default_rng(1).standard_normal((n, 8))
    first, *others = [Query(text=f"q{i}", embedding=v) for i, v in enumerate(vectors)]
    return Query(text=first.text, embedding=first.embedding, also=others)


def test_each_document_comes_once_by_its_best_rank(store):
    asked = query(3)
    pool = fetch_for_all(store, asked, 10)
    own = [store.fetch(one, 10).document_ids for one in (asked, *asked.also)]
    assert sorted(pool.document_ids) == sorted({name for names in own for name in names})
    best = [min(names.index(i) for names in own if i in names) for i in pool.document_ids]
    assert best == sorted(best)
    assert pool.document_ids[0] == own[0][0]
    rows = pool.embeddings / np.linalg.norm(pool.embeddings, axis=1, keepdims=True)
    vectors = asked.vectors / np.linalg.norm(asked.vectors, axis=1, keepdims=True)
    np.testing.assert_allclose(pool.similarities, (vectors @ rows.T).max(axis=0), atol=1e-6)
    chosen = ContextSelector().select(asked.vectors, pool.embeddings, 6).positions
    assert {pool.document_ids[i] for i in chosen} & set(own[2])


def test_asks_in_one_batch_where_there_are_batches(store):
    plain, batches = Counting(store), CountingBatches(store)
    found = [fetch_for_all(source, query(), 5, filter="f") for source in (plain, batches)]
    assert found[0].document_ids == found[1].document_ids
    assert plain.asked == [("q0", 5, "f"), ("q1", 5, "f")]
    assert batches.asked == [("q0", "q1")]
    for source in (plain, batches):
        awaited = asyncio.run(afetch_for_all(source, query(), 5, filter="f"))
        assert awaited.document_ids == found[0].document_ids


def test_a_source_without_batches_is_asked_for_all_at_once(store):
    class Waiting(Counting):
        async def afetch(self, query, n_candidates, *, filter=None):
            pool = self.fetch(query, n_candidates)
            while len(self.asked) < 3:  # each waits for the others
                await asyncio.sleep(0)
            return pool

    found = asyncio.run(asyncio.wait_for(afetch_for_all(Waiting(store), query(3), 5), 10))
    assert found.document_ids == fetch_for_all(store, query(3), 5).document_ids


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([], "must be a list of texts, got \\[\\]"),
        ("bees", "`queries` must be a list or tuple of texts, got 'bees'"),
        (5, "must be a list or tuple of texts, got 5"),
        (["bees", " "], "the question is empty"),
        (["bees", None], "question"),
    ],
)
def test_what_cannot_be_looked_for_is_refused(texts, message):
    with pytest.raises(InvalidInputError, match=message):
        queries_of(texts, HashingEmbedder())


def test_each_text_has_one_vector():
    made = Query.of_each(("a", "b"), np.eye(2), embedder_name="e")
    assert [one.text for one in (made, *made.also)] == ["a", "b"]
    assert made.vectors.tolist() == np.eye(2).tolist()
    assert {one.embedder_name for one in (made, *made.also)} == {"e"}
    with pytest.raises(InvalidInputError, match=r"got 1 text\(s\) and 2 embedding"):
        Query.of_each(["a"], np.eye(2))
    with pytest.raises(InvalidInputError, match="list of texts, got 'ab'"):
        Query.of_each("ab", np.eye(2))


def test_a_query_alone_is_fetched_as_it_is(store):
    alone = query(1)
    source = CountingBatches(store)
    assert fetch_for_all(source, alone, 5).document_ids == store.fetch(alone, 5).document_ids
    assert source.asked == [("q0", 5, None)]
    assert alone.vectors.shape == (8,)


def test_fused_scores_become_ranks(store):
    backwards = np.arange(60.0)
    pool = fetch_for_all(Counting(store, backwards), query(), 5)
    last = [store.fetch(one, 5).document_ids[-1] for one in (query(), *query().also)]
    assert list(pool.document_ids[:2]) == last
    assert pool.relevance[:2].tolist() == [1, 1]
    assert (np.diff(pool.relevance) <= 0).all()


@pytest.mark.parametrize(
    "also",
    [["text"], [Query(text="no vector")], [Query(text="q", embedding=np.ones(3))], [query()]],
)
def test_refuses_others_that_cannot_be_looked_for(also):
    with pytest.raises(InvalidInputError, match="`also` must hold queries"):
        Query(text="q", embedding=np.ones(8), also=also)


class Lexical:
    """A source that notes its lookups."""

    def __init__(self, source):
        self.source, self.asked = source, []
        self.fetch, self.afetch = source.fetch, source.afetch
        self.has_words = True

    def look_up(self, query, lookups, *, filter=None):
        self.asked.append([(one.n_candidates, one.words, filter) for one in lookups])
        return self.source.look_up(query, lookups, filter=filter)

    async def alook_up(self, query, lookups, *, filter=None):
        return self.look_up(query, lookups, filter=filter)


def with_texts(asked, *texts):
    """Return a query whose texts are these."""
    one, *others = [
        replace(each, text=text, also=())
        for each, text in zip((asked, *asked.also), texts, strict=True)
    ]
    return replace(one, also=others)


def test_words_and_vectors_are_fused_by_reciprocal_rank_in_one_trip(store):
    source = Lexical(store)
    asked = with_texts(query(1), "number 41?")
    pool = fetch_for_all(source, asked, 5, filter=bool_of, with_words=True)
    assert source.asked == [[(5, None, bool_of), (5, ("number", "41"), bool_of)]]
    near = store.fetch(asked, 5).document_ids
    # The one document of the word is first in its list, as the nearest is in the other: 1 / 61
    # both, where the list of vectors goes first. The fifth of five no longer has a place.
    assert list(pool.document_ids) == [near[0], "41", *near[1:4]]
    assert pool.relevance is None
    cosines = cosine_similarities(asked.vector, pool.embeddings)
    np.testing.assert_allclose(pool.similarities, cosines, atol=1e-6)
    awaited = asyncio.run(afetch_for_all(source, asked, 5, filter=bool_of, with_words=True))
    assert awaited.document_ids == pool.document_ids


def bool_of(metadata):
    return metadata == {}


def test_a_document_of_both_lists_comes_before_those_of_one(store):
    asked = query(1)
    second = store.fetch(asked, 5).document_ids[1]
    pool = fetch_for_all(store, with_texts(asked, f"text {second}"), 5, with_words=True)
    assert pool.document_ids[0] == second  # 1 / 62 + 1 / 61
    assert len(set(pool.document_ids)) == len(pool) == 5


def test_each_of_several_queries_has_words_of_its_own(store):
    source = Lexical(store)
    asked = with_texts(query(3), "41 or 17", "???", "23")
    pool = fetch_for_all(source, asked, 4, with_words=True)
    words = [words for _, words, _ in source.asked[0]]
    assert words == [None, None, None, ("41", "or", "17"), ("23",)]
    assert {"41", "17", "23"} <= {*pool.document_ids}
    assert {*store.fetch(asked.also[0], 4).document_ids} <= {*pool.document_ids}
    assert len(set(pool.document_ids)) == len(pool)
    awaited = asyncio.run(afetch_for_all(source, asked, 4, with_words=True))
    assert awaited.document_ids == pool.document_ids


def test_where_no_query_has_words_or_none_are_wanted_vectors_alone_are_asked_for(store):
    source = Lexical(store)
    for asked, with_words in ((query(1), False), (with_texts(query(1), "???"), True)):
        pool = fetch_for_all(source, asked, 5, with_words=with_words)
        awaited = asyncio.run(afetch_for_all(source, asked, 5, with_words=with_words))
        assert pool.document_ids == awaited.document_ids == store.fetch(asked, 5).document_ids
    assert source.asked == []
    plain = Counting(store)
    fetch_for_all(plain, with_texts(query(1), "41"), 5, with_words=True)
    assert plain.asked == [("41", 5, None)]


def test_a_search_finds_words_where_words_count(store):
    asked = with_texts(query(1), "41")
    near = {*store.fetch(asked, 5).document_ids}
    assert "41" not in near
    for words in (0.0, 0.5):
        options = ChoiceOptions(n_select=5, n_candidates=5, words=words)
        found = search(store, asked, options).pool.document_ids
        awaited = asyncio.run(asearch(store, asked, options)).pool.document_ids
        assert ("41" in found) == (words > 0)
        assert found == awaited
