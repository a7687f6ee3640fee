"""How far a policy is from the best that could be had in the same time."""

from __future__ import annotations

import numpy as np

PRICES = np.concatenate([[0.0], np.geomspace(1e-5, 1e2, 400)])  # bits per byte a second
N_RESAMPLES = 2000


def oracle(bits: np.ndarray, seconds: np.ndarray, mean_s: float) -> np.ndarray:
    """Return the oracle's bits per byte of every document, at a mean time of `mean_s`.

    The oracle knows bits and seconds of every arm and takes for each document the arm of least
    bits + price · seconds. One price holds for all documents; between the two prices whose mean
    times enclose `mean_s` a share of the time is spent at each, so that the times are equal.
    Where no price is as slow or as quick, the nearest is taken.

    Args:
        bits: Shape (n documents, n arms).
        seconds: Likewise.
        mean_s: Mean seconds a document.
    """
    rows = np.arange(len(bits))
    chosen = [np.argmin(bits + price * seconds, axis=1) for price in PRICES]
    times = np.array([seconds[rows, arms].mean() for arms in chosen])  # falls as the price rises
    slower = int(np.flatnonzero(times >= mean_s)[-1]) if (times >= mean_s).any() else 0
    quicker = min(slower + 1, len(PRICES) - 1) if times[slower] > mean_s else slower
    slow, quick = (bits[rows, chosen[i]] for i in (slower, quicker))
    gap = times[slower] - times[quicker]
    share = (mean_s - times[quicker]) / gap if gap > 0 else 1.0
    share = float(np.clip(share, 0.0, 1.0))
    return share * slow + (1 - share) * quick


def mixture(bits: np.ndarray, seconds: np.ndarray, mean_s: float) -> np.ndarray:
    """Return the bits per byte, document by document, of two arms drawn by lot.

    Those two, and that chance, with the least mean bits at a mean time of at most `mean_s`:
    what is to be had without looking at the document. The quickest arm where none is as quick.
    """
    means, times = bits.mean(axis=0), seconds.mean(axis=0)
    quickest = int(np.argmin(times))
    best, least = bits[:, quickest], float("inf")
    for i in range(len(means)):
        for j in range(len(means)):
            if times[i] > mean_s:
                continue
            slower = times[j] > times[i]
            share = min(1.0, (mean_s - times[i]) / (times[j] - times[i])) if slower else 0.0
            mean = (1 - share) * means[i] + share * means[j]
            if mean < least:
                best, least = (1 - share) * bits[:, i] + share * bits[:, j], mean
    return best


def interval(differences: np.ndarray, seed: int = 0) -> tuple[float, float, float]:
    """Return the mean of paired differences and its 95 % interval, by the bootstrap."""
    generator = np.random.default_rng(seed)
    drawn = generator.integers(len(differences), size=(N_RESAMPLES, len(differences)))
    low, high = np.percentile(differences[drawn].mean(axis=1), [2.5, 97.5])
    return float(differences.mean()), float(low), float(high)
