"""The cosine of a query with many rows, in NumPy and compiled."""

import numpy as np
import pytest

from sift_core import cosine_similarities
from sift_core.errors import InvalidInputError


@pytest.fixture(params=["C", "F"])
def memory(request):
    """The order in memory: rows that lie one after another are multiplied by compiled code."""
    return request.param


def test_cosines_by_hand(memory):
    # (3, 4) with (1, 0), (-3, -4), (0, 0), (8, 6): 0.6, -1, 0, 48 / 50
    embeddings = np.asarray([[1, 0], [-3, -4], [0, 0], [8, 6]], np.float32, order=memory)
    cosines = cosine_similarities(np.float32([3, 4]), embeddings)
    assert cosines == pytest.approx([0.6, -1, 0, 0.96])
    assert cosines.dtype == np.float32


def test_of_several_queries_the_nearest_counts(memory):
    embeddings = np.asarray([[1, 0], [0, 2], [-3, -4]], np.float32, order=memory)
    cosines = cosine_similarities(np.float32([[3, 4], [1, 0]]), embeddings)
    assert cosines == pytest.approx([1, 0.8, -0.6])
    with pytest.raises(InvalidInputError, match="query"):
        cosine_similarities(np.empty((0, 2)), embeddings)


def test_a_zero_query_has_cosine_zero_with_everything():
    assert cosine_similarities(np.zeros(2), np.eye(2, dtype=np.float32)).tolist() == [0, 0]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_querys_type_costs_no_accuracy(dtype, memory):
    # In half precision 300² · 4 overflows, and a norm has only three digits.
    query = np.array([300, 301, -290, 7], dtype=dtype)
    embeddings = np.random.default_rng(0).standard_normal((50, 4)).astype(np.float32, order=memory)
    exact = embeddings.astype(float) @ query.astype(float)
    exact /= np.linalg.norm(embeddings.astype(float), axis=1) * np.linalg.norm(query.astype(float))
    np.testing.assert_allclose(cosine_similarities(query, embeddings), exact, rtol=0, atol=1e-6)


@pytest.mark.parametrize("size", [1e-300, 1e-30, 1e30, 1e300])
def test_a_querys_length_does_not_matter_however_large_or_small(size, memory):
    embeddings = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32, order=memory)
    expected = cosine_similarities(np.array([1.0, -2.0, 3.0, 0.5]), embeddings)
    scaled = cosine_similarities(np.array([1.0, -2.0, 3.0, 0.5]) * size, embeddings)
    np.testing.assert_allclose(scaled, expected, rtol=1e-6)


def test_without_vecdot_the_cosines_are_the_same(monkeypatch):
    embeddings = np.random.default_rng(0).standard_normal((50, 7)).astype(np.float32)
    expected = cosine_similarities(embeddings[3], embeddings)
    embeddings = np.asfortranarray(embeddings)
    monkeypatch.delattr(np, "vecdot", raising=False)
    np.testing.assert_allclose(cosine_similarities(embeddings[3], embeddings), expected, atol=1e-7)


def test_cosines_stay_in_range(memory):
    embeddings = (
        np.random.default_rng(0).standard_normal((2000, 3)).astype(np.float32, order=memory)
    )
    cosines = [cosine_similarities(x, embeddings) for x in embeddings[:50]]
    assert np.abs(cosines).max() <= 1.0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_copies_of_a_row_have_one_cosine_wherever_they_stand(dtype, memory):
    row, query = np.random.default_rng(1).standard_normal((2, 37)).astype(dtype)
    found = cosine_similarities(query, np.asarray(np.tile(row, (301, 1)), order=memory))
    assert len(set(found.tolist())) == 1


def test_the_two_forms_tell_the_same():
    embeddings = np.random.default_rng(2).standard_normal((500, 384)).astype(np.float32)
    compiled = cosine_similarities(embeddings[7], embeddings)
    np.testing.assert_array_equal(
        cosine_similarities(embeddings[7], np.asfortranarray(embeddings)), compiled
    )


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_refused(wrong, memory):
    embeddings = np.ones((3, 4), dtype=np.float32, order=memory)
    embeddings[1, 2] = wrong
    with pytest.raises(InvalidInputError, match="`embeddings`"):
        cosine_similarities(np.ones(4), embeddings)
    with pytest.raises(InvalidInputError, match="`query`"):
        cosine_similarities(np.array([1, wrong, 1, 1]), np.ones((3, 4)))
    with pytest.raises(InvalidInputError, match="columns"):
        cosine_similarities(np.ones(5), np.ones((3, 4), dtype=np.float32, order=memory))
