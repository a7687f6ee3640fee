import numpy as np
import pytest

from sift_core import (
    HullReconstructionSelector,
    LinearKernel,
    MMRSelector,
    NearestNeighborSelector,
    RepeatedNeighborSelector,
    UncertaintySamplingSelector,
    posterior_variances,
)
from sift_core.errors import InvalidInputError
from sift_core.types import StopReason
from tests.selection.oracle import random_pool, under, unit

BASELINES = [
    HullReconstructionSelector,
    MMRSelector,
    NearestNeighborSelector,
    RepeatedNeighborSelector,
    UncertaintySamplingSelector,
]


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


def test_the_failure_mode_repeats_the_nearest_one_by_hand():
    # Linear, λ = .01, cosine .8 with the nearest; n looks at it act as one with λ / n.
    chosen = RepeatedNeighborSelector().select([1, 0], [[3, 4], [4, 3]], 3)
    assert chosen.positions.tolist() == [1, 1, 1]
    expected = [1, *(1 - 0.64 / (1 + 0.01 / n) for n in (1, 2, 3))]
    assert chosen.variances == pytest.approx(expected)
    assert chosen.stop_reason is StopReason.N_SELECT


def test_the_failure_mode_repeats_what_plain_retrieval_puts_first():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        query, candidates = rng.standard_normal(5), rng.standard_normal((4, 5))
        candidates = candidates[rng.permutation(np.arange(20) % 4)]  # copies: ties
        first = NearestNeighborSelector().select(query, candidates, 1).positions
        chosen = RepeatedNeighborSelector().select(query, candidates, 7)
        assert chosen.positions.tolist() == first.tolist() * 7


def test_uncertainty_sampling_by_hand():
    # Linear, λ = 1: after x_0 = e_1, σ² = 1/2 for both copies of e_1 and 1 for e_2; then all
    # have 1/2 left. The query e_1 learns from looks at e_1 alone: 1, 1/2, 1/2, 1/3.
    candidates = [[1.0, 0], [3, 0], [0, 2]]
    settings = under(1.0)
    chosen = UncertaintySamplingSelector(**settings).select([1, 0], candidates, 5)
    assert chosen.positions.tolist() == [0, 2, 1]
    assert chosen.variances == pytest.approx([1, 1 / 2, 1 / 2, 1 / 3])
    assert chosen.stop_reason is StopReason.POOL_EXHAUSTED
    chosen = UncertaintySamplingSelector(**settings, allow_repeats=True).select(
        [1, 0], candidates, 5
    )
    # After another look at e_1 its copies have 1/3 left and e_2 1/2; then all 1/3 again.
    assert chosen.positions.tolist() == [0, 2, 0, 2, 0]
    assert chosen.stop_reason is StopReason.N_SELECT


def test_uncertainty_sampling_does_not_see_the_query():
    rng = np.random.default_rng(5)
    candidates = rng.standard_normal((30, 6))
    first, second = (
        UncertaintySamplingSelector().select(rng.standard_normal(6), candidates, 10)
        for _ in range(2)
    )
    np.testing.assert_array_equal(first.positions, second.positions)
    assert (first.variances != second.variances).any()


def test_uncertainty_sampling_takes_longer_vectors_first_where_length_counts():
    rng = np.random.default_rng(6)
    query, candidates = rng.standard_normal(6), rng.standard_normal((12, 6))
    selector = UncertaintySamplingSelector(kernel=LinearKernel(normalize=False))
    chosen = selector.select(query, candidates, 6).positions
    assert chosen[0] == np.linalg.norm(candidates, axis=1).argmax()
    order = rng.permutation(12)
    shuffled = selector.select(query, candidates[order], 6).positions
    assert order[shuffled].tolist() == chosen.tolist()


@pytest.mark.parametrize("allow_repeats", [False, True])
def test_uncertainty_sampling_of_candidates_that_know_nothing_of_themselves(allow_repeats):
    # All variances are 0 and tie.
    selector = UncertaintySamplingSelector(
        kernel=LinearKernel(normalize=False), allow_repeats=allow_repeats
    )
    chosen = selector.select([1.0, 0], np.zeros((2, 2)), 3)
    assert chosen.positions.tolist() == ([0, 0, 0] if allow_repeats else [0, 1])
    assert chosen.variances.tolist() == [1.0] * (len(chosen) + 1)


def test_uncertainty_sampling_cannot_repeat_in_an_empty_pool():
    chosen = UncertaintySamplingSelector(allow_repeats=True).select([1.0, 0], [], 5)
    assert len(chosen) == 0
    assert chosen.stop_reason is StopReason.POOL_EXHAUSTED


@pytest.mark.parametrize("baseline", [b for b in BASELINES if b is not UncertaintySamplingSelector])
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
    again = RepeatedNeighborSelector().select(query, candidates, 2, relevance=relevance)
    assert chosen.positions.tolist() == [1, 2]
    assert again.positions.tolist() == [1, 1]


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
