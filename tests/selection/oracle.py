"""The dense oracle: everything computed from scratch, straight from the paper's formulas."""

import numpy as np

from sift_core import LinearKernel, RBFKernel
from sift_core.selection.kernels import unit_rows

KERNELS = {"linear": LinearKernel(), "rbf": RBFKernel()}


class PolynomialKernel:
    """k(x, x') = (1 + xᵀx')² on unit vectors."""

    def features(self, embeddings):
        return unit_rows(embeddings)

    def diagonal(self, features):
        return np.full(len(features), 4.0)

    def column(self, features, point):
        return (1 + features @ point) ** 2


class CubicKernel:
    """(1 + xᵀx')³ on the vectors as they are: neither unit diagonal nor bounded."""

    def features(self, embeddings):
        return embeddings.astype(np.float64)

    def diagonal(self, features):
        return (1 + (features**2).sum(axis=1)) ** 3

    def column(self, features, point):
        return (1 + features @ point) ** 3


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


def under(noise, kernel=None, **others):
    """Return the settings by which selectors and functions know kernel and λ."""
    return {"noise_variance": noise, **({} if kernel is None else {"kernel": kernel}), **others}


def unit(rows):
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def random_pool(seed, n=30, d=24, dtype=np.float64):
    """Return a query (d,) and candidates (n, d), not of unit length."""
    rng = np.random.default_rng(seed)
    query, candidates = rng.standard_normal(d), rng.standard_normal((n, d)) + 0.4
    return query.astype(dtype), candidates.astype(dtype)


def dense_kernel(kernel, a, b):
    """Return k(a_i, b_j), shape (len(a), len(b)); without the library for its own kernels."""
    if type(kernel) is LinearKernel and kernel.normalize:
        return unit(a) @ unit(b).T
    if type(kernel) is RBFKernel:
        squared_distances = ((unit(a)[:, None, :] - unit(b)[None, :, :]) ** 2).sum(axis=2)
        return np.exp(-squared_distances / (2 * kernel.length_scale**2))
    if len(a) == 0:
        return np.empty((0, len(b)))
    features = kernel.features(np.concatenate([a, b]))
    columns = [kernel.column(features[len(a) :], point) for point in features[: len(a)]]
    return np.array(columns)


def dense_variance(kernel, noise, query, chosen):
    """Return σ²_X(q) = k(q, q) - k_X(q)ᵀ (K_X + λI)⁻¹ k_X(q)."""
    prior = dense_kernel(kernel, query[None], query[None])[0, 0]
    if len(chosen) == 0:
        return prior
    k_x = dense_kernel(kernel, chosen, query[None])[:, 0]
    gram = dense_kernel(kernel, chosen, chosen) + noise * np.eye(len(chosen))
    return prior - k_x @ np.linalg.solve(gram, k_x)


def dense_greedy(
    kernel, noise, query, candidates, n_select, allow_repeats=False, weights=None, shown=None
):
    """Return positions and variances of exact greedy selection, solved anew for each candidate.

    `query` may be several targets (t, d): then Σ weight · σ² counts. `shown` (m, d) was
    observed before.
    """
    targets = np.atleast_2d(query)
    weights = np.ones(len(targets)) if weights is None else weights
    shown = candidates[:0] if shown is None else shown
    points = np.concatenate([targets, shown, candidates])
    covariance = dense_kernel(kernel, points, points)
    t, first = len(targets), len(targets) + len(shown)

    def total(chosen):
        rows = [*range(t, first), *(first + position for position in chosen)]
        gram = covariance[np.ix_(rows, rows)] + noise * np.eye(len(rows))
        k_x = covariance[rows, :t]
        explained = (k_x * np.linalg.solve(gram, k_x)).sum(axis=0)
        return weights @ (np.diagonal(covariance)[:t] - explained)

    positions, variances = [], [total([])]
    while len(positions) < n_select:
        rest = [i for i in range(len(candidates)) if allow_repeats or i not in positions]
        if not rest:
            break
        after = {i: total([*positions, i]) for i in rest}
        positions.append(min(after, key=after.get))
        variances.append(after[positions[-1]])
    return positions, variances


def assert_same(chosen, expected, atol=1e-10):
    """Compare with another selection, or with the positions and variances of an oracle."""
    if isinstance(expected, tuple):
        positions, variances = expected
    else:
        positions, variances = expected.positions.tolist(), expected.variances
        assert chosen.stop_reason is expected.stop_reason
    assert chosen.positions.tolist() == positions
    np.testing.assert_allclose(chosen.variances, variances, rtol=0, atol=atol)
