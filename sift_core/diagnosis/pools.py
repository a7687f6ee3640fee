"""The candidates of a question, and what two ways to choose ten of them make of it.

The paper's σ² → `variance`, η² → `variance_floor`, both as shares of σ² before any chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from sift_core.protocols import BatchCandidateSource, CandidateSource
from sift_core.selection.baselines import NearestNeighborSelector
from sift_core.selection.context import ContextSelector, distinct
from sift_core.selection.explain import irreducible_variance
from sift_core.selection.kernels import unit_rows
from sift_core.selection.posterior import posterior_variances
from sift_core.types import CandidatePool, FloatArray, IntArray, Query

N_SELECT = 10
REDUNDANT_COSINE = 0.8  # as in the README: two chunks this close say mostly the same. Guess by eye.
_CANDIDATES_AT_ONCE = 2_500  # 10 MB of vectors of 1,024 dimensions, whatever `n_candidates` is


@dataclass(frozen=True, kw_only=True)
class TopTen:
    """What one selector chose for one question.

    Args:
        document_ids: In order of choice, `N_SELECT` where there are as many candidates.
        n_redundant: How many have a cosine of `REDUNDANT_COSINE` or more to an earlier one.
        n_versions: How many are versions of a more relevant candidate, chosen or not, as
            `ContextSelector` tells versions (decision 0006); comparable between embedding models.
        variance: Which share of σ² is left at the question given all of them, in the paper's
            setting (linear kernel, λ = 0.01), in [0, 1].
    """

    document_ids: tuple[str, ...]
    n_redundant: int
    n_versions: int
    variance: float


@dataclass(frozen=True, kw_only=True)
class PoolMeasures:
    """Everything about one question.

    Args:
        question: Its text.
        n_candidates: How many candidates there were, after the stand-in's own document was
            left out.
        n_distinct: How many of them are no version of a more relevant one.
        mean_cosine: Of two different contents; 0 where there is one.
        variance_floor: The share of σ² that no choice from these candidates can remove.
        n_shared: How many chunks `nearest` and `sift` have in common.
        nearest: The nearest neighbours.
        sift: What `ContextSelector` chose.
    """

    question: str
    n_candidates: int
    n_distinct: int
    mean_cosine: float
    variance_floor: float
    n_shared: int
    nearest: TopTen
    sift: TopTen


def fetch_all(
    source: CandidateSource,
    queries: Sequence[Query],
    n_candidates: int,
    *,
    on_progress: Callable[[int, int], object] | None = None,
) -> Iterator[CandidatePool]:
    """Yield the pool of each query, in order; a few are in memory at a time.

    Args:
        source: Any source; one without batches is asked query by query.
        queries: What to ask.
        n_candidates: As for `fetch`.
        on_progress: Called with how many queries were answered, and of how many.
    """
    step = max(1, _CANDIDATES_AT_ONCE // n_candidates)
    for start in range(0, len(queries), step):
        some = queries[start : start + step]
        if isinstance(source, BatchCandidateSource):
            yield from source.fetch_batch(some, n_candidates)
        else:
            yield from (source.fetch(query, n_candidates) for query in some)
        if on_progress is not None:
            on_progress(start + len(some), len(queries))


def measure_pool(query: Query, pool: CandidatePool) -> PoolMeasures:
    """Return the measures of one question's candidates.

    Takes some 30 ms for 200 candidates of 384 dimensions.

    Args:
        query: The question.
        pool: Its candidates, at least one, none all zero.
    """
    own = distinct(query.vector, pool.embeddings)
    nearest = NearestNeighborSelector().select(query.vector, pool.embeddings, N_SELECT)
    sift = ContextSelector().select(query.vector, pool.embeddings, N_SELECT)
    pairs = _cosines(pool.embeddings[own])[np.triu_indices(len(own), k=1)]
    before = float(posterior_variances(query.vector, pool.embeddings[:0])[0])
    return PoolMeasures(
        question=query.text,
        n_candidates=len(pool),
        n_distinct=len(own),
        mean_cosine=float(pairs.mean()) if len(pairs) else 0.0,
        variance_floor=irreducible_variance(query.vector, pool.embeddings) / before,
        n_shared=len(np.intersect1d(nearest.positions, sift.positions)),
        nearest=_top_ten(query, pool, nearest.positions, own),
        sift=_top_ten(query, pool, sift.positions, own),
    )


def _top_ten(query: Query, pool: CandidatePool, positions: IntArray, own: IntArray) -> TopTen:
    chosen = pool.take(positions)
    earlier = np.tril(_cosines(chosen.embeddings), k=-1)  # (k, k), row i: with those before it
    variances = posterior_variances(query.vector, chosen.embeddings)
    return TopTen(
        document_ids=tuple(chosen.document_ids),
        n_redundant=int(np.count_nonzero(earlier.max(axis=1) >= REDUNDANT_COSINE)),
        n_versions=int(np.count_nonzero(~np.isin(positions, own))),
        variance=float(variances[-1] / variances[0]),
    )


def _cosines(vectors: FloatArray) -> FloatArray:
    """Return the cosines (n, n) in float64 of rows (n, d), none all zero."""
    rows = unit_rows(vectors)
    return rows @ rows.T
