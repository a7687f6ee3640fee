"""Record what the selectors choose from a seeded pool: python -m tests.selection.regenerate_golden.

Run it only when a change of selections is meant, and say so under "Numerics" in the changelog.
"""

import json
import random
from pathlib import Path

import numpy as np

from sift_core.selection import (
    ContextSelector,
    LinearKernel,
    NearestNeighborSelector,
    RBFKernel,
    SIFTSelector,
)

PATH = Path(__file__).with_name("golden.json")
N_SELECT = 20


def selectors(backend):
    """Return the selectors by name."""

    def sift(**settings):
        return SIFTSelector(backend=backend, **settings)

    return {
        "default": ContextSelector(backend=backend),
        "default, adaptive stop": ContextSelector(backend=backend, alpha=0.3),
        "paper": sift(),
        "for fine-tuning": sift(allow_repeats=True),
        "linear, much noise, repeats": sift(noise_variance=1.0, allow_repeats=True),
        "linear, little noise": sift(noise_variance=1e-6),
        "rbf": sift(kernel=RBFKernel(), noise_variance=0.1),
        "rbf, long scale, repeats": sift(
            kernel=RBFKernel(length_scale=1.0), noise_variance=0.01, allow_repeats=True
        ),
        "raw": sift(kernel=LinearKernel(normalize=False)),
        "adaptive stop": sift(noise_variance=0.1, alpha=0.6),
        "small variance": sift(noise_variance=0.1, max_variance=0.3),
        "small gain": sift(noise_variance=0.1, min_gain=0.01),
        "nearest neighbors": NearestNeighborSelector(),
    }


def seeded_pool():
    """Return a query (16,) near one of 12 topics and candidates (120, 16), ten of them copies.

    From `random.Random.random`, whose sequence Python promises to keep; NumPy's may change.
    """
    draw = random.Random(2410_08020).random
    topics = np.array([[draw() - 0.5 for _ in range(16)] for _ in range(12)])
    noise = np.array([[draw() - 0.5 for _ in range(16)] for _ in range(120)])
    candidates = topics[np.arange(120) % 12] + 0.7 * noise
    candidates[110:] = candidates[:10]
    query = topics[0] + 0.6 * topics[1] - 0.4 * topics[2]
    return query, candidates


def record(backend="numpy"):
    """Return positions, variances and stop reason of every selector, ready for JSON."""
    query, candidates = seeded_pool()
    chosen = {
        name: selector.select(query, candidates, N_SELECT)
        for name, selector in selectors(backend).items()
    }
    shown, several = candidates[[0, 40, 80]], candidates[[0, 1, 2]]
    sift = selectors(backend)["rbf"]
    chosen["several targets"] = sift.select(several, candidates, N_SELECT, weights=[3, 2, 1])
    chosen["after others"] = sift.select(query, candidates, N_SELECT, conditioned_on=shown)
    context = selectors(backend)["default"]
    chosen["default, after others"] = context.select(
        query, candidates, N_SELECT, conditioned_on=shown
    )
    relevance = candidates[:, 0]
    chosen["default, relevance"] = context.select(query, candidates, N_SELECT, relevance=relevance)
    return {
        name: {
            "positions": selection.positions.tolist(),
            "variances": selection.variances.tolist(),
            "stop_reason": selection.stop_reason.value,
        }
        for name, selection in chosen.items()
    }


if __name__ == "__main__":
    PATH.write_text(json.dumps(record(), indent=1) + "\n", encoding="utf-8")
