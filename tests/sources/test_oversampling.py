"""Over real sources that keep a record of what they are asked."""

import asyncio
from collections import Counter

import numpy as np
import pytest

from sift_core import (
    CandidatePool,
    ContextSelector,
    InMemorySource,
    InvalidInputError,
    Query,
)
from sift_core.selection.context import distinct
from sift_core.sources.oversampling import OversamplingSource
from tests.selection.facts import a_direction, copies_of, facts_about


def fetch_distinct(source, query, n_candidates, *, filter=None, **settings):
    return OversamplingSource(source, **settings).fetch(query, n_candidates, filter=filter)


async def afetch_distinct(source, query, n_candidates, *, filter=None, **settings):
    return await OversamplingSource(source, **settings).afetch(query, n_candidates, filter=filter)


def a_query(seed=0):
    return Query(text="?", embedding=a_direction(seed))


class Recorded:
    """A source without batches that keeps a record of how many candidates it is asked for."""

    def __init__(self, source):
        self.source, self.asked, self.n_blocking = source, [], 0

    def fetch(self, query, n_candidates, *, filter=None):
        self.n_blocking += 1
        return self.found(query, n_candidates, filter)

    async def afetch(self, query, n_candidates, *, filter=None):
        await asyncio.sleep(0)
        return self.found(query, n_candidates, filter)

    def found(self, query, n_candidates, condition):
        self.asked.append(n_candidates)
        return self.source.fetch(query, n_candidates, filter=condition)


class RecordedBatches(Recorded):
    """The same with batches: each is recorded as (number of queries, number of candidates)."""

    def fetch_batch(self, queries, n_candidates, *, filter=None):
        self.n_blocking += 1
        return self.found_batch(queries, n_candidates, filter)

    async def afetch_batch(self, queries, n_candidates, *, filter=None):
        await asyncio.sleep(0)
        return self.found_batch(queries, n_candidates, filter)

    def found_batch(self, queries, n_candidates, condition):
        self.asked.append((len(queries), n_candidates))
        return self.source.fetch_batch(queries, n_candidates, filter=condition)


def collection(query, n_facts, n_copies, **options):
    """Return a source in memory; a document's text and metadata name its fact."""
    rows, fact = copies_of(facts_about(query.embedding, n_facts), n_copies, **options)
    return InMemorySource(rows, [str(i) for i in fact], metadata=[{"fact": int(i)} for i in fact])


def assert_same(pool, expected):
    assert pool.document_ids == expected.document_ids
    assert pool.texts == expected.texts
    assert pool.metadata == expected.metadata
    np.testing.assert_array_equal(pool.embeddings, expected.embeddings)
    np.testing.assert_array_equal(pool.similarities, expected.similarities)


def test_where_nothing_repeats_the_source_is_asked_once_and_its_pool_returned():
    query = a_query()
    source = Recorded(collection(query, 400, 1))
    pool = fetch_distinct(source, query, 100, n_select=10)
    assert source.asked == [100]
    assert_same(pool, source.source.fetch(query, 100))


@pytest.mark.parametrize(
    ("n_candidates", "n_facts", "asked"),
    [
        # 10 choices: min(2 · 10, ⌈.8 · 40⌉) = 20. 19 are too few, 40 · 20/19 = 42.1 becomes 80.
        (40, 20, [40]),
        (40, 19, [40, 80]),
        # Four fifths of the candidates are always enough: ⌈.8 · 20⌉ = 16, ⌈.8 · 11⌉ = 9.
        (20, 16, [20]),
        (20, 15, [20, 40]),
        (11, 9, [11]),
        (11, 8, [11, 22]),
    ],
)
def test_how_many_contents_are_enough_by_hand(n_candidates, n_facts, asked):
    query = a_query()
    facts = facts_about(query.embedding, n_facts)
    source = Recorded(_Listed(np.concatenate([facts, np.repeat(facts[:1], 200, axis=0)])))
    fetch_distinct(source, query, n_candidates, n_select=10)
    assert source.asked[:2] == asked


class _Listed:
    """Returns rows in the order that they were given in, as a fused search would."""

    def __init__(self, rows):
        self.rows = rows

    def fetch(self, query, n_candidates, *, filter=None):
        rows = self.rows[:n_candidates]
        names = [str(i) for i in range(len(rows))]
        return CandidatePool(
            document_ids=names,
            texts=names,
            embeddings=rows,
            similarities=rows @ query.embedding,
            relevance=-np.arange(len(rows)),
        )


