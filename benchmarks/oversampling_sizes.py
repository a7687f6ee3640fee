"""How many different things are in a pool? Measures of it, and how well each foretells a gain."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sift_core.selection.context import distinct

Measure = Callable[[np.ndarray, np.ndarray], float]  # (query (d,), unit rows (n, d)) → size


def n_distinct(query: np.ndarray, rows: np.ndarray) -> float:
    """Return the number of contents, what `sift_core.sources.oversampling` counts."""
    return float(len(distinct(query, rows)))


def effective_rank(query: np.ndarray, rows: np.ndarray) -> float:
    """Return exp of the entropy of the Gram matrix's normalised eigenvalues.

    References:
        Roy and Vetterli (2007), The effective rank: a measure of effective dimensionality.
    """
    shares = _shares(rows)
    shares = shares[shares > 1e-12]
    return float(np.exp(-(shares * np.log(shares)).sum()))


def participation_ratio(query: np.ndarray, rows: np.ndarray) -> float:
    """Return 1 / Σ p² over the Gram matrix's normalised eigenvalues p."""
    return float(1.0 / (_shares(rows) ** 2).sum())


def centred_rank(query: np.ndarray, rows: np.ndarray) -> float:
    """Return the effective rank of the rows less their mean."""
    return effective_rank(query, rows - rows.mean(axis=0))


MEASURES: dict[str, Measure] = {
    "contents": n_distinct,
    "effective rank": effective_rank,
    "participation ratio": participation_ratio,
    "effective rank, centred": centred_rank,
}


def separation(sizes: np.ndarray, helped: np.ndarray) -> float:
    """Return how often a pool that more candidates helped is smaller than one that they did not.

    The area under the ROC curve: .5 for chance, 1 for a perfect measure; ties count half. NaN
    where all were helped or none.

    Args:
        sizes: Shape (n,).
        helped: Shape (n,), booleans.
    """
    some, others = sizes[helped], sizes[~helped]
    if not len(some) or not len(others):
        return float("nan")
    differences = others[None, :] - some[:, None]
    return float((differences > 0).mean() + 0.5 * (differences == 0).mean())


def _shares(rows: np.ndarray) -> np.ndarray:
    """Return the eigenvalues of rows · rowsᵀ over their sum, the zeros left out."""
    n, d = rows.shape
    rows = rows.astype(np.float64)
    gram = rows @ rows.T if n <= d else rows.T @ rows
    values = np.clip(np.linalg.eigvalsh(gram), 0.0, None)
    return values / values.sum()
