"""The methods of the library and their rivals: each chooses n positions of a pool, in order."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from importlib.util import find_spec

import numpy as np
from pyversity import Strategy, diversify

from sift_core.evaluation.retrieval import Method, default_methods, short
from sift_core.evaluation.search import Pool

MMR_WEIGHTS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # λ of MMR: 1 is relevance alone
DPP_SHARPNESSES = (4, 6, 8)  # a of L = diag(e^{a cos}) S diag(e^{a cos})
PYVERSITY_DPP_DIVERSITIES = (0.1, 0.3, 0.5, 0.7, 0.9)
OTHER_DIVERSITIES = (0.1, 0.3, 0.5, 0.7)
GIST_WEIGHTS = (0.5, 1.0, 2.0, 4.0)  # of the smallest distance, where a cosine is worth 1


def methods() -> dict[str, Method]:
    """Return every method under its name in the tables."""
    ours = default_methods()
    return {
        **{name: ours[name] for name in ("nn", "sift", "sift_paper")},
        **{f"mmr {short(w)}": partial(mmr, weight=w) for w in MMR_WEIGHTS},
        **{f"dpp a={a}": partial(dpp, sharpness=a) for a in DPP_SHARPNESSES},
        **_of_pyversity("pyversity dpp", Strategy.DPP, PYVERSITY_DPP_DIVERSITIES),
        **_of_pyversity("msd", Strategy.MSD, OTHER_DIVERSITIES),
        **_of_pyversity("ssd", Strategy.SSD, OTHER_DIVERSITIES),
        **_of_pyversity("cover", Strategy.COVER, OTHER_DIVERSITIES),
        **gists(),
    }


def gists() -> dict[str, Method]:
    """Return GIST's settings; none where divsel, which has the algorithm, is not installed."""
    if find_spec("divsel") is None:
        return {}
    return {f"gist {short(w)}": partial(gist, weight=w) for w in GIST_WEIGHTS}


def is_tuned_rival(name: str) -> bool:
    """Return whether a method is a setting of MMR or DPP: the best of them is a bar."""
    return name.startswith(("mmr", "dpp", "pyversity dpp"))


def gist(pool: Pool, n: int, *, weight: float) -> np.ndarray:
    """Return what GIST, by divsel, makes large: Σ cos(q, i) + weight · min (1 - cos(i, j)).

    It may be shorter than n, since the smallest distance is one of the whole set.

    References:
        Fahrbach et al. (2025), GIST: Greedy Independent Set Thresholding for Max-Min
        Diversification with Submodular Utility, NeurIPS, algorithm 1.
    """
    from divsel import gist_select

    utilities = np.maximum(pool.similarities.astype(np.float64), 0.0)
    rows = np.ascontiguousarray(pool.embeddings, dtype=np.float32)
    return np.array(gist_select(rows, utilities, k=n, lam=weight), dtype=np.intp)


def mmr(pool: Pool, n: int, *, weight: float) -> np.ndarray:
    """Return MMR's choice; `weight` is of relevance, where pyversity asks for its complement."""
    return by_pyversity(pool, n, strategy=Strategy.MMR, diversity=1.0 - weight)


def by_pyversity(pool: Pool, n: int, *, strategy: Strategy, diversity: float) -> np.ndarray:
    """Return the choice of one of pyversity's strategies, relevance being the cosine."""
    with np.errstate(all="ignore"):  # its DPP, asked for more rows than the rank
        found = diversify(
            pool.embeddings, pool.similarities, n, strategy=strategy, diversity=diversity
        )
    return found.indices


def dpp(pool: Pool, n: int, *, sharpness: float) -> np.ndarray:
    """Return greedy MAP of the DPP with L_ij = e^{a cos(q,i)} cos(i,j) e^{a cos(q,j)}.

    Each choice has the largest determinant together with the earlier ones, by a partial
    Cholesky factorisation in float64. Ends early where nothing more adds volume.

    References:
        Chen, Zhang and Zhou (2018), Fast Greedy MAP Inference for Determinantal Point
        Process, NeurIPS, algorithm 1.
    """
    weights = np.exp(sharpness * pool.similarities.astype(np.float64))
    items = weights[:, None] * pool.embeddings  # L = items · itemsᵀ
    volumes = np.einsum("nd,nd->n", items, items)  # det grows by this factor
    negligible = 1e-10 * volumes.max(initial=0.0)  # guess: far above rounding
    factor = np.empty((min(n, len(items)), len(items)))  # rows of the Cholesky factor of L
    chosen: list[int] = []
    for row in factor:
        best = int(np.argmax(volumes))
        if volumes[best] <= negligible:
            break
        earlier = factor[: len(chosen)]
        row[:] = (items @ items[best] - earlier[:, best] @ earlier) / np.sqrt(volumes[best])
        volumes -= row**2
        chosen.append(best)
        volumes[chosen] = -np.inf
    return np.array(chosen, dtype=np.intp)


def _of_pyversity(name: str, strategy: Strategy, diversities: Iterable[float]) -> dict[str, Method]:
    return {
        f"{name} {short(d)}": partial(by_pyversity, strategy=strategy, diversity=d)
        for d in diversities
    }
