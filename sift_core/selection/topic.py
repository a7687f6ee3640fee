"""Whether a pool of candidates is on the topic of a question, by cosines relative to the pool.

Embedders differ in what cosine two unrelated texts have: 0.1 with some, 0.7 with others. So the
nearest candidate is compared with what the candidates are to one another.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sift_core.selection.context import distinct_of_region
from sift_core.selection.kernels import unit_rows
from sift_core.selection.near_duplicates import FEWEST_TO_READ, is_earlier
from sift_core.types import CandidatePool

# Cosine of unrelated texts: this quantile of the pairs of different candidates.
UNRELATED = 0.1
# How far from that cosine to 1 the nearest candidate must be. Read from the three collections of
# `tests/selection/topics`; 1,058 own questions of other collections are all above it.
LEAST_NEARNESS = 0.22
# Templated texts have high cosines with any embedder. A question this far from unrelated texts to 1
# is on the topic, whatever the pool says.
SURELY_NEAR = 0.5


def unrelated_cosine(pool: CandidatePool) -> float | None:
    """Return the cosine of two unrelated candidates; None with fewer than 20 different ones.

    Near-duplicates count once. Costs O(n² d) for n candidates of d dimensions: 1 ms for 200 of 384.
    """
    if len(pool) < FEWEST_TO_READ:
        return None
    rows = unit_rows(pool.embeddings)
    cosines = rows @ rows.T
    distinct = distinct_of_region(cosines, pool.similarities)
    if len(distinct) < FEWEST_TO_READ:
        return None
    pairs = cosines[np.ix_(distinct, distinct)][is_earlier(len(distinct))]
    return float(np.quantile(pairs, UNRELATED))


def no_baseline() -> float:
    """Return 0, the cosine of unrelated texts for most embedders."""
    return 0.0


def topic_floor(
    pool: CandidatePool, *, baseline: Callable[[], float] = no_baseline
) -> float | None:
    """Return the cosine that the nearest candidate of a question on the topic has at least.

    Costs as much as `unrelated_cosine`.

    Args:
        pool: The candidates of one question.
        baseline: Returns the embedder's cosine for unrelated texts. Called only if the nearest
            candidate has cosine 0.5 or more and is still below the floor. Default: 0.

    Returns:
        A cosine in [-1, 1]; None if the pool has fewer than 20 different candidates, which do not
        show how near unrelated ones are.
    """
    unrelated = unrelated_cosine(pool)
    if unrelated is None:
        return None
    floor = unrelated + LEAST_NEARNESS * (1 - unrelated)
    if SURELY_NEAR <= pool.similarities.max() < floor:
        floor = min(floor, 1 - (1 - SURELY_NEAR) * (1 - baseline()))
    return floor


def is_off_topic(pool: CandidatePool, *, baseline: Callable[[], float] = no_baseline) -> bool:
    """Return whether no candidate is near enough to the question, as far as the pool can show it.

    Args:
        pool: The candidates of one question.
        baseline: As for `topic_floor`. Default: 0.
    """
    floor = topic_floor(pool, baseline=baseline)
    return floor is not None and bool(pool.similarities.max() < floor)
