"""Kernels of one's own: the protocol is all that `SIFTSelector` needs."""

import numpy as np
import pytest

from sift_core.selection import LinearKernel, RBFKernel
from sift_core.selection.kernels import unit_rows


class PolynomialKernel:
    """k(x, x') = (1 + xᵀx')² on unit vectors."""

    def features(self, embeddings):
        return unit_rows(embeddings)

    def diagonal(self, features):
        return np.full(len(features), 4.0)

    def column(self, features, point):
        return (1 + features @ point) ** 2


class ClippedRBFKernel(RBFKernel):
    """A subclass with columns and features of its own: k(x, x') of the first three numbers."""

    def features(self, embeddings):
        return unit_rows(embeddings[:, :3])

    def column(self, features, point):
        return np.exp(2 * (features @ point - 1)) ** 2


class SquaredLinearKernel(LinearKernel):
    """A subclass that overrides the column alone."""

    def column(self, features, point):
        return super().column(features, point) ** 2


def polynomial(a, b):
    return (1 + a @ b.T) ** 2


def clipped_rbf(a, b):
    a, b = (rows[:, :3] / np.linalg.norm(rows[:, :3], axis=1, keepdims=True) for rows in (a, b))
    return np.exp(4 * (a @ b.T - 1))


def squared_linear(a, b):
    return (a @ b.T) ** 2


KERNELS = {
    "polynomial": (PolynomialKernel(), polynomial),
    "subclass of RBFKernel": (ClippedRBFKernel(), clipped_rbf),
    "subclass of LinearKernel": (SquaredLinearKernel(), squared_linear),
}


def pool(seed, t=1, n=17, d=7, m=3):
    rng = np.random.default_rng(seed)
    return tuple(rng.standard_normal((rows, d)) + 0.4 for rows in (t, n, m))


@pytest.mark.parametrize("t", [1, 3])
@pytest.mark.parametrize("allow_repeats", [True, False], ids=["repeats", "no repeats"])
@pytest.mark.parametrize("noise_variance", [1e-2, 1.0])
@pytest.mark.parametrize(("kernel", "dense"), KERNELS.values(), ids=KERNELS)
def test_a_kernel_of_ones_own_equals_the_dense_oracle(
    choose, greedy_oracle, kernel, dense, noise_variance, allow_repeats, t
):
    targets, candidates, shown = pool(t, t=t)
    settings = {"noise_variance": noise_variance, "allow_repeats": allow_repeats}
    for conditioned_on in (None, shown):
        chosen = choose(
            targets, candidates, 8, kernel=kernel, conditioned_on=conditioned_on, **settings
        )
        positions, variances = greedy_oracle(
            dense, noise_variance, targets, candidates, 8, allow_repeats, shown=conditioned_on
        )
        assert chosen.positions.tolist() == positions
        np.testing.assert_allclose(chosen.variances, variances, rtol=0, atol=1e-10)


class GivenCovariance:
    """A kernel that looks up a matrix; embeddings hold successive row numbers. Gives views."""

    def __init__(self, covariance):
        self.covariance = covariance

    def features(self, embeddings):
        return embeddings

    def diagonal(self, features):
        return np.diagonal(self.covariance)[self._rows(features)]

    def column(self, features, point):
        return self.covariance[int(point[0])][self._rows(features)]

    def _rows(self, features):
        first = int(features[0, 0])
        return slice(first, first + len(features))


def test_a_kernel_of_ones_own_may_answer_with_its_own_arrays(choose):
    rng = np.random.default_rng(0)
    root = rng.standard_normal((6, 6))
    covariance = root @ root.T
    kernel = GivenCovariance(covariance.copy())
    chosen = choose([5.0], np.arange(6.0)[:, None], 4, kernel=kernel, allow_repeats=True)
    np.testing.assert_array_equal(kernel.covariance, covariance)
    # Its features equal its prior, so the same through explicit features with a linear kernel.
    plain = LinearKernel(normalize=False)
    expected = choose(root[5], root, 4, kernel=plain, allow_repeats=True)
    assert chosen.positions.tolist() == expected.positions.tolist()
    np.testing.assert_allclose(chosen.variances, expected.variances, rtol=0, atol=1e-10)
