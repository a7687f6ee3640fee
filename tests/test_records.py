import json
from datetime import date

import numpy as np
import pytest

from sift_core.records import chunk_records, explained, in_json, repeats_of
from tests.pools import pool_of, turned


def test_what_is_explained_is_a_share_of_the_first_variance():
    assert explained([2.0, 1.0, 0.5]) == 0.75
    assert explained([0.0, 0.0]) == 0.0


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


def test_records_are_whole_and_say_what_repeats():
    pool = pool_of(["a\x1b", "b"], [turned(1.0), turned(0.9)], [{"page": 1}, {}])
    first, second = chunk_records(pool, [{"similarity": 0.9, "gain": 0.5}, {}])
    assert first == {
        "rank": 1,
        "document_id": "guide.md#0",
        "similarity": 0.9,
        "gain": 0.5,
        "near_duplicate_of": None,
        "is_copy": False,
        "text": "a\x1b",
        "metadata": {"page": 1},
    }
    assert second["near_duplicate_of"] == {"rank": 1, "cosine": pytest.approx(0.9)}
    assert second["is_copy"] is False  # alike, and still another text
    copy = pool_of(["a", "b"], [turned(1.0), turned(0.96)], [{}, {}])
    assert [one["is_copy"] for one in chunk_records(copy, [{}, {}])] == [False, True]


def test_metadata_that_json_has_no_form_for_is_told_all_the_same():
    metadata = {
        "price": float("nan"),
        "share": np.float32("inf"),
        "weight": np.float32(0.5),
        "day": date(2026, 1, 2),
        3: [np.int64(4), (None, True)],
        "row": np.array([1.0, np.nan]),
    }
    told = in_json(metadata)
    assert json.loads(json.dumps(told, allow_nan=False)) == {
        "price": None,
        "share": None,
        "weight": 0.5,
        "day": "2026-01-02",
        "3": [4, [None, True]],
        "row": [1.0, None],
    }
