import numpy as np
import pytest

from sift_core import InvalidInputError, NearestNeighborSelector, RepeatedNeighborSelector
from sift_core.evaluation.retrieval.methods import as_methods, choose, default_methods, mmr
from sift_core.evaluation.retrieval.search import Pool, pools


def pool(seed=0, n=60, d=16, common=0.0):
    rows = np.random.default_rng(seed).standard_normal((n + 1, d), dtype=np.float32) + common
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return next(pools(rows[:1], rows[1:]))


def mmr_by_definition(one, n, weight):
    chosen = [0]
    for _ in range(n - 1):
        scores = {
            i: weight * one.similarities[i]
            - (1 - weight) * max(one.embeddings[i] @ one.embeddings[j] for j in chosen)
            for i in range(len(one.rows))
            if i not in chosen
        }
        chosen.append(max(scores, key=scores.get))
    return chosen


@pytest.mark.parametrize("weight", [0.0, 0.3, 0.7, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_mmr_equals_its_definition(seed, weight):
    one = pool(seed)
    assert mmr(one, 10, weight=weight).tolist() == mmr_by_definition(one, 10, weight)


@pytest.mark.parametrize("weight", [0.3, 0.5, 0.7, 0.9])
@pytest.mark.parametrize("seed", range(5))
def test_mmr_equals_that_of_pyversity(seed, weight):
    pyversity = pytest.importorskip("pyversity")
    one = pool(seed, d=64, common=1.0)  # theirs takes a negative cosine for 0
    theirs = pyversity.diversify(
        one.embeddings,
        one.similarities,
        20,
        strategy=pyversity.Strategy.MMR,
        diversity=1.0 - weight,
    )
    assert mmr(one, 20, weight=weight).tolist() == theirs.indices.tolist()


def test_mmr_with_all_weight_on_relevance_is_nearest_neighbors():
    assert mmr(pool(), 20, weight=1.0).tolist() == list(range(20))


def test_mmr_ends_with_the_pool():
    assert sorted(mmr(pool(n=3), 20, weight=0.5).tolist()) == [0, 1, 2]
    empty = Pool(
        query=np.ones(2), embeddings=np.ones((0, 2)), similarities=np.ones(0), rows=np.arange(0)
    )
    assert mmr(empty, 20, weight=0.5).size == 0


@pytest.mark.parametrize("name", default_methods())
def test_every_method_chooses_distinct_positions(name):
    one = pool(d=64)
    chosen = default_methods()[name](one, 20).tolist()
    assert len(set(chosen)) == len(chosen) == 20
    assert choose(name, default_methods()[name], one, 20).tolist() == chosen


def test_the_rows_name_each_method():
    assert {"nn", "sift", "sift_paper", "us", "mmr .7"} <= set(default_methods())


def test_a_selector_is_a_method():
    methods = as_methods({"own": NearestNeighborSelector()})
    assert choose("own", methods["own"], pool(), 5).tolist() == [0, 1, 2, 3, 4]


def test_a_position_counts_once():
    methods = as_methods({"again": RepeatedNeighborSelector()})
    assert choose("again", methods["again"], pool(), 5).tolist() == [0]


@pytest.mark.parametrize(
    "positions", [[0, 60], [-1], [0.5], [[1, 2]], list(range(6)), [True, False]]
)
def test_what_is_no_choice_is_refused(positions):
    with pytest.raises(InvalidInputError, match="method 'own' must choose at most 5 positions"):
        choose("own", lambda one, n: positions, pool(), 5)


def test_nothing_may_be_chosen():
    assert choose("none", lambda one, n: [], pool(), 5).size == 0


@pytest.mark.parametrize("methods", [{}, {"own": "mmr"}])
def test_what_is_no_method_is_refused(methods):
    with pytest.raises(InvalidInputError, match="method"):
        as_methods(methods)
