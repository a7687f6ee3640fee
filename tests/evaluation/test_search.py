import numpy as np
import pytest

from sift_core import InvalidInputError
from sift_core.evaluation.search import nearest, pools, unit_rows


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


def test_a_pool_has_as_many_as_asked_for():
    rows = np.eye(8, dtype=np.float32)
    assert next(pools(rows[:1], rows, 3)).rows.tolist() == [0, 1, 2]
    assert len(next(pools(rows[:1], rows, 99)).rows) == 8


def test_unit_rows_stay_and_others_are_scaled():
    rows = np.eye(3, dtype=np.float32)
    assert unit_rows(rows, "row") is rows
    np.testing.assert_allclose(unit_rows(3 * rows[:2], "row"), rows[:2])


def test_an_embedding_without_a_direction_is_refused():
    with pytest.raises(InvalidInputError, match="that of passage 1"):
        unit_rows(np.array([[1.0, 0.0], [0.0, 0.0]]), "passage")