@pytest.mark.parametrize(
    ("n_copies", "n_candidates", "n_select", "cap", "asked"),
    [
        # 10 facts in 100 where 20 are needed: twice as many.
        (10, 100, 10, 2000, [100, 200]),
        # 2 in 100: ten times, cut to four. 8 in 400: 400 · 20/8 = 1000.
        (50, 100, 10, 2000, [100, 400, 1000]),
        # 4 in 200: five times, cut to four. 16 in 800: 800 · 20/16 = 1000.
        (50, 200, 10, 2000, [200, 800, 1000]),
        # 20 in 200 where 2 · 10 are enough.
        (10, 200, 10, 2000, [200]),
        # 1 in 300, 4 in 1200; 4 · 1200 is beyond the default cap.
        (300, 300, 10, 2000, [300, 1200, 2000]),
        (10, 100, 15, 100, [100]),
        (10, 100, 15, 250, [100, 250]),
    ],
)
def test_asks_for_as_many_times_more_as_contents_are_missing_by_hand(
    n_copies, n_candidates, n_select, cap, asked
):
    query = a_query()
    source = Recorded(_Listed(copies_of(facts_about(query.embedding, 100), n_copies, noise=0.1)[0]))
    options = {"n_select": n_select} | ({} if cap == 2000 else {"max_candidates": cap})
    fetch_distinct(source, query, n_candidates, **options)
    assert source.asked == asked


@pytest.mark.parametrize(("n_facts", "asked"), [(4, [50]), (8, [50, 200])])
def test_a_source_that_has_no_more_is_not_asked_again(n_facts, asked):
    query = a_query()  # 40 and 80 documents
    source = Recorded(collection(query, n_facts, 10))
    pool = fetch_distinct(source, query, 50, n_select=10)
    assert source.asked == asked
    assert {int(text) for text in pool.texts} == set(range(n_facts))


def test_a_larger_pool_is_thinned_to_its_contents_in_the_stores_order():
    query = a_query()
    rows, fact = copies_of(facts_about(query.embedding, 40), 10)
    source = InMemorySource(rows, [str(i) for i in fact])
    pool = fetch_distinct(source, query, 100, n_select=10)
    larger = source.fetch(query, 200)
    found = distinct(query.embedding, larger.embeddings)
    assert_same(pool, larger.take(np.sort(found)))
    assert 20 <= len(pool) == len(set(pool.texts)) <= 40
    assert (np.diff(pool.similarities) <= 0).all()
    chosen = ContextSelector().select(query.embedding, pool.embeddings, 10).positions
    assert len({pool.texts[i] for i in chosen}) == 10


def test_versions_fill_up_what_has_fewer_contents_than_are_chosen():
    query = a_query()
    rows, fact = copies_of(facts_about(query.embedding, 3), 60)
    source = Recorded(InMemorySource(rows, [str(i) for i in fact]))
    pool = fetch_distinct(source, query, 50, n_select=10)
    assert source.asked == [50, 200]
    assert len(pool) == 50
    assert set(pool.texts) == {"0", "1", "2"}
    assert len(set(pool.document_ids)) == 50
    assert (np.diff(pool.similarities) <= 0).all()
    chosen = ContextSelector().select(query.embedding, pool.embeddings, 10).positions
    assert {pool.texts[i] for i in chosen[:3]} == {"0", "1", "2"}


def test_a_larger_pool_keeps_of_each_content_the_preferred_version():
    query = a_query()
    source = Recorded(collection(query, 30, 32))
    fetched = fetch_distinct(source, query, 50, n_select=10, prefer=dates_of)
    widest = source.source.fetch(query, source.asked[-1])
    for document_id, row in zip(fetched.document_ids, fetched.metadata, strict=True):
        versions = [i for i, own in enumerate(widest.metadata) if own["fact"] == row["fact"]]
        newest = max(versions, key=dates_of(widest).item)
        assert document_id == widest.document_ids[newest]


def dates_of(pool):
    """Return a date of each document, in another order than any relevance."""
    return np.array([float(name) * 7919 % 1009 for name in pool.document_ids])


