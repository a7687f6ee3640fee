import json
from dataclasses import replace
from datetime import date

import numpy as np
import pytest

from sift_core import CandidatePool, Chosen, InvalidInputError, Pick, Query, Selection, StopReason
from sift_core.explanation import chunk_records, in_json
from sift_core.passages import Passage
from sift_core.repeats import repeats_of
from tests.pools import pool_of, turned

PICK = Pick(
    row=0, similarity=0.9, score=None, relevance=0.9, redundancy=None, gain=0.5, variance=0.5
)


def chosen_from(pool, rows, variances):
    return Chosen(
        query=Query(text="", embedding=[1.0, 0.0]),
        pool=pool,
        passages=[Passage(rows=(row,), first=row, text=pool.texts[row]) for row in rows],
        positions=np.array(rows),
        variances=np.array(variances),
        stop_reason=StopReason.N_SELECT,
    )


def make_pool(**columns):
    return CandidatePool(
        document_ids=["a", "b"],
        texts=["a", "b"],
        embeddings=np.array([[3.0, 4.0], [2.0, 0.0]]),
        similarities=np.array([0.6, 1.0]),
        **columns,
    )


def test_picks_by_hand():
    pool = make_pool(scores=[7.0, None])
    chosen = chosen_from(pool, [1, 0], [1.0, 0.25, 0.125])
    first, second = chosen.picks
    nearest = {"similarity": 1.0, "score": None, "relevance": 1.0, "redundancy": None}
    assert first.as_dict() == first.numbers == {**nearest, "gain": 0.75, "variance": 0.25}
    # (3, 4) and (2, 0): cosine 6 / (5 · 2)
    assert second.redundancy == pytest.approx(0.6)
    assert (second.row, second.score, second.gain, second.variance) == (0, 7.0, 0.125, 0.125)
    by_a_ranker = chosen_from(make_pool(relevance=np.array([5.0, 2.0])), [1, 0], [1.0, 0.5, 0.25])
    assert [pick.relevance for pick in by_a_ranker.picks] == [2.0, 5.0]


def test_a_choice_is_a_selection_and_its_first_picks_are_one():
    chosen = chosen_from(make_pool(), [1, 0], [1.0, 0.25, 0.125])
    assert isinstance(chosen, Selection)
    assert chosen.gains.tolist() == [0.75, 0.125]
    assert chosen.chunks.document_ids == ("b", "a")
    first = chosen.first(1)
    assert (first.chunks.texts, first.variances.tolist()) == (("b",), [1.0, 0.25])
    assert len(first.picks) == 1
    assert chosen.first(9).positions.tolist() == [1, 0]


def test_a_ranking_has_the_chosen_first_and_then_the_others_by_similarity():
    pool = pool_of(list("abcd"), [turned(cosine) for cosine in (0.1, 0.9, 0.4, 0.4)], [{}] * 4)
    pool = replace(pool, similarities=np.array([0.1, 0.9, 0.4, 0.4]))
    ids = pool.document_ids
    ranking = chosen_from(pool, [0], [1.0, 0.5]).ranking()
    assert ranking == [ids[0], ids[1], ids[2], ids[3]]
    ranking = chosen_from(pool, [3, 0], [1.0, 0.5, 0.2]).ranking()
    assert ranking == [ids[3], ids[0], ids[1], ids[2]]


def test_falling_scores_survive_a_sort_in_single_precision():
    pool = CandidatePool(
        document_ids=list("abcd"),
        texts=[""] * 4,
        embeddings=np.eye(4),
        similarities=np.array([0.1, 0.4, 0.2, 0.3]),
    )
    chosen = chosen_from(pool, [0, 1, 2, 3], [1.0, 0.5, 0.5, 0.25, 0.25])
    scores = chosen.scores()
    assert scores == pytest.approx([1.0, 0.5, 0.5, 0.25], abs=1e-6)
    assert (np.diff(np.float32(scores)) < 0).all()
    assert chosen.scores("similarity") == [0.1, 0.4, 0.2, 0.3]


@pytest.mark.parametrize("wrong", ["cosine", "", None])
def test_a_score_that_does_not_exist_is_refused(wrong):
    chosen = chosen_from(make_pool(), [1], [1.0, 0.25])
    with pytest.raises(InvalidInputError, match="`score` must be 'variance' or 'similarity'"):
        chosen.scores(wrong)


def test_a_repeat_names_the_earlier_chunk_that_it_is_most_like():
    # Cosines to the first: .79, .81 and .96; of the last two arccos(.81) - arccos(.96) = 19.6°
    # apart, cosine .94; of .79 and .81 1.9°, cosine .999.
    vectors = [turned(1.0), turned(0.79), turned(0.81), turned(0.96)]
    repeats = repeats_of(np.array(vectors, dtype=np.float32))
    assert repeats[:2] == [None, None]
    assert (repeats[2].rank, repeats[2].mark, repeats[2].is_copy) == (2, "≡2", True)
    assert (repeats[3].rank, repeats[3].mark) == (1, "≡1")
    assert repeats[3].cosine == pytest.approx(0.96, abs=1e-6)


def test_lengths_of_vectors_make_no_repeats():
    assert repeats_of(np.empty((0, 3))) == []
    assert repeats_of(np.array([[10.0, 0.0], turned(0.5)])) == [None, None]
    assert repeats_of(np.array([[0.1, 0.0], turned(0.9)]))[1].mark == "≈1"


def test_among_high_cosines_a_repeat_has_a_higher_one():
    """With 0.7 for unrelated texts, 0.7 + 0.6 · 0.3 = 0.88 is alike, and 0.97 a copy."""
    marks = {}
    for cosine in (0.87, 0.89, 0.96, 0.98):
        _, second = repeats_of(np.array([turned(1.0), turned(cosine)]), unrelated=0.7)
        marks[cosine] = second and second.mark
    assert marks == {0.87: None, 0.89: "≈1", 0.96: "≈1", 0.98: "≡1"}


def test_records_are_whole_and_say_what_repeats():
    pool = pool_of(["a\x1b", "b"], [turned(1.0), turned(0.9)], [{"page": 1}, {}])
    first, second = chunk_records(pool, [PICK, PICK], repeats_of(pool.embeddings))
    assert first == {
        "rank": 1,
        "document_id": "guide.md#0",
        **PICK.numbers,
        "near_duplicate_of": None,
        "is_copy": False,
        "text": "a\x1b",
        "metadata": {"page": 1},
    }
    assert second["near_duplicate_of"] == {"rank": 1, "cosine": pytest.approx(0.9)}
    assert second["is_copy"] is False  # alike, and still another text
    copy = pool_of(["a", "b"], [turned(1.0), turned(0.96)], [{}, {}])
    assert [
        one["is_copy"] for one in chunk_records(copy, [PICK, PICK], repeats_of(copy.embeddings))
    ] == [False, True]


def test_metadata_that_json_has_no_form_for_becomes_text():
    metadata = {
        "price": float("nan"),
        "share": np.float32("inf"),
        "weight": np.float32(0.5),
        "day": date(2026, 1, 2),
        3: [np.int64(4), (None, True)],
        "row": np.array([1.0, np.nan]),
    }
    plain = in_json(metadata)
    assert json.loads(json.dumps(plain, allow_nan=False)) == {
        "price": None,
        "share": None,
        "weight": 0.5,
        "day": "2026-01-02",
        "3": [4, [None, True]],
        "row": [1.0, None],
    }
