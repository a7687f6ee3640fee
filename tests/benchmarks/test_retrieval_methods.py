from itertools import pairwise

import numpy as np
import pytest

from benchmarks.retrieval_methods import dpp, is_tuned_rival, methods
from sift_core.evaluation.search import Pool, pools


def pool(seed=0, n=60, d=16):
    generator = np.random.default_rng(seed)
    rows = generator.standard_normal((n + 1, d), dtype=np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return next(pools(rows[:1], rows[1:]))


def pool_of(similarities, rows):
    rows = np.array(rows, dtype=np.float32)
    similarities = np.array(similarities, dtype=np.float32)
    return Pool(
        query=rows[0], embeddings=rows, similarities=similarities, rows=np.arange(len(rows))
    )


def dense_dpp(pool, n, a):
    """Return greedy MAP by determinants of L."""
    weights = np.exp(a * pool.similarities.astype(np.float64))
    rows = pool.embeddings.astype(np.float64)
    matrix = weights[:, None] * (rows @ rows.T) * weights
    chosen = []
    for _ in range(n):
        free = [i for i in range(len(rows)) if i not in chosen]
        determinants = [np.linalg.det(matrix[np.ix_([*chosen, i], [*chosen, i])]) for i in free]
        chosen.append(free[int(np.argmax(determinants))])
    return chosen


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("a", [0, 4, 8])
def test_dpp_equals_the_greedy_by_determinants(seed, a):
    one = pool(seed)
    assert dpp(one, 10, sharpness=a).tolist() == dense_dpp(one, 10, a)


def test_dpp_ends_where_only_copies_are_left():
    one = pool_of([0.9, 0.9, 0.1], [[1, 0], [1, 0], [0, 1]])
    assert dpp(one, 3, sharpness=4).tolist() == [0, 2]


def test_the_tables_name_each_setting():
    names = list(methods())
    assert {"nn", "sift", "sift_paper", "mmr .7", "dpp a=8", "ssd .3", "cover .1"} <= set(names)
    rivals = [name.split()[0] for name in names if is_tuned_rival(name)]
    assert [a for a, b in pairwise([*rivals, ""]) if a != b] == ["mmr", "dpp", "pyversity"]