def test_the_stores_own_relevance_orders_contents_and_stays_with_them():
    query = a_query()
    rows, _ = copies_of(facts_about(query.embedding, 60), 5, noise=0.1)
    reversed_rows = rows[::-1].copy()  # the least similar is the most relevant
    pool = fetch_distinct(Recorded(_Listed(reversed_rows)), query, 50, n_select=10)
    assert pool.relevance is not None
    assert (np.diff(pool.relevance) < 0).all()
    assert pool.texts == tuple(str(-int(r)) for r in pool.relevance)
    assert pool.texts[0] == "0"


def test_the_filter_reaches_every_fetch():
    query = a_query()
    source = Recorded(collection(query, 100, 10))
    pool = fetch_distinct(source, query, 100, n_select=10, filter=lambda m: m["fact"] % 2)
    assert len(source.asked) > 1
    assert len(pool) >= 20
    assert all(int(text) % 2 for text in pool.texts)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        *(({"n_select": n}, "`n_select` must be") for n in (0, -1, 2.5, "5", None)),
        *(({"source": s}, "`source` must have the methods") for s in (None, "docs", object())),
    ],
)
def test_refuses_what_is_no_source_or_count(changes, message):
    arguments = {"source": collection(a_query(), 5, 2), "n_select": 3, **changes}
    with pytest.raises(InvalidInputError, match=message):
        OversamplingSource(arguments["source"], n_select=arguments["n_select"])


def test_refuses_more_candidates_than_the_cap_before_asking():
    source = RecordedBatches(collection(a_query(), 5, 2))
    oversampling = OversamplingSource(source, n_select=3, max_candidates=9)
    message = "`max_candidates` must be >= `n_candidates`, got 9 and 10"
    with pytest.raises(InvalidInputError, match=message):
        oversampling.fetch(a_query(), 10)
    with pytest.raises(InvalidInputError, match=message):
        oversampling.fetch_batch([a_query()] * 2, 10)
    assert source.asked == []
    assert len(oversampling.fetch(a_query(), 9)) == 9


@pytest.fixture(scope="module")
def mixed():
    """Queries of one collection: about facts that stand alone, in 10, and in 60 versions."""
    queries = [a_query(seed) for seed in range(6)]
    parts = [
        copies_of(facts_about(query.embedding, 120, seed), (1, 10, 60)[seed % 3], noise=0.1)[0]
        for seed, query in enumerate(queries)
    ]
    rows = np.concatenate(parts)
    return queries, InMemorySource(rows, [str(i) for i in range(len(rows))])


def test_only_queries_that_need_more_are_asked_again_those_of_one_size_together(mixed):
    queries, store = mixed
    alone = [Recorded(store) for _ in queries]
    for query, source in zip(queries, alone, strict=True):
        fetch_distinct(source, query, 100, n_select=10)
    expected = [
        pair
        for step in range(3)
        for pair in Counter(s.asked[step] for s in alone if len(s.asked) > step).items()
    ]
    assert {len(source.asked) for source in alone} == {1, 2, 3}
    together = RecordedBatches(store)
    OversamplingSource(together, n_select=10).fetch_batch(queries, 100)
    # A size that one query alone needs is asked for by `fetch`.
    asked = [each if isinstance(each, tuple) else (1, each) for each in together.asked]
    assert asked == [(n_queries, size) for size, n_queries in expected]
    assert max(n_queries for n_queries, _ in asked[1:]) > 1


@pytest.mark.parametrize("kind", [Recorded, RecordedBatches])
def test_awaiting_gives_what_fetching_gives(mixed, kind):
    queries, store = mixed
    waiting, blocking = kind(store), kind(store)

    async def all_of_them():
        source = OversamplingSource(waiting, n_select=10)
        one = await source.afetch(queries[2], 100)
        other = await afetch_distinct(waiting, queries[1], 100, n_select=10, max_candidates=250)
        return [one, other, *await source.afetch_batch(queries, 100)]

    source = OversamplingSource(blocking, n_select=10)
    expected = [
        source.fetch(queries[2], 100),
        fetch_distinct(blocking, queries[1], 100, n_select=10, max_candidates=250),
        *source.fetch_batch(queries, 100),
    ]
    for pool, other in zip(asyncio.run(all_of_them()), expected, strict=True):
        assert_same(pool, other)
    assert waiting.asked == blocking.asked
    assert waiting.n_blocking == 0  # none that would block the event loop
