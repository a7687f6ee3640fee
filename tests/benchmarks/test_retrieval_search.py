import numpy as np
import pytest

from benchmarks.retrieval_search import nearest, pools


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
