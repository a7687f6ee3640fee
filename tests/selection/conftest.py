"""The dense oracle: everything recomputed from scratch, straight from the paper's formulas."""

import numpy as np
import pytest

from sift_core.selection import SIFTSelector


def dense_kernel(kernel, a, b, length_scale=0.1**0.5):
    """Return k(a_i, b_j) for unit rows, shape (len(a), len(b)), without the library.

    `kernel` is "linear", "rbf" or a function of two matrices that returns as much.
    """
    if callable(kernel):
        return kernel(a, b)
    if kernel == "linear":
        return a @ b.T
    squared_distances = ((a[:, None, :] - b[None, :, :]) ** 2).sum(axis=2)
    return np.exp(-squared_distances / (2 * length_scale**2))


def dense_variance(kernel, noise_variance, query, chosen):
    """Return σ²_X(q) = k(q, q) - k_X(q)ᵀ (K_X + λI)⁻¹ k_X(q) for unit rows."""
    prior = dense_kernel(kernel, query[None], query[None])[0, 0]
    if len(chosen) == 0:
        return prior
    k_x = dense_kernel(kernel, chosen, query[None])[:, 0]
    gram = dense_kernel(kernel, chosen, chosen) + noise_variance * np.eye(len(chosen))
    return prior - k_x @ np.linalg.solve(gram, k_x)


def dense_greedy(
    kernel, noise_variance, query, candidates, n_select, allow_repeats, weights=None, shown=None
):
    """Return positions and variances of exact greedy selection, solved anew for each candidate.

    `query` may be several targets (t, d): then Σ weight · σ² counts. `shown` (m, d) was
    observed before.
    """
    targets, candidates = unit(np.atleast_2d(query)), unit(candidates)
    weights = np.ones(len(targets)) if weights is None else weights
    shown = candidates[:0] if shown is None else unit(shown)

    def total(chosen):
        observed = np.concatenate([shown, candidates[chosen]])
        return sum(
            weight * dense_variance(kernel, noise_variance, target, observed)
            for weight, target in zip(weights, targets, strict=True)
        )

    positions, variances = [], [total([])]
    for _ in range(n_select):
        after = {
            i: total([*positions, i])
            for i in range(len(candidates))
            if allow_repeats or i not in positions
        }
        best = min(after, key=lambda i: after[i])
        positions.append(best)
        variances.append(after[best])
    return positions, variances


def unit(rows):
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


@pytest.fixture(scope="session")
def greedy_oracle():
    return dense_greedy


@pytest.fixture(scope="session")
def variance_oracle():
    return dense_variance


@pytest.fixture(scope="session", params=["numpy", "numba"])
def backend(request):
    """Each backend in turn."""
    if request.param == "numba":
        pytest.importorskip("numba", reason="needs the extra fast")
    return request.param


@pytest.fixture(scope="session")
def choose(backend):
    """A function like `select` for `SIFTSelector`, with each backend in turn.

    Lists become arrays, which are all that compiled code reads.
    """

    def run(query, candidates, n_select, *, weights=None, conditioned_on=None, **settings):
        query, candidates = (
            np.array(a, dtype=np.float64) if isinstance(a, list) else a for a in (query, candidates)
        )
        return SIFTSelector(backend=backend, **settings).select(
            query, candidates, n_select, weights=weights, conditioned_on=conditioned_on
        )

    return run
