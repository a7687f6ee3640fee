"""Several queries for a prompt: each has its region, and its turns."""

import numpy as np
import pytest

from sift_core import ContextSelector, Limits, Preferences
from sift_core.errors import InvalidInputError
from sift_core.selection.context import distinct
from sift_core.selection.region import region_weights, typical_distance_of_each
from tests.selection.oracle import unit
from tests.selection.test_context import text_like, with_near_duplicates


def two_topics(seed, n_first=60, n_second=60, *, d=32):
    """Return two queries (2, d), the candidates of both, and of which query each is."""
    first, of_first = text_like(seed, n_first, d=d)
    second, of_second = text_like(seed + 1, n_second, d=d)
    turned = np.roll(np.eye(d), d // 2, axis=0) * np.where(np.arange(d) % 2, 1, -1)
    rows = np.concatenate([of_first, of_second @ turned])
    topic = np.repeat([0, 1], [n_first, n_second])
    order = np.random.default_rng(seed).permutation(len(rows))
    return np.stack([first, second @ turned]), rows[order], topic[order]


def chosen(query, candidates, n=8, *, backend="numpy", **others):
    return ContextSelector(backend=backend).select(query, candidates, n, **others)


@pytest.mark.parametrize("other", [None, "preferences", "relevance", "limits"])
def test_the_same_query_several_times_is_one(backend, other):
    for seed in range(3):
        query, candidates, _ = with_near_duplicates(seed, 20, 3)
        values = np.random.default_rng(seed).uniform(1, 2, len(candidates))
        values_of = {
            "preferences": Preferences(prefer=values),
            "relevance": values,
            "limits": Limits(costs=values, budget=9.0),
        }
        told = {other: values_of[other]} if other else {}
        once = chosen(query, candidates, backend=backend, **told)
        for queries in (query[None], np.stack([query] * 3)):
            again = chosen(queries, candidates, backend=backend, **told)
            assert again.positions.tolist() == once.positions.tolist()
            np.testing.assert_allclose(again.variances, once.variances, atol=1e-12)


@pytest.mark.parametrize("n_first", [20, 60, 300])
def test_each_has_its_share_however_many_candidates_it_has(backend, n_first):
    for seed in range(3):
        queries, rows, topic = two_topics(seed, n_first)
        found = topic[chosen(queries, rows, backend=backend).positions]
        assert found.tolist() == [0, 1] * 4
        found = topic[chosen(queries[[0, 0, 1]], rows, backend=backend).positions]
        assert found.tolist() == [0, 0, 1, 0, 0, 1, 0, 0]  # two shares of a query passed twice


@pytest.mark.parametrize("stop", [{}, {"min_gain": 0.02}, {"max_variance": 0.7}, {"alpha": 0.2}])
def test_compiled_code_chooses_what_numpy_does(stop):
    pytest.importorskip("numba", reason="needs the extra fast")
    for seed in range(6):
        queries, rows, topic = two_topics(seed, 40, 80)
        third = unit(queries.sum(axis=0) + 0.1)[None]
        rng = np.random.default_rng(seed)
        costs = rng.uniform(1, 5, 120)
        limits = Limits(costs=costs, budget=20.0, groups=topic, max_per_group=5)
        for told in ({}, {"limits": limits}, {"preferences": Preferences(prior=costs)}):
            by_numpy, by_numba = (
                ContextSelector(backend=backend, **stop).select(
                    np.concatenate([queries, third]), rows, 12, **told
                )
                for backend in ("numpy", "numba")
            )
            assert by_numba.positions.tolist() == by_numpy.positions.tolist()
            assert by_numba.stop_reason is by_numpy.stop_reason
            np.testing.assert_allclose(by_numba.variances, by_numpy.variances, atol=1e-10)


def test_variance_is_that_of_all_regions(backend):
    queries, rows, _ = two_topics(2)
    found = chosen(queries, rows, 120, backend=backend)
    assert found.variances[0] == pytest.approx(1)
    assert (found.gains >= 0).all()
    assert found.variances[-1] < 0.3
    assert sorted(found.positions.tolist()) == list(range(120))


def test_relevance_is_one_order_for_all_or_one_for_each(backend):
    queries, rows, _ = two_topics(3)
    cosines = unit(queries) @ rows.T
    plain = chosen(queries, rows, backend=backend)
    ranked = chosen(queries, rows, backend=backend, relevance=cosines**3)
    assert ranked.positions.tolist() == plain.positions.tolist()
    swapped = chosen(queries, rows, backend=backend, relevance=cosines[::-1])
    assert swapped.positions.tolist() != plain.positions.tolist()
    best = int(np.argmin(cosines.max(axis=0)))
    for_all = chosen(queries, rows, backend=backend, relevance=np.arange(120) == best)
    assert best in for_all.positions[:2]
    with pytest.raises(InvalidInputError, match="one row a query: 2 query"):
        chosen(queries, rows, backend=backend, relevance=np.ones((3, 120)))


def test_distinct_takes_near_duplicates_of_both_once():
    queries, rows, _ = two_topics(4, 30, 30)
    rng = np.random.default_rng(0)
    copies = unit(np.repeat(rows, 3, axis=0) + 0.02 * unit(rng.standard_normal((180, 32))))
    kept = distinct(queries, copies)
    assert sorted((kept // 3).tolist()) == list(range(60))
    assert distinct(queries[:1], copies).tolist() == distinct(queries[0], copies).tolist()


def test_a_question_without_candidates_of_its_own_says_nothing_of_distances():
    cosines = np.full((4, 4), 0.9)
    np.fill_diagonal(cosines, 1.0)
    ranks = np.array([[0, 1, 2, 3], [3, 4, 5, 6]])  # all are nearer to the first
    assert typical_distance_of_each(cosines, ranks) == pytest.approx(0.1)
    one_each = np.array([[0, 1], [1, 0]])
    assert typical_distance_of_each(cosines[:2, :2], one_each) == pytest.approx(0.1)
    assert typical_distance_of_each(np.ones((4, 4)), ranks) == 1.0


def test_spread_is_read_from_what_is_near_the_own_query():
    # Of the second query's candidates the first knows that they are far, and no more.
    near = np.array([0.9, 0.8, 0.7])
    alone = region_weights(3, np.arange(3), near[None], np.arange(3)[None], None)[0]
    relevance = np.array([[0.9, 0.8, 0.7, 0.0, 0.0], [0.0, 0.0, 0.0, 0.5, 0.4]])
    ranks = np.array([[0, 1, 2, 3, 4], [2, 3, 4, 0, 1]])
    weights = region_weights(5, np.arange(5), relevance, ranks, None)
    np.testing.assert_allclose(weights[0, :3], alone, atol=1e-6)
    np.testing.assert_allclose(weights.sum(axis=1), 1)
