"""Chosen chunks that stand beside one another, as passages."""

import itertools
import random

import numpy as np
import pytest

from sift_core import CandidatePool, ChoiceRules, ContextSelector, InvalidInputError, pick_metadata
from sift_core.documents import Chunker
from sift_core.passages import Passage, Place, passages_of, place_of, with_passages
from sift_core.types import Selection, StopReason

TEXT = "One is first.\n\nTwo is second. Two goes on.\nThree is third.\n\n\n\nFour is the fourth."
PARTS = [
    "One is first.",
    "Two is second.",
    "Two goes on.",
    "Three is third.",
    "Four is the fourth.",
]
PLACES = [Place("a", TEXT.index(part)) for part in PARTS]


def n_words(row, text):
    return len(text.split())


def rows_and_texts(passages):
    return [(passage.rows, passage.text) for passage in passages]


def test_chunks_that_touch_are_one_passage_in_reading_order():
    assert rows_and_texts(passages_of(PARTS, PLACES, [1, 4, 0])) == [
        ((0, 1), "One is first.\n\nTwo is second."),
        ((4,), "Four is the fourth."),
    ]


def test_a_gap_of_one_candidate_is_filled():
    [passage] = passages_of(PARTS, PLACES, [3, 1])
    assert passage == Passage(
        rows=(1, 2, 3), first=3, text="Two is second.\nTwo goes on.\nThree is third."
    )


def test_a_gap_of_two_candidates_stays():
    assert [one.rows for one in passages_of(PARTS, PLACES, [3, 0])] == [(3,), (0,)]


def test_what_is_no_candidate_leaves_a_gap():
    texts, places = [PARTS[0], PARTS[2]], [PLACES[0], PLACES[2]]
    assert len(passages_of(texts, places, [0, 1])) == 2


def test_chunks_of_other_documents_stay_alone():
    places = [Place(name, place.start) for name, place in zip("ababa", PLACES, strict=True)]
    assert len(passages_of(PARTS, places, range(5))) == 5
    assert len(passages_of(PARTS, [None] * 5, range(5))) == 5


def test_passages_come_in_order_of_their_first_choice():
    chosen = [4, 1, 0]
    assert [one.first for one in passages_of(PARTS, PLACES, chosen)] == [4, 1]


def test_overlapping_chunks_are_joined_once():
    spans = [(0, 30), (15, 45), (40, 60)]
    texts = [TEXT[start:end] for start, end in spans]
    places = [Place("a", start) for start, _ in spans]
    [passage] = passages_of(texts, places, [2, 0, 1])
    assert passage.text == TEXT[:60]


def test_chunks_that_should_overlap_and_differ_are_left_alone():
    texts, places = ["one two three", "tow three four"], [Place("a", 0), Place("a", 4)]
    assert len(passages_of(texts, places, [0, 1])) == 2


def test_places_that_cannot_be_of_one_text_are_not_believed():
    """As of rows or pages of a file, each counted from 0."""
    texts = ["first row", "other row", "goes on"]
    places = [Place("a", 0), Place("a", 0), Place("a", 10)]
    assert len(passages_of(texts, places, [0, 2])) == 2
    assert len(passages_of(texts[1:], places[1:], [0, 1])) == 1


def test_a_budget_leaves_out_what_would_fill_a_gap():
    for budget, n_passages in [(9, 1), (8, 2), (6, 2)]:
        found = passages_of(PARTS, PLACES, [1, 3], size=n_words, max_tokens=budget)
        assert len(found) == n_passages
        assert sum(n_words(0, one.text) for one in found) <= budget


def test_a_join_that_costs_more_than_is_left_is_not_made():
    def size(row, text):
        return len(text)  # so that a blank line counts

    exact = len(PARTS[0]) + len(PARTS[1])
    for more, n_passages in [(2, 1), (1, 2)]:
        found = passages_of(PARTS, PLACES, [0, 1], size=size, max_tokens=exact + more)
        assert len(found) == n_passages


def test_chunks_beyond_the_limit_stay_alone():
    """As of an engine without a budget, whose window cannot hold all that was chosen."""
    found = passages_of(PARTS, PLACES, [0, 1, 2], size=n_words, max_tokens=6)
    assert [one.rows for one in found] == [(0, 1), (2,)]


def test_what_fills_a_gap_counts_for_its_document():
    assert len(passages_of(PARTS, PLACES, [1, 3], max_per_document=2)) == 2
    assert len(passages_of(PARTS, PLACES, [1, 3], max_per_document=3)) == 1


