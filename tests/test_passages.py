"""Chosen chunks that stand beside one another, as passages."""

import itertools
import random

import pytest

from sift_core.documents import Chunker
from sift_core.passages import Passage, passages_of
from sift_core.places import Place, document_of, place_of

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


def test_chunks_that_touch_are_one_passage_in_reading_order():
    first, last = passages_of(PARTS, PLACES, [4, 1, 0])  # in order of the first choice
    assert last == Passage(rows=(0, 1), first=1, text="One is first.\n\nTwo is second.")
    assert first == Passage(rows=(4,), first=4, text="Four is the fourth.")


def test_a_gap_of_one_candidate_is_filled_and_one_of_two_stays():
    [passage] = passages_of(PARTS, PLACES, [3, 1])
    assert passage == Passage(
        rows=(1, 2, 3), first=3, text="Two is second.\nTwo goes on.\nThree is third."
    )
    assert [one.rows for one in passages_of(PARTS, PLACES, [3, 0])] == [(3,), (0,)]


def test_neighbours_in_a_table_have_its_header_once():
    rows = "".join(f"| item {i} | {i}.50 |\n" for i in range(40))
    text = f"| name | price |\n|---|---|\n{rows}"
    chunks = Chunker(max_characters=200).split(text, format="markdown", document_id="a")
    assert len(chunks) > 3
    places = [place_of(chunk.metadata) for chunk in chunks]
    texts = [chunk.text for chunk in chunks]
    [whole] = passages_of(texts, places, range(len(chunks)))
    assert whole.text == text.rstrip()
    [part] = passages_of(texts, places, [2, 1])
    assert part.text.count("| name | price |") == 1
    assert part.text.startswith("| name | price |")


def test_what_is_no_candidate_leaves_a_gap():
    texts, places = [PARTS[0], PARTS[2]], [PLACES[0], PLACES[2]]
    assert len(passages_of(texts, places, [0, 1])) == 2


def test_chunks_of_other_documents_stay_alone():
    places = [Place(name, place.start) for name, place in zip("ababa", PLACES, strict=True)]
    assert len(passages_of(PARTS, places, range(5))) == 5
    assert len(passages_of(PARTS, [Place("a")] * 5, range(5))) == 5


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
        places = [place_of({"source": "page.md", **chunk.metadata}) for chunk in chunks]
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
        ({"start": 3, "end": 9}, Place("a", 3, "a")),
        ({"start_index": 0}, Place("a", 0, "a")),
        ({"start_char_idx": 5}, Place("a", 5, "a")),
        ({"split_idx_start": 5}, Place("a", 5, "a")),
        ({"start_index": 4, "page": 2}, Place("a", 4, ("a", "2"))),
        ({"start": 4, "page": 2, "last_page": 3}, Place("a", 4, "a")),
        ({}, Place("a", None, "a")),
        ({"start": -1}, Place("a", None, "a")),
        ({"start": "3"}, Place("a", None, "a")),
        ({"start": True}, Place("a", None, "a")),
    ],
    ids=str,
)
def test_places_are_read_from_metadata(metadata, place):
    assert place_of({"source": "a", **metadata}) == place
    assert place_of({"file": "a", "source": "b", **metadata}, "file") == place
    assert place_of(metadata).document is None
    assert (place.joinable_text is None) == (place.start is None)


@pytest.mark.parametrize(
    ("metadata", "name"),
    [
        ({"source": "a.md", "url": "b"}, "a.md"),
        ({"source": "", "file_path": "c.md"}, "c.md"),
        ({"source": 3}, None),
        ({}, None),
    ],
)
def test_a_document_is_what_the_metadata_names(metadata, name):
    assert document_of(metadata) == name


def test_a_key_of_the_caller_may_hold_anything():
    assert document_of({"n": 3, "source": "a"}, "n") == "3"
    assert document_of({"source": "a"}, "n") is None
