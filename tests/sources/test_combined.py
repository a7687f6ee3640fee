import asyncio
from dataclasses import replace

import numpy as np
import pytest

from sift_core.errors import CandidateSourceError, InvalidInputError
from sift_core.sources import CombinedSource, InMemorySource
from tests.sources.stores import Fetching, slices


class Dead:
    """A source whose store has failed."""

    def fetch(self, query, n_candidates, *, filter=None):
        raise CandidateSourceError("the disk is full; make room", retry_after_s=3)

    async def afetch(self, query, n_candidates, *, filter=None):
        return self.fetch(query, n_candidates, filter=filter)


async def test_one_dead_source_is_named_and_the_others_are_not_passed_off_as_all(corpus):
    source = CombinedSource({**slices(corpus, 2), "machine 7": Dead()})
    with pytest.raises(CandidateSourceError, match="source 'machine 7': the disk is full") as info:
        source.fetch(corpus.query(), 3)
    assert info.value.retry_after_s == 3
    with pytest.raises(CandidateSourceError, match="source 'machine 7': the disk is full"):
        await source.afetch(corpus.query(), 3)


async def test_a_batch_also_of_sources_that_take_one_query_at_a_time(corpus, reference):
    parts = slices(corpus, 2)
    parts["machine 1"] = Fetching(parts["machine 1"])
    queries = [corpus.query(seed) for seed in range(3)]
    source = CombinedSource(parts)
    expected = [reference.fetch(query, 9).document_ids for query in queries]
    assert [pool.document_ids for pool in source.fetch_batch(queries, 9)] == expected
    assert [pool.document_ids for pool in await source.afetch_batch(queries, 9)] == expected
    assert source.fetch_batch([], 9) == []


class Slow(Dead):
    """A source that answers late, and tells whether it was given up."""

    def __init__(self):
        self.cancelled = False

    async def afetch(self, query, n_candidates, *, filter=None):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise


async def test_the_others_are_given_up_when_one_has_failed(corpus):
    slow = Slow()
    with pytest.raises(CandidateSourceError, match="source 'dead'"):
        await CombinedSource({"slow": slow, "dead": Dead()}).afetch(corpus.query(), 3)
    assert slow.cancelled


def test_an_empty_source_is_named(corpus):
    empty = InMemorySource(np.empty((0, 16)), [])
    with pytest.raises(InvalidInputError, match="source 'empty': there are no documents"):
        CombinedSource({**slices(corpus, 2), "empty": empty}).fetch(corpus.query(), 3)


class Fused:
    """A source whose order is by scores that are no cosines."""

    def fetch(self, query, n_candidates, *, filter=None):
        pool = InMemorySource(np.eye(16), ["a"] * 16).fetch(query, n_candidates)
        return replace(pool, relevance=np.arange(len(pool), dtype=float))

    async def afetch(self, query, n_candidates, *, filter=None):
        return self.fetch(query, n_candidates)


def test_fused_scores_are_refused(corpus):
    with pytest.raises(InvalidInputError, match="got one with fused scores"):
        CombinedSource({**slices(corpus, 1), "fused": Fused()}).fetch(corpus.query(), 3)


def test_sources_of_different_embedders_are_refused(corpus):
    other = InMemorySource(np.eye(2), ["a", "b"], embedder_name="model-b")
    with pytest.raises(InvalidInputError, match=r"'model-a'.*'model-b'"):
        CombinedSource({**slices(corpus, 1), "other": other})
    assert CombinedSource(slices(corpus, 2)).embedder_name == "model-a"
    with pytest.raises(InvalidInputError, match="at least 1 source"):
        CombinedSource({})
