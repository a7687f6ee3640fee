import numpy as np
import pytest

from benchmarks.noise_variance import GRID, Fit, leave_one_out, marginal_likelihood
from sift_core import LinearKernel


def problem(n=12, d=5, m=2):
    rng = np.random.default_rng(0)
    embeddings = rng.standard_normal((n, d))
    embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
    outputs = rng.standard_normal((n, m))
    return embeddings, outputs - outputs.mean(axis=0)


def log_density(values, means, variances):
    return -0.5 * (np.log(2 * np.pi * variances) + (values - means) ** 2 / variances)


@pytest.mark.parametrize("lam", [0.01, 1.0])
def test_leave_one_out_equals_fits_without_each_candidate(lam):
    embeddings, outputs = problem()
    gram = embeddings @ embeddings.T + lam * np.eye(len(embeddings))
    means, variances = np.empty_like(outputs), np.empty(len(outputs))
    for i in range(len(gram)):
        rest = np.arange(len(gram)) != i
        weights = np.linalg.solve(gram[np.ix_(rest, rest)], gram[rest, i])
        means[i] = weights @ outputs[rest]
        variances[i] = gram[i, i] - weights @ gram[rest, i]
    scales = np.geomspace(1e-3, 1e3, 20001)[:, None, None]
    over_scales = log_density(outputs, means, scales * variances[:, None]).mean(axis=(1, 2))
    fit = Fit.of(LinearKernel(), embeddings, outputs)
    constant = -0.5 * (1 + np.log(2 * np.pi))
    assert leave_one_out(fit, lam) + constant == pytest.approx(over_scales.max(), abs=1e-6)


@pytest.mark.parametrize("score", [leave_one_out, marginal_likelihood])
def test_finds_the_noise_that_was_added(score):
    # 300 points, prior variance 1, noise variance .1: the rules work where there is noise.
    rng = np.random.default_rng(1)
    embeddings = rng.standard_normal((300, 6))
    embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
    outputs = embeddings @ rng.standard_normal((6, 20)) + 0.1**0.5 * rng.standard_normal((300, 20))
    fit = Fit.of(LinearKernel(), embeddings, outputs)
    picked = max(GRID, key=lambda lam: score(fit, lam))
    assert 0.05 < picked < 0.2