def test_the_cuts_of_the_chunker_are_joined_to_the_text(pages):
    for page, width in itertools.product(pages, [40, 200, 1000]):
        chunks = Chunker(width).split(page, format="markdown", document_id="page.md")
        places = [place_of("page.md", chunk.metadata) for chunk in chunks]
        order = random.Random(1).sample(range(len(chunks)), len(chunks))
        [passage] = passages_of([chunk.text for chunk in chunks], places, order)
        assert passage.rows == tuple(range(len(chunks)))
        assert passage.text.split() == page.split()


@pytest.fixture
def pages():
    block = (
        "A sentence about cats, and ünïcödé. Another one is about dogs!\n\n```py\nx = 1\n```\n\n"
    )
    return [
        f"# Title\n\n{block}- a list\n- of things\n\n## Second\n\n{block * 3}",
        "word " * 700,
        "漢字" * 400,
    ]


@pytest.mark.parametrize(
    ("metadata", "place"),
    [
        ({"start": 3, "end": 9}, Place("a", 3)),
        ({"start_index": 0}, Place("a", 0)),
        ({"start_char_idx": 5}, Place("a", 5)),
        ({"split_idx_start": 5}, Place("a", 5)),
        ({"start_index": 4, "page": 2}, Place(("a", "2"), 4)),
        ({"start": 4, "page": 2, "last_page": 3}, Place("a", 4)),
        ({}, None),
        ({"start": -1}, None),
        ({"start": "3"}, None),
        ({"start": True}, None),
    ],
    ids=str,
)
def test_places_are_read_from_metadata(metadata, place):
    assert place_of("a", metadata) == place
    assert place_of(None, metadata) is None


@pytest.fixture
def pool():
    rows = np.eye(5) + 0.2
    return CandidatePool(
        document_ids=[f"a#{i}" for i in range(5)],
        texts=PARTS,
        embeddings=rows,
        similarities=rows[:, 0] / np.linalg.norm(rows, axis=1),
        metadata=[
            {"source": "a", "start": place.start, "end": place.start + 99} for place in PLACES
        ],
        relevance=np.arange(5.0),
    )


def test_passages_are_rows_behind_the_pool(pool):
    selection = ContextSelector().select(np.ones(5), pool.embeddings, 3)
    selection = Selection(
        positions=np.array([3, 0, 1]),
        variances=np.array([1.0, 0.7, 0.6, 0.2]),
        stop_reason=StopReason.N_SELECT,
    )
    merged, chosen = ChoiceRules(merge_neighbors=True).merged(pool, selection, size=n_words)
    assert merged.texts[:5] == pool.texts
    assert merged.texts[5:] == ("\n".join(PARTS[:1]) + "\n\n" + "\n".join(PARTS[1:4]),)
    assert merged.metadata[5] == {
        "source": "a",
        "start": 0,
        "end": PLACES[3].start + 99,
        "chunks": ["a#0", "a#1", "a#2", "a#3"],
    }
    assert merged.document_ids[5] == "a#3"
    assert merged.relevance[5] == 3.0
    assert chosen.positions.tolist() == [5]
    assert chosen.variances.tolist() == [1.0, 0.2]
    assert len(pick_metadata(merged, chosen)) == 1


def test_variances_fall_by_what_the_chunks_of_a_passage_told(pool):
    selection = Selection(
        positions=np.array([4, 0, 1]),
        variances=np.array([1.0, 0.7, 0.6, 0.2]),
        stop_reason=StopReason.N_SELECT,
    )
    passages = passages_of(pool.texts, PLACES, [4, 0, 1])
    _, chosen = with_passages(pool, selection, passages)
    assert chosen.positions.tolist() == [4, 5]
    assert chosen.variances == pytest.approx([1.0, 0.7, 0.2])
    assert chosen.gains == pytest.approx([0.3, 0.5])


def test_without_the_rule_or_neighbors_nothing_changes(pool):
    selection = ContextSelector().select(np.ones(5), pool.embeddings, 5)
    alone = pool.take([0, 4])
    two = ContextSelector().select(np.ones(5), alone.embeddings, 2)
    for rules in [ChoiceRules(), ChoiceRules(merge_neighbors=False)]:
        assert not rules
        assert rules.merged(pool, selection, size=n_words) == (pool, selection)
    assert ChoiceRules(merge_neighbors=True).merged(alone, two, size=n_words) == (alone, two)


def test_an_empty_choice_has_no_passages(pool):
    none = Selection(
        positions=np.array([], dtype=int), variances=np.ones(1), stop_reason=StopReason.LIMITS
    )
    assert ChoiceRules(merge_neighbors=True).merged(pool, none, size=n_words)[1] is none


def test_the_rule_is_a_flag():
    with pytest.raises(InvalidInputError, match="`merge_neighbors`"):
        ChoiceRules(merge_neighbors="yes")
