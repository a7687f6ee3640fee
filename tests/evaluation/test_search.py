import numpy as np
import pytest

from sift_core import InvalidInputError
from sift_core.evaluation.search import Versions, nearest, noisy_copies, pools, unit_rows


@pytest.mark.parametrize(
    ("n", "positions"), [(0, []), (1, [1]), (2, [1, 3]), (3, [1, 3, 0]), (9, [1, 3, 0, 2, 4])]
)
def test_nearest_breaks_ties_by_position(n, positions):
    similarities = np.array([0.5, 0.9, 0.5, 0.9, 0.5], dtype=np.float32)
    assert nearest(similarities, n).tolist() == positions


def test_a_pool_holds_the_nearest_in_order():
    rows = np.random.default_rng(0).standard_normal((400, 8), dtype=np.float32)
    queries = rows[:100] + 0.1
    for query, pool in zip(queries, pools(queries, rows), strict=True):
        exact = np.argsort(-(rows @ query), kind="stable")[:200]
        assert set(pool.rows) == set(exact)
        assert (np.diff(pool.similarities) <= 0).all()
        np.testing.assert_array_equal(pool.embeddings, rows[pool.rows])
        np.testing.assert_array_equal(pool.query, query)


def test_unit_rows_stay_and_others_are_scaled():
    rows = np.eye(3, dtype=np.float32)
    assert unit_rows(rows, "row") is rows
    np.testing.assert_allclose(unit_rows(3 * rows[:2], "row"), rows[:2])
    with pytest.raises(InvalidInputError, match="that of passage 1"):
        unit_rows(np.array([[1.0, 0.0], [0.0, 0.0]]), "passage")


def plain(n=500, d=384):
    rows = np.random.default_rng(99).standard_normal((n, d), dtype=np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return Versions(condition="as is", embeddings=rows, originals=np.arange(n))


def test_noisy_copies_have_the_cosine_of_their_noise():
    # |x + .3 u|² = 1.09 + .6 cos(x, u): the cosine is 1/√1.09 = .958 where u is at right angles.
    original, copies = plain(), noisy_copies(plain(), 4, seed=0)
    cosines = (copies.embeddings * original.embeddings[copies.originals]).sum(axis=1)
    assert cosines.mean() == pytest.approx(1.09**-0.5, abs=0.001)
    assert cosines.std() < 0.01
    assert cosines.max() < 0.98  # none is the embedding itself
    np.testing.assert_allclose(np.linalg.norm(copies.embeddings, axis=1), 1.0, rtol=1e-6)
    assert copies.embeddings.dtype == np.float32
    assert copies.condition == "duplicates 4"
    np.testing.assert_array_equal(np.bincount(copies.originals), np.full(500, 4))


def test_noisy_copies_are_seeded_and_fewer_are_the_first_of_more():
    two, four = (noisy_copies(plain(), n, seed=3) for n in (2, 4))
    np.testing.assert_array_equal(two.embeddings, four.embeddings[:1000])
    assert not np.array_equal(two.embeddings, noisy_copies(plain(), 2, seed=4).embeddings)


def test_rows_that_are_left_out_make_room_for_others():
    rows = np.eye(4, dtype=np.float32)
    query = np.array([[0.8, 0.6, 0.3, 0.1]], dtype=np.float32)
    (pool,) = pools(query, rows, 2, left_out=[[0, 2]])
    assert pool.rows.tolist() == [1, 3]
    (pool,) = pools(query, rows, 2)
    assert pool.rows.tolist() == [0, 1]
