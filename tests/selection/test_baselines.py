import numpy as np
import pytest

from sift_core.errors import InvalidInputError
from sift_core.selection import LinearKernel, NearestNeighborSelector, posterior_variances
from sift_core.types import StopReason


def test_orders_by_cosine_whatever_the_lengths():
    # Cosines with (1, 0): 0.6, 1, -1, 0.8
    candidates = [[60.0, 80.0], [0.1, 0.0], [-5.0, 0.0], [4.0, 3.0]]
    chosen = NearestNeighborSelector().select([2.0, 0.0], candidates, 4)
    assert chosen.positions.tolist() == [1, 3, 0, 2]
    assert chosen.stop_reason is StopReason.N_SELECT


def test_variances_by_hand():
    # Linear, λ = 1, cosine 0.8: 1 - 0.64 / 2 = 0.68
    selector = NearestNeighborSelector(kernel=LinearKernel(), noise_variance=1.0)
    assert selector.select([1, 0], [[4, 3]], 1).variances == pytest.approx([1, 0.68])


def test_kernel_and_noise_play_no_part_in_the_choice():
    rng = np.random.default_rng(0)
    query, candidates = rng.standard_normal(8), rng.standard_normal((20, 8))
    default = NearestNeighborSelector().select(query, candidates, 5)
    other = NearestNeighborSelector(kernel=LinearKernel(), noise_variance=9.0)
    chosen = other.select(query, candidates, 5)
    assert chosen.positions.tolist() == default.positions.tolist()
    expected = posterior_variances(
        query, candidates[chosen.positions], kernel=LinearKernel(), noise_variance=9.0
    )
    np.testing.assert_array_equal(chosen.variances, expected)


def test_returns_fewer_when_the_pool_is_small():
    chosen = NearestNeighborSelector().select([1.0, 0], np.eye(2), 5)
    assert chosen.positions.tolist() == [0, 1]
    assert chosen.stop_reason is StopReason.POOL_EXHAUSTED


def test_an_empty_pool():
    chosen = NearestNeighborSelector().select([1.0, 0], [], 5)
    assert len(chosen) == 0
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


@pytest.mark.parametrize("noise_variance", [0, -1, np.nan])
def test_refuses_a_noise_variance_out_of_range(noise_variance):
    with pytest.raises(InvalidInputError, match="noise_variance"):
        NearestNeighborSelector(noise_variance=noise_variance).select([1.0], [[1.0]], 1)
