"""Ties go to the lowest position: copies of a vector, and what differs by rounding alone."""

import numpy as np
import pytest

from sift_core.selection import ContextSelector, LinearKernel, RBFKernel

KERNELS = {"linear": LinearKernel(), "rbf": RBFKernel()}


@pytest.mark.parametrize("kernel", KERNELS)
def test_ties_go_to_the_lowest_position(choose, kernel):
    # e₂, e₃ and e₄ are equally far from the query by symmetry.
    candidates = np.eye(4)[[3, 1, 2, 0]]
    chosen = choose([2.0, 1, 1, 1], candidates, 4, kernel=KERNELS[kernel], noise_variance=0.1)
    assert chosen.positions.tolist() == [3, 0, 1, 2]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("allow_repeats", [True, False])
@pytest.mark.parametrize("noise_variance", [1e-12, 1e-6, 1e-2, 1.0, 1e4])
@pytest.mark.parametrize("kernel", KERNELS)
def test_copies_are_chosen_from_the_lowest_position_up(
    choose, kernel, noise_variance, allow_repeats, dtype
):
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
            noise_variance=noise_variance,
            allow_repeats=allow_repeats,
        ).positions
        for label in range(5):
            copies = np.flatnonzero(labels == label).tolist()
            picked = [int(i) for i in chosen if labels[i] == label]
            if allow_repeats:
                assert set(picked) <= {copies[0]}
            else:
                assert picked == copies[: len(picked)]


def test_copies_for_a_prompt_are_chosen_from_the_lowest_position_up(backend):
    for seed in range(12):
        rng = np.random.default_rng(seed)
        originals = rng.standard_normal((8, 100))
        labels = rng.permutation(np.arange(int(rng.integers(60, 200))) % 8)
        chosen = ContextSelector(backend=backend).select(
            rng.standard_normal(100), originals[labels], len(labels)
        )
        order = chosen.positions.tolist()
        assert sorted(labels[order[:8]]) == list(range(8))  # each content once, then the rest
        for label in range(8):
            copies = np.flatnonzero(labels == label).tolist()
            assert [i for i in order if labels[i] == label] == copies


def test_a_negative_zero_makes_no_difference_between_copies(choose):
    for seed in range(12):
        rng = np.random.default_rng(seed)
        candidates = np.tile(rng.standard_normal(100), (203, 1))
        candidates[:, 0] = np.where(np.arange(203) < 202, 0.0, -0.0)  # the last sums differently
        query = rng.standard_normal(100)
        chosen = choose(query, candidates, 5, noise_variance=1e-9, allow_repeats=True)
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
