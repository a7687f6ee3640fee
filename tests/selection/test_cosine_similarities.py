import numpy as np
import pytest

from sift_core.selection.kernels import cosine_similarities


def test_cosines_by_hand():
    # (3, 4) with (1, 0), (-3, -4), (0, 0), (8, 6): 0.6, -1, 0, 48 / 50
    embeddings = np.float32([[1, 0], [-3, -4], [0, 0], [8, 6]])
    cosines = cosine_similarities(np.float32([3, 4]), embeddings)
    assert cosines == pytest.approx([0.6, -1, 0, 0.96])
    assert cosines.dtype == np.float32


def test_a_zero_query_has_cosine_zero_with_everything():
    assert cosine_similarities(np.zeros(2), np.eye(2, dtype=np.float32)).tolist() == [0, 0]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_querys_type_costs_no_accuracy(dtype):
    # In half precision 300² · 4 overflows, and a norm has only three digits.
    query = np.array([300, 301, -290, 7], dtype=dtype)
    embeddings = np.random.default_rng(0).standard_normal((50, 4)).astype(np.float32)
    exact = embeddings.astype(float) @ query.astype(float)
    exact /= np.linalg.norm(embeddings.astype(float), axis=1) * np.linalg.norm(query.astype(float))
    np.testing.assert_allclose(cosine_similarities(query, embeddings), exact, rtol=0, atol=1e-6)


@pytest.mark.parametrize("size", [1e-300, 1e-30, 1e30, 1e300])
def test_a_querys_length_does_not_matter_however_large_or_small(size):
    embeddings = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
    expected = cosine_similarities(np.array([1.0, -2.0, 3.0, 0.5]), embeddings)
    scaled = cosine_similarities(np.array([1.0, -2.0, 3.0, 0.5]) * size, embeddings)
    np.testing.assert_allclose(scaled, expected, rtol=1e-6)


def test_without_vecdot_the_cosines_are_the_same(monkeypatch):
    embeddings = np.random.default_rng(0).standard_normal((50, 7)).astype(np.float32)
    expected = cosine_similarities(embeddings[3], embeddings)
    monkeypatch.delattr(np, "vecdot", raising=False)
    np.testing.assert_allclose(cosine_similarities(embeddings[3], embeddings), expected, atol=1e-7)


def test_cosines_stay_in_range():
    embeddings = np.random.default_rng(0).standard_normal((2000, 3)).astype(np.float32)
    cosines = [cosine_similarities(x, embeddings) for x in embeddings[:50]]
    assert np.abs(cosines).max() <= 1.0


def test_no_embeddings_give_no_cosines():
    assert cosine_similarities(np.ones(3), np.empty((0, 3), dtype=np.float32)).shape == (0,)
