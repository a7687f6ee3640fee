"""The dense oracle: everything recomputed from scratch, straight from the paper's formulas."""

import numpy as np
import pytest


def dense_kernel(name, a, b, length_scale=0.1**0.5):
    """Return k(a_i, b_j) for unit rows, shape (len(a), len(b)), without the library."""
    if name == "linear":
        return a @ b.T
    squared_distances = ((a[:, None, :] - b[None, :, :]) ** 2).sum(axis=2)
    return np.exp(-squared_distances / (2 * length_scale**2))


def dense_variance(name, noise_variance, query, chosen):
    """Return σ²_X(q) = k(q, q) - k_X(q)ᵀ (K_X + λI)⁻¹ k_X(q) for unit rows."""
    prior = dense_kernel(name, query[None], query[None])[0, 0]
    if len(chosen) == 0:
        return prior
    k_x = dense_kernel(name, chosen, query[None])[:, 0]
    gram = dense_kernel(name, chosen, chosen) + noise_variance * np.eye(len(chosen))
    return prior - k_x @ np.linalg.solve(gram, k_x)


def dense_greedy(name, noise_variance, query, candidates, n_select, allow_repeats):
    """Return positions and variances of exact greedy selection, one solve a candidate."""
    query = query / np.linalg.norm(query)
    candidates = candidates / np.linalg.norm(candidates, axis=1, keepdims=True)
    positions, variances = [], [dense_variance(name, noise_variance, query, candidates[:0])]
    for _ in range(n_select):
        after = {
            i: dense_variance(name, noise_variance, query, candidates[[*positions, i]])
            for i in range(len(candidates))
            if allow_repeats or i not in positions
        }
        best = min(after, key=lambda i: after[i])
        positions.append(best)
        variances.append(after[best])
    return positions, variances


@pytest.fixture(scope="session")
def greedy_oracle():
    return dense_greedy


@pytest.fixture(scope="session")
def variance_oracle():
    return dense_variance
