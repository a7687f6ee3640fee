"""What a diagnosis measures, of collections of which the answers are known."""

import numpy as np
import pytest

from sift_core.evaluation.diagnosis import measure_pool
from sift_core.evaluation.duplicates import find_duplicates
from sift_core.types import Query
from tests.evaluation.collections import noisy, orthogonal, sampled


def test_the_share_of_near_duplicates_is_the_share_that_was_made():
    rows = orthogonal(60)
    # 20 pairs of 100 chunks are near-copies, 20 pairs are below the line.
    rows = np.concatenate([rows, noisy(rows[:20], 0.97), noisy(rows[20:40], 0.94)])
    found = find_duplicates(*sampled(rows))
    assert found.near.value == pytest.approx(0.4)
    assert found.exact.value == 0
    assert found.near.low < 0.4 < found.near.high
    np.testing.assert_allclose(found.cosines[20:40], 0.94, atol=1e-3)
    assert find_duplicates(*sampled(orthogonal(1))) is None


def test_exact_copies_of_a_text_are_counted_apart():
    rows = orthogonal(30)
    texts = [f"Text {i}." for i in range(30)]
    texts += [f" Text  {i}.\n" for i in range(10)]  # whitespace does not count
    found = find_duplicates(*sampled(np.concatenate([rows, rows[:10]]), texts))
    assert found.exact.value == pytest.approx(20 / 40)
    assert found.near.value == 0


def test_chunks_that_share_one_id_are_copies_of_each_other():
    rows = np.repeat(orthogonal(1), 3, axis=0)
    source, sample = sampled(rows, ["same words", "same  words", "same words."])
    found = find_duplicates(source, sample)
    assert found.exact.value == pytest.approx(2 / 3)
    assert found.near.value == pytest.approx(1 / 3)


def fetched(rows, query):
    source, _ = sampled(rows)
    asked = Query(text="?", embedding=query)
    return asked, source.fetch(asked, 200)


def test_redundant_are_chunks_close_to_an_earlier_one():
    rows = orthogonal(3)
    close, apart = noisy(rows[:1], 0.81), noisy(rows[1:2], 0.79)
    chosen = np.concatenate([close, rows[:2], apart, rows[2:]])  # rows[0] repeats the first
    assert measure_pool(*fetched(chosen, chosen.sum(axis=0))).nearest.n_redundant == 1


def test_sift_frees_the_places_of_copies():
    contents = orthogonal(40)
    rows = np.repeat(contents, 5, axis=0)
    query = contents.T @ np.linspace(1, 0.2, 40).astype(np.float32)
    measures = measure_pool(*fetched(rows, query))
    assert measures.nearest.n_redundant == 8  # ten places, two contents
    assert measures.nearest.n_versions == 8
    assert measures.sift.n_redundant == measures.sift.n_versions == 0
    assert measures.n_distinct == 40
    assert measures.sift.variance < measures.nearest.variance
    assert measures.variance_floor <= measures.sift.variance <= 1
    assert measures.n_shared == 2
