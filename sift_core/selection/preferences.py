"""What is known of candidates before a choice for a prompt: newer versions, trust, targets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sift_core.checks import as_finite_array, check_instance, is_matrix, one_each
from sift_core.errors import InvalidInputError
from sift_core.types import FloatArray, IntArray


@dataclass(frozen=True, kw_only=True, eq=False)
class Preferences:
    """What is known of the candidates of `ContextSelector` before it chooses.

    Args:
        prefer: Which of several near-duplicates to choose, shape (n,), for example dates in
            seconds: the highest. Only their order counts. Ties go to the more relevant, then to
            the lower position. Applies to the 500 most relevant, and takes whatever is closer
            than u = 0.15 for near-duplicates (decision 0021). Of several rows,
            shape (r, n), each keeps its own. Default: the most relevant.
        prior: Prior weight of each candidate, shape (n,), > 0, for example trust or recency. Only
            ratios matter: half the weight counts like 0.35 standard deviations less relevance.
            With `target_weights` its square root counts, since these differ less.
            Near-duplicates have the weight of the one that stands for them.
            Default: equal weights.
        target_weights: What each candidate counts as a target, shape (n,), or (m, n) of several
            queries, >= 0, in place of its relevance. Near-duplicates have the weight of the most
            relevant of them, and lie within u = 0.2 instead of 0.5. Only ratios matter. Relevance
            decides where all are 0, or where all that differ from zero belong to candidates
            beyond the 500 most relevant. Default: relevance decides.

    Example:
        >>> newer = Preferences(prefer=np.array([0.0, 2023.0, 2024.0, 0.0]))
        >>> twins = pool.embeddings[[0, 1, 1, 3]]
        >>> chosen = ContextSelector().select(query.embedding, twins, 2, preferences=newer)
        >>> chosen.positions.tolist()
        [0, 2]
    """

    prefer: FloatArray | None = None
    prior: FloatArray | None = None
    target_weights: FloatArray | None = None

    def take(self, rows: IntArray) -> Preferences:
        """Return the preferences of the candidates at some positions, in that order."""
        values = vars(self).items()
        return Preferences(
            **{name: None if one is None else np.asarray(one)[..., rows] for name, one in values}
        )


def checked_preferences(preferences: Preferences | None, n: int, n_queries: int) -> Preferences:
    """Return preferences as arrays: `target_weights` of shape (m, n), the others (n,).

    Raises:
        InvalidInputError: If shapes do not fit, or a number cannot be used.
    """
    if preferences is None:
        return Preferences()
    check_instance("preferences", preferences, Preferences)
    prefer, prior = preferences.prefer, preferences.prior
    targets = preferences.target_weights
    advice = "; leave out candidates that are not to be chosen"
    return Preferences(
        prefer=None if prefer is None else _prefer(prefer, n),
        prior=None if prior is None else one_each("prior", prior, n, above=0, advice=advice),
        target_weights=None if targets is None else _target_weights(targets, n, n_queries),
    )


def _prefer(given: FloatArray, n: int) -> FloatArray:
    """Return which near-duplicates to choose as r rows, shape (r, n)."""
    rows = given if is_matrix(given) and len(given) else [given]
    return np.stack([one_each("prefer", row, n) for row in rows])


def _target_weights(given: FloatArray, n: int, n_queries: int) -> FloatArray:
    """Return what each candidate counts as a target of each query, shape (m, n)."""
    n_dimensions = 2 if is_matrix(given) else 1
    rows = np.atleast_2d(as_finite_array("target_weights", given, n_dimensions=n_dimensions))
    if rows.shape != (n_queries, n) or (rows < 0).any():
        raise InvalidInputError(
            f"`target_weights` must be finite numbers >= 0, one for each of {n} candidate(s) and "
            f"{n_queries} query(s), got an array of shape {np.shape(given)}"
            + (" with others" if rows.shape == (n_queries, n) else "")
        )
    return rows
