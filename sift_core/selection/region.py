"""What is to become certain: the candidates near the questions, and what each of them counts."""

from __future__ import annotations

import numpy as np

from sift_core.types import FloatArray, IntArray

# A target's weight is exp(-RELEVANCE_DECAY · z), z standard deviations of relevance below the best.
# Decision 0006 has the plateau on which this, the kernel's decay and the default λ lie.
RELEVANCE_DECAY = 2.0

# The region ends where a weight falls below this share of the largest: too little to matter.
SMALLEST_WEIGHT = 1e-6

SMALLEST_TYPICAL = 1e-9  # a pool of copies: distances in it are rounding

# Cosines are told apart down to this: copies of a vector keep the order they came in,
# whatever order their products were summed in.
RELEVANCE_DIGITS = 12


def ranks_of(nearness: FloatArray) -> IntArray:
    """Return the rank of each candidate for each question, from 0, shape (m, n); ties by position.

    Args:
        nearness: How relevant each candidate is to each question, shape (m, n).
    """
    order = np.argsort(-np.round(nearness, RELEVANCE_DIGITS), axis=1, kind="stable")
    return np.argsort(order, axis=1)


def most_relevant_first(ranks: IntArray) -> IntArray:
    """Return positions by the best rank that each has for any question, shape (n,).

    Ranks and not cosines, which are larger for some questions than for others. Ties keep the
    order that the candidates came in.

    Args:
        ranks: From `ranks_of`, shape (m, n).
    """
    return np.argsort(ranks.min(axis=0), kind="stable")


def typical_distance(cosines: FloatArray) -> float:
    """Return 1 - the mean cosine of two of the pool; 1 where that says nothing.

    Args:
        cosines: Among the candidates, shape (n, n).
    """
    said = _told_distance(cosines)
    return 1.0 if said is None else said


def _told_distance(cosines: FloatArray) -> float | None:
    n = len(cosines)
    if n < 2:
        return None
    typical = 1.0 - float(cosines.sum() - cosines.trace()) / (n * (n - 1))
    return typical if typical > SMALLEST_TYPICAL else None


def typical_distance_of_each(cosines: FloatArray, ranks: IntArray) -> float:
    """Return the mean over the questions of `typical_distance` among each one's own candidates.

    What is far apart because it is about another question says nothing of how unlike chunks are.
    Nor does a question with fewer than two of its own; where none has two, all candidates do.

    Args:
        cosines: Among the candidates, shape (n, n).
        ranks: Of these for each question, shape (m, n). A candidate belongs to the question for
            which it has the best rank, or to all that tie.
    """
    if len(ranks) == 1:
        return typical_distance(cosines)
    own = ranks == ranks.min(axis=0)
    told = [_told_distance(cosines[np.ix_(those, those)]) for those in own]
    known = [each for each in told if each is not None]
    return float(np.mean(known)) if known else typical_distance(cosines)


def region_weights(
    n: int,
    taken: IntArray,
    relevance: FloatArray,
    ranks: IntArray,
    weight: FloatArray | None,
    given: FloatArray | None = None,
) -> FloatArray:
    """Return what each candidate counts as a target of each question, (m, n), rows summing to 1.

    Args:
        n: How many candidates there are.
        taken: Positions of the distinct chunks among them, shape (k,); others count nothing.
        relevance: Of these to each question, shape (m, k).
        ranks: Of these for each question, shape (m, k), as in `typical_distance_of_each`.
        weight: Prior weight of each of these, shape (k,), > 0. Default: equal weights.
        given: What each of these counts in place of what its relevance says, shape (m, k), >= 0.
            A row of zeros says nothing. Default: relevance says it.
    """
    weights = np.zeros((len(relevance), n))
    own = ranks == ranks.min(axis=0)
    for i, (row, values, those) in enumerate(zip(weights, relevance, own, strict=True)):
        if given is not None and given[i].any():
            # The square root: a walk has flattened relevance, and the prior must not outweigh it.
            row[taken] = given[i] if weight is None else given[i] * np.sqrt(weight)
            row[row < SMALLEST_WEIGHT * row.max()] = 0.0
            row /= row.sum()
            continue
        is_read = 1 < those.sum() < len(those)  # of fewer than two there is no spread
        spread = float((values[those] if is_read else values).std())
        row[taken] = _relative_weights(values, spread, weight)
        row /= row.sum()
    return weights


def _relative_weights(
    relevance: FloatArray, spread: float, weight: FloatArray | None
) -> FloatArray:
    """Return what each distinct chunk counts for one question, shape (k,), the largest about 1."""
    if spread < SMALLEST_TYPICAL:  # all are equally relevant
        spread = np.inf
    best = relevance[np.argmax(np.round(relevance, RELEVANCE_DIGITS))]
    weights: FloatArray = np.exp(-RELEVANCE_DECAY * (best - relevance) / spread)
    largest = 1.0
    if weight is not None:
        weights *= weight / weight.max()
        largest = float(weights.max())
    weights[weights < SMALLEST_WEIGHT * largest] = 0.0
    return weights
