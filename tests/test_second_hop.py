"""A second fetch for what the first choices lead to, from a real source."""

import asyncio
import warnings

import numpy as np
import pytest

from sift_core import ChoiceOptions, InMemorySource, Query, asearch, search
from sift_core.errors import MissingKeyWarning, UndatedWarning
from sift_core.testing import HashingEmbedder

EMBEDDER = HashingEmbedder()
QUESTION = "Where was the wife of Sigurd Thorsen born?"
TITLES = ["Sigurd Thorsen", "Brunhild Aas", *(f"Wife {row}" for row in range(60))]
TEXTS = [
    "Sigurd Thorsen was a painter. His wife was Brunhild Aas.",
    "Brunhild Aas sang in Molde, her home town.",
    *(f"Where the wife number {row} was born, nobody knows." for row in range(60)),
]
OPTIONS = ChoiceOptions(n_select=3, n_candidates=20)


class Counting(InMemorySource):
    """Counts the trips to the store."""

    trips = 0

    def look_up(self, *arguments, **options):
        self.trips += 1
        return super().look_up(*arguments, **options)


def make_source():
    return Counting(
        EMBEDDER.embed_documents(TEXTS), TEXTS, metadata=[{"title": title} for title in TITLES]
    )


def query(text=QUESTION):
    return Query(text=text, embedding=EMBEDDER.embed_query(text))


def test_the_second_half_of_a_question_is_found_by_the_second_hop():
    source = make_source()
    without = search(source, query(), ChoiceOptions(n_select=3, n_candidates=20, hops=0))
    assert TEXTS[1] not in without.pool.texts
    source.trips = 0
    found = search(source, query(), OPTIONS)
    assert source.trips == 2  # all lists at once, each time
    assert TEXTS[1] in found.chunks.texts
    assert found.timings.keys() == {"fetch", "hop", "select"}
    row = found.chunks.texts.index(TEXTS[1])
    pick = found.picks[row]
    assert found.chunks.texts[pick.reached_from - 1] == TEXTS[0]
    assert set(pick.reached_by) & {"brunhild", "aas"}
    assert pick.row >= found.hop.first_row
    assert found.hop.n_new == len(found.pool) - found.hop.first_row > 0
    assert "brunhild" in found.hop.words[0]
    assert found.as_dict()["hop"]["n_chosen"] >= 1
    assert len(set(found.pool.document_ids)) == len(found.pool)
    cosines = found.pool.embeddings @ query().vector
    lengths = np.linalg.norm(found.pool.embeddings, axis=1) * np.linalg.norm(query().vector)
    assert found.pool.similarities == pytest.approx(cosines / lengths)


def test_an_event_loop_gets_the_same():
    found = search(make_source(), query(), OPTIONS)
    awaited = asyncio.run(asearch(make_source(), query(), OPTIONS))
    assert awaited.positions.tolist() == found.positions.tolist()
    assert awaited.pool.document_ids == found.pool.document_ids
    assert awaited.hop == found.hop


@pytest.mark.parametrize("changes", [{"hops": 0}, {"words": 0}, {"n_candidates": 200}])
def test_nothing_more_is_fetched_where_nothing_more_can_be_found(changes):
    source = make_source()
    options = ChoiceOptions(**{"n_select": 3, "n_candidates": 20, **changes})
    found = search(source, query(), options)
    assert found.hop is None
    assert source.trips <= 1


def test_a_source_without_words_is_asked_once():
    class Dense:
        def __init__(self):
            self.inner = make_source()
            self.trips = 0

        def fetch(self, query, n_candidates, *, filter=None):
            self.trips += 1
            return self.inner.fetch(query, n_candidates, filter=filter)

        async def afetch(self, query, n_candidates, *, filter=None):
            return self.fetch(query, n_candidates, filter=filter)

    source = Dense()
    assert search(source, query(), OPTIONS).hop is None
    assert source.trips == 1


def test_several_queries_hop_together():
    first, second = query(), query("a wife who sang")
    several = Query(text=first.text, embedding=first.embedding, also=[second])
    found = search(make_source(), several, OPTIONS)
    assert TEXTS[1] in found.chunks.texts
    assert len(found.reading.spreads) == 2


def test_a_name_that_no_candidate_has_is_looked_for_and_said_to_be_missing():
    found = search(make_source(), query("Who was born before Ragna Ostby, a wife?"), OPTIONS)
    assert found.missing_names == ("ragna ostby",)
    assert found.as_dict()["missing_names"] == ["ragna ostby"]
    assert "missing_names" not in search(make_source(), query(), OPTIONS).as_dict()


def test_a_missing_number_is_named_as_it_is_written():
    found = search(make_source(), query("Which wife was born under INV-2021-004182?"), OPTIONS)
    assert found.missing_names == ("inv-2021-004182",)


@pytest.mark.parametrize("is_awaited", [False, True])
@pytest.mark.parametrize("undated", [None, 0, 1], ids=["all", "before the hop", "by the hop"])
def test_candidates_without_dates_are_named_once(undated, is_awaited):
    # Row 0 is among the first 20 candidates, and only the second fetch brings row 1.
    dates = [{} if row == undated or undated is None else {"on": "2024-01-01"} for row in range(62)]
    metadata = [{"title": title, **date} for title, date in zip(TITLES, dates, strict=True)]
    source = InMemorySource(EMBEDDER.embed_documents(TEXTS), TEXTS, metadata=metadata)
    options = ChoiceOptions(n_select=3, n_candidates=20, newest="on")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        found = search(source, query(), options)
        if is_awaited:
            warned.clear()
            found = asyncio.run(asearch(source, query(), options))
    assert found.hop.n_new
    said = [one for one in warned if one.category in (UndatedWarning, MissingKeyWarning)]
    assert len(said) == 1
    if undated is None:
        assert "no candidate has the metadata key 'on'" in str(said[0].message)
    else:
        assert f"the first is {str(undated)!r}" in str(said[0].message)
