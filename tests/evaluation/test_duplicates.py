import numpy as np
import pytest

from sift_core.evaluation.diagnosis import find_duplicates
from tests.evaluation.collections import noisy, orthogonal, sampled


def test_the_share_of_near_duplicates_is_the_share_that_was_made():
    rows = orthogonal(80)
    rows = np.concatenate([rows, noisy(rows[:20], 0.97)])  # 20 pairs: 40 of 100 have a near-copy
    found = find_duplicates(*sampled(rows))
    assert found.near.value == pytest.approx(0.4)
    assert found.exact.value == 0
    assert found.near.low < 0.4 < found.near.high


def test_chunks_below_the_line_are_no_near_duplicates():
    rows = orthogonal(50)
    rows = np.concatenate([rows, noisy(rows, 0.94)])
    found = find_duplicates(*sampled(rows))
    assert found.near.value == 0
    np.testing.assert_allclose(found.cosines, 0.94, atol=1e-3)


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


def test_a_single_chunk_has_nothing_to_be_a_copy_of():
    assert find_duplicates(*sampled(orthogonal(1))) is None
