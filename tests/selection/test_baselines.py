import numpy as np
import pytest

from sift_core import MMRSelector, NearestNeighborSelector, posterior_variances
from sift_core.errors import InvalidInputError
from sift_core.types import StopReason
from tests.selection.oracle import random_pool, unit

BASELINES = [MMRSelector, NearestNeighborSelector]


def test_orders_by_cosine_whatever_the_lengths():
    # Cosines with (1, 0): 0.6, 1, -1, 0.8
    candidates = [[60.0, 80.0], [0.1, 0.0], [-5.0, 0.0], [4.0, 3.0]]
    chosen = NearestNeighborSelector().select([2.0, 0.0], candidates, 4)
    assert chosen.positions.tolist() == [1, 3, 0, 2]
    assert chosen.stop_reason is StopReason.N_SELECT


def test_returns_fewer_when_the_pool_is_small():
    chosen = NearestNeighborSelector().select([1.0, 0], np.eye(2), 5)
    assert chosen.positions.tolist() == [0, 1]
    assert chosen.stop_reason is StopReason.POOL_EXHAUSTED


@pytest.mark.parametrize("d", [3, 100, 768])
def test_copies_are_chosen_from_the_lowest_position_up(d):
    for seed in range(20):
        rng = np.random.default_rng(seed)
        labels = rng.permutation(np.arange(int(rng.integers(10, 200))) % 5)
        candidates = rng.standard_normal((5, d))[labels]
        chosen = NearestNeighborSelector().select(rng.standard_normal(d), candidates, len(labels))
        for label in range(5):
            picked = [int(i) for i in chosen.positions if labels[i] == label]
            assert picked == sorted(picked)


@pytest.mark.parametrize("baseline", BASELINES)
def test_the_nearest_to_several_queries_are_not_defined(baseline):
    with pytest.raises(InvalidInputError, match="1 dimension"):
        baseline().select(np.eye(2), np.eye(2), 1)


@pytest.mark.parametrize("baseline", BASELINES)
class TestEveryBaseline:
    def test_reports_the_variances_of_its_choice(self, baseline):
        query, candidates = random_pool(7, n=15, d=6)
        chosen = baseline().select(query, candidates, 6)
        expected = posterior_variances(query, candidates[chosen.positions])
        np.testing.assert_allclose(chosen.variances, expected, rtol=1e-12)
        assert len(chosen) == 6

    def test_leaves_its_input_alone(self, baseline):
        query, candidates = random_pool(8, n=15, d=6, dtype=np.float32)
        before = query.copy(), candidates.copy()
        query.flags.writeable = candidates.flags.writeable = False
        baseline().select(query, candidates, 6)
        np.testing.assert_array_equal(query, before[0])
        np.testing.assert_array_equal(candidates, before[1])

    def test_chooses_none_when_asked_for_none(self, baseline):
        chosen = baseline().select([1.0, 0], np.eye(2), 0)
        assert chosen.positions.tolist() == []
        assert chosen.positions.dtype.kind == "i"
        assert chosen.variances.tolist() == [1.0]
        assert chosen.stop_reason is StopReason.N_SELECT

    @pytest.mark.parametrize("empty", [[], np.empty((0, 2)), np.empty((0, 0))])
    def test_an_empty_pool(self, baseline, empty):
        chosen = baseline().select([1.0, 0], empty, 5)
        assert len(chosen) == 0
        assert chosen.variances.tolist() == [1.0]
        assert chosen.stop_reason is StopReason.POOL_EXHAUSTED

    def test_one_candidate_in_one_dimension(self, baseline):
        assert baseline().select([2.0], [[-3.0]], 1).positions.tolist() == [0]


def test_nearest_neighbors_go_by_the_relevance_that_is_given():
    candidates = np.eye(3)
    relevance = np.array([0.1, 3.0, 2.0])
    query = np.array([1.0, 0.5, 0.1])
    chosen = NearestNeighborSelector().select(query, candidates, 2, relevance=relevance)
    assert chosen.positions.tolist() == [1, 2]


@pytest.mark.parametrize("weight", [0.0, 0.3, 0.7, 1.0])
def test_mmr_equals_its_definition(weight):
    query, candidates = random_pool(3, n=25, d=6)
    rows = unit(candidates)
    nearness = rows @ unit(query)
    expected = [int(np.argmax(nearness))]
    while len(expected) < 10:
        rest = [i for i in range(25) if i not in expected]
        worth = [
            weight * nearness[i] - (1 - weight) * max(rows[i] @ rows[j] for j in expected)
            for i in rest
        ]
        expected.append(rest[int(np.argmax(worth))])
    found = MMRSelector(relevance_weight=weight).select(query, candidates, 10)
    assert found.positions.tolist() == expected


def test_mmr_goes_by_the_relevance_that_is_given_and_leaves_copies_out():
    candidates = np.array([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.6, 0.8, 0.0], [0.0, 0.1, 1.0]])
    selector = MMRSelector(relevance_weight=0.5)
    assert selector.select(candidates[0], candidates, 2).positions[0] == 0
    given = np.array([0.0, 0.1, 5.0, 0.2])
    chosen = selector.select(candidates[0], candidates, 9, relevance=given)
    assert chosen.positions[0] == 2
    assert chosen.stop_reason is StopReason.POOL_EXHAUSTED
    assert len(selector.select(candidates[0], candidates[:0], 3)) == 0


@pytest.mark.parametrize("weight", [-0.1, 1.1, np.nan])
def test_mmr_refuses_a_weight_out_of_range(weight):
    with pytest.raises(InvalidInputError, match="relevance_weight"):
        MMRSelector(relevance_weight=weight)
