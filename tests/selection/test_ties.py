"""Where a last digit would change the choice: ties go to the lowest position."""

import numpy as np
import pytest

from sift_core import RBFKernel
from sift_core.types import StopReason
from tests.selection.oracle import KERNELS


@pytest.mark.parametrize("kernel", KERNELS)
def test_ties_go_to_the_lowest_position(choose, kernel):
    # e₂, e₃ and e₄ are equally far from the query by symmetry.
    candidates = np.eye(4)[[3, 1, 2, 0]]
    chosen = choose([2.0, 1, 1, 1], candidates, 4, kernel=KERNELS[kernel], noise=0.1)
    assert chosen.positions.tolist() == [3, 0, 1, 2]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("allow_repeats", [True, False])
@pytest.mark.parametrize("noise", [1e-12, 1e-2, 1e4])
@pytest.mark.parametrize("kernel", KERNELS)
def test_copies_are_chosen_from_the_lowest_position_up(choose, kernel, noise, allow_repeats, dtype):
    # BLAS sums the last rows of a matrix in another order than the first, so that copies
    # need not tie bit for bit unless the selector sees to it. Small λ amplifies that.
    for seed in range(12):
        rng = np.random.default_rng(seed)
        d = int(rng.choice([3, 100, 768]))
        originals = rng.standard_normal((5, d)).astype(dtype)
        labels = rng.permutation(np.arange(int(rng.integers(10, 200))) % 5)
        chosen = choose(
            rng.standard_normal(d).astype(dtype),
            originals[labels],
            30,
            kernel=KERNELS[kernel],
            noise=noise,
            allow_repeats=allow_repeats,
        ).positions
        for label in range(5):
            copies = np.flatnonzero(labels == label).tolist()
            picked = [int(i) for i in chosen if labels[i] == label]
            if allow_repeats:
                assert set(picked) <= {copies[0]}
            else:
                assert picked == copies[: len(picked)]


def test_a_negative_zero_makes_no_difference_between_copies(choose):
    for seed in range(12):
        rng = np.random.default_rng(seed)
        candidates = np.tile(rng.standard_normal(100), (203, 1))
        candidates[:, 0] = np.where(np.arange(203) < 202, 0.0, -0.0)  # the last sums differently
        query = rng.standard_normal(100)
        chosen = choose(query, candidates, 5, noise=1e-9, allow_repeats=True)
        assert set(chosen.positions.tolist()) == {0}


def test_vectors_that_tie_only_up_to_rounding_count_as_tied(choose):
    # The same numbers in another order: cosines with (1, ..., 1) are equal but for the order
    # of summation.
    for seed in range(12):
        rng = np.random.default_rng(seed)
        numbers = rng.random(101)
        candidates = np.array([rng.permutation(numbers) for _ in range(50)])
        for kernel in KERNELS.values():
            assert choose(np.ones(101), candidates, 1, kernel=kernel).positions.tolist() == [0]


def test_a_candidate_tells_no_more_than_all_of_the_query(choose):
    # A cosine of 1 + 2e-16 times 1 / length_scale² would make k 9 instead of 1.
    for seed in range(20):
        query = np.random.default_rng(seed).standard_normal(50)
        kernel = RBFKernel(length_scale=1e-8)
        chosen = choose(query, [query, -query], 1, kernel=kernel, noise=1.0)
        assert chosen.variances[-1] >= 0.5


@pytest.mark.parametrize(("alpha", "n_chosen"), [(2.0, 1), (2.0 + 1e-12, 0)])
def test_a_step_that_just_pays_is_taken(choose, alpha, n_chosen):
    # 1 - 1 / (1 + 1/3) = 1/4 exactly: σ = 1/2 = 1 / (2 · 1)
    chosen = choose([1.0, 0], [[1.0, 0]], 1, noise=1 / 3, alpha=alpha)
    assert len(chosen) == n_chosen
    assert (chosen.stop_reason is StopReason.ALPHA) == (n_chosen == 0)
