"""Relevance that spreads over a pool, by hand and by its equation."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sift_core import ContextSelector, InvalidInputError, Preferences
from sift_core.selection.question_parts import name_runs
from sift_core.selection.spread import FOLLOWED, question_parts, spread
from sift_core.selection.words import pool_words

QUESTION = "Where was the wife of Sigurd Thorsen born?"
TEXTS = [
    "Sigurd Thorsen was a painter. He married Brunhild Aas in 1890.",
    "Brunhild Aas was born in Molde and sang.",
    "Where the wife was born is not known of many people.",
    *(f"The town of Place{row} has {row} mills and a church." for row in range(20)),
]
TITLES = ["Sigurd Thorsen", "Brunhild Aas", "Births", *(f"Place{row}" for row in range(20))]


def spread_of(texts, question, headings=None):
    words = pool_words(texts, [question], headings=headings)
    parts = question_parts(words, question)
    return words, spread(words, words.question[0], np.arange(len(texts)), parts)


@pytest.mark.parametrize("headings", [None, TITLES])
def test_relevance_reaches_a_passage_that_shares_no_name_with_the_question(headings):
    words, found = spread_of(TEXTS, QUESTION, headings)
    assert found.weights.sum() == pytest.approx(1)
    assert found.weights[1] > found.weights[3:].max()
    assert found.own[1] < found.flows(1, np.array([0]))[0]
    assert set(words.shared_words(1, 0, linked=True)) & {"brunhild", "aas"}


def test_weights_solve_their_equation():
    _, found = spread_of(TEXTS, QUESTION, TITLES)
    walked = found.own + FOLLOWED * found.steps.T @ found.weights[found.kept]
    assert walked == pytest.approx(found.weights, abs=1e-12)
    sums = found.steps.sum(axis=1)
    assert sums == pytest.approx((sums > 0.5).astype(float))  # a candidate without links has 0
    everybody = np.arange(len(TEXTS))
    for row in range(len(TEXTS)):
        owed = found.own[row] + found.flows(row, everybody).sum()
        assert owed == pytest.approx(found.weights[row], abs=1e-12)


def test_a_near_duplicate_that_is_set_aside_counts_nothing():
    words = pool_words(TEXTS, [QUESTION])
    kept = np.array([0, 2, 3, 4])
    found = spread(words, words.question[0], kept, [])
    assert np.flatnonzero(found.weights).tolist() == kept.tolist()
    assert found.flows(1, np.array([0]))[0] == 0
    assert found.flows(0, np.array([1]))[0] == 0


def test_both_names_that_are_compared_get_attention():
    films = [f"{name} is a film of {1950 + row}." for row, name in enumerate(["Aluma", "Beruno"])]
    others = [f"Aluma had a sequel, number {row}." for row in range(3)]
    texts = [*films, *others, *(f"A river, number {row}." for row in range(60))]
    question = "Which film is older, Aluma or Beruno?"
    _, found = spread_of(texts, question)
    assert found.weights[1] > 0.15


def test_a_name_that_many_candidates_have_starts_no_walk():
    texts = [f"Harbour note {row} on Molde." for row in range(40)]
    words = pool_words(texts, ["What about Molde?"])
    parts = question_parts(words, "What about Molde?")
    assert [bool(part.shares.all()) for part in parts] == [True]
    kept = np.arange(len(texts))
    with_part = spread(words, words.question[0], kept, parts)
    without = spread(words, words.question[0], kept, [])
    assert with_part.weights == pytest.approx(without.weights)


def test_a_heading_in_the_question_is_a_part_in_any_script_and_case():
    titles = ["东京塔", "大阪城", "the godfather", "the"]
    texts = ["高三百米。", "一座城。", "A film.", "An article."]
    words = pool_words(texts, ["东京塔有多高", "who directed the godfather"], headings=titles)
    assert [shares.argmax() for shares in words.question_headings(0)] == [0]
    assert [shares.argmax() for shares in words.question_headings(1)] == [2]
    assert words.question_headings(1)[0][2] == pytest.approx(1)


def test_one_character_is_no_name():
    question = "How do I name 5 films with Vitamin C?"
    words = pool_words(TEXTS, [question], headings=TITLES)
    assert [part.words for part in question_parts(words, question)] == [("vitamin", "c")]


def test_a_name_that_no_candidate_has_whole_is_missing():
    question = "Did Sigurd Thorsen meet Ragna Ostby in Molde?"
    words = pool_words(TEXTS, [question], headings=TITLES)
    missing = [part.words for part in question_parts(words, question) if part.is_missing]
    assert missing == [("ragna", "ostby")]


def test_a_mention_is_a_link_to_what_is_named():
    words = pool_words(TEXTS, [QUESTION], headings=TITLES)
    assert words.mentions[0, 1] == pytest.approx(1)
    assert words.mentions[1, 0] == 0
    assert np.diag(words.mentions).tolist() == [0.0] * len(TEXTS)
    assert not pool_words(TEXTS, [QUESTION]).mentions.any()


def test_a_heading_that_many_mention_is_no_name():
    texts = ["Usage", *(f"Usage of thing{row}." for row in range(30))]
    words = pool_words(texts, ["anything"], headings=["Usage", *[""] * 30])
    assert not words.mentions[:, 0].any()


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("Is Ada Lovelace older than the Duke of York?", [["ada", "lovelace"], ["duke", "york"]]),
        ("when was E1042 fixed in 0.68.1", [["0.68.1"]]),
        ("what is the godfather", []),
        ("谁是2019年的总统", []),
        ("", []),
    ],
)
def test_names_by_hand(question, expected):
    found = [[word for one in run.segments for word in one] for run in name_runs(question)]
    named = [words[run.n_doubtful :] for run, words in zip(name_runs(question), found, strict=True)]
    if "E1042" in question:
        expected = [["e1042"], *expected]
    assert [words for words in named if words] == expected


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(max_size=30), min_size=1, max_size=8), st.text(max_size=60), st.booleans())
def test_any_texts_give_weights(texts, question, has_headings):
    words, found = spread_of(texts, question, texts[::-1] if has_headings else None)
    assert np.isfinite(found.weights).all()
    assert (found.weights >= 0).all()
    assert found.weights.sum() == pytest.approx(1)
    assert (words.mentions >= 0).all()


def test_target_weights_take_the_place_of_the_region():
    rows = np.eye(5)
    query = np.array([1.0, 0.9, 0.8, 0.7, 0.6])
    weights = [0, 0, 0, 2.0, 1.0]

    def select(queries, n_select, weights):
        preferences = Preferences(target_weights=weights)
        return ContextSelector().select(queries, rows, n_select, preferences=preferences)

    chosen = select(query, 2, weights)
    assert chosen.positions.tolist() == [3, 4]
    both = np.array([weights, [0, 3.0, 0, 0, 0]])
    chosen = select(np.stack([query, query]), 2, both)
    assert chosen.positions.tolist() == [3, 1]
    plain = ContextSelector().select(query, rows, 5)
    nothing = select(query, 5, np.zeros(5))
    assert nothing.positions.tolist() == plain.positions.tolist()


@pytest.mark.parametrize("weights", [[1, 2], [1, 1, -1], [1, 1, np.nan], [[1, 1, 1], [1, 1, 1]]])
def test_target_weights_that_do_not_fit_are_refused(weights):
    preferences = Preferences(target_weights=weights)
    with pytest.raises(InvalidInputError, match="target_weights"):
        ContextSelector().select(np.ones(3), np.eye(3), 2, preferences=preferences)
