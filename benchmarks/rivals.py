"""Selectors as rivals: they choose from the same candidates, with the same words and spread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from benchmarks.retrieval_methods import dpp, gist
from sift_core import MMRSelector, NearestNeighborSelector
from sift_core.evaluation.search import Pool
from sift_core.protocols import Selector
from sift_core.selection.kernels import unit_rows
from sift_core.types import FloatArray, Selection, StopReason

FAMILIES = ("best", "mmr", "dpp", "gist", "dartboard", "vendi")
MMR_WEIGHTS = (0.7, 0.85, 0.95)
DPP_SHARPNESSES = (4, 8, 16)
GIST_WEIGHTS = (0.1, 0.5, 2.0)
DARTBOARD_SIGMAS = (0.05, 0.1, 0.2)
VENDI_SHARES = (0.02, 0.1, 0.8)  # the paper begins with the last one

Chooser = Callable[[Pool, int], np.ndarray]


@dataclass(frozen=True)
class PoolSelector:
    """A method of the benchmarks as a selector. It takes the relevance for the cosines."""

    method: Chooser

    def select(
        self,
        query: FloatArray,
        candidates: FloatArray,
        n_select: int,
        *,
        relevance: FloatArray | None = None,
    ) -> Selection:
        assert relevance is not None, "`choose` gives one, since words count"
        rows = unit_rows(candidates)
        pool = Pool(query=query, embeddings=rows, similarities=relevance, rows=np.arange(len(rows)))
        positions = self.method(pool, n_select)
        return Selection(
            positions=positions,
            variances=np.ones(len(positions) + 1),
            stop_reason=StopReason.N_SELECT,
        )


def dartboard(pool: Pool, n: int, *, sigma: float) -> np.ndarray:
    """Return Dartboard's greedy choice: Σ_t P(t | q) · max P(t | i) over the chosen i.

    Both are normal densities of cosine distances with deviation sigma, over the candidates t.

    References:
        Pickett et al. (2024), Better RAG using Relevant Information Gain, arXiv:2407.12101.
    """
    distances = np.maximum(1 - pool.embeddings @ pool.embeddings.T, 0)
    near = np.exp(-(distances**2) / (2 * sigma**2))
    weights = np.exp(-((1 - pool.similarities.astype(np.float64)) ** 2) / (2 * sigma**2))
    best = np.zeros(len(near))
    chosen: list[int] = []
    for _ in range(min(n, len(near))):
        gains = np.maximum(near, best) @ weights
        gains[chosen] = -np.inf
        chosen.append(int(np.argmax(gains)))
        best = np.maximum(best, near[chosen[-1]])
    return np.array(chosen, dtype=np.intp)


def vendi(pool: Pool, n: int, *, share: float) -> np.ndarray:
    """Return Vendi-RAG's greedy choice: (1 - share) · relevance + share · Vendi score of the set.

    The relevance is the mean of the set, scaled so that the pool has 0 to 1. The Vendi score is the
    exponential of the entropy of the eigenvalues of K / k, with K the cosines of k chosen rows, and
    is scaled from [1, k] to [0, 1]. The paper asks a language model for the share, from 0.8 on.

    References:
        Rezaei and Dieng (2025), Vendi-RAG, arXiv:2502.11228, equations 1 and 2.
    """
    cosines = (pool.embeddings @ pool.embeddings.T).astype(np.float64)
    relevance = pool.similarities.astype(np.float64)
    relevance = (relevance - relevance.min()) / max(float(np.ptp(relevance)), 1e-9)
    chosen = [int(np.argmax(relevance))]
    while len(chosen) < min(n, len(relevance)):
        left = np.delete(np.arange(len(relevance)), chosen)
        sets = np.column_stack([np.tile(chosen, (len(left), 1)), left])
        values = np.linalg.eigvalsh(cosines[sets[:, :, np.newaxis], sets[:, np.newaxis]])
        scores = (1 - share) * relevance[sets].mean(axis=1) + share * _scaled_vendi(values)
        chosen.append(int(left[np.argmax(scores)]))
    return np.array(chosen, dtype=np.intp)


def _scaled_vendi(eigenvalues: np.ndarray) -> np.ndarray:
    """Return the Vendi scores of rows of k > 1 eigenvalues whose sum is k, scaled to [0, 1]."""
    k = eigenvalues.shape[1]
    shares = np.maximum(eigenvalues / k, 1e-12)
    return np.asarray((np.exp(-(shares * np.log(shares)).sum(axis=1)) - 1) / (k - 1))


RIVALS: dict[str, Selector] = {
    "best first": NearestNeighborSelector(),
    **{f"mmr {weight}": MMRSelector(relevance_weight=weight) for weight in MMR_WEIGHTS},
    **{f"dpp a={a}": PoolSelector(partial(dpp, sharpness=a)) for a in DPP_SHARPNESSES},
    **{f"gist {w}": PoolSelector(partial(gist, weight=w)) for w in GIST_WEIGHTS},
    **{f"dartboard {s}": PoolSelector(partial(dartboard, sigma=s)) for s in DARTBOARD_SIGMAS},
    **{f"vendi {s}": PoolSelector(partial(vendi, share=s)) for s in VENDI_SHARES},
}
