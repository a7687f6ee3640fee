"""Exact greedy SIFT by an incremental partial Cholesky factorisation.

Paper symbols: prompt x* → `query`, data space D → `candidates`, λ' → `noise_variance`,
N → `n_select`, K → n, σ²_n(x*) → `variances[n]`, ψ(X) → the sum of `gains`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from sift_core.checks import check_flag, checked_weights
from sift_core.selection.backend import compiled_for
from sift_core.selection.greedy import GreedySelector, Rules
from sift_core.selection.kernels import Kernel, LinearKernel, RBFKernel
from sift_core.selection.limits import Limits, checked_limits, number_to_select
from sift_core.selection.posterior import Posterior
from sift_core.types import FloatArray, Selection


@dataclass(frozen=True, kw_only=True)
class SIFTSelector(GreedySelector):
    """Chooses, one after another, the candidates that most lower the variance at the query.

    The paper's method: SIFT(λ), and Adaptive SIFT with `alpha`. To choose text for a prompt
    take `ContextSelector`, which keeps the recall of nearest neighbours (decision 0006).
    Holds settings alone, so any number of threads may use one selector.

    Args:
        kernel: How much one text tells about another. Default: `LinearKernel()`.
        noise_variance: λ > 0 in squared kernel units. Larger values trust a single text less:
            they choose closer to the query and allow more overlap. Default: the paper's 0.01,
            or 0.1 with an `RBFKernel` (decision 0002).
        allow_repeats: Whether a candidate may be chosen again. Repeats help in training and not
            in a prompt. Default: no.
        alpha: Stop before the first step n at which σ_n > 1 / (alpha · n). Larger values stop
            earlier. Default: never.
        max_variance: Stop as soon as the variance is at most this. Default: never.
        min_gain: Stop before a choice that would lower the variance by less than this.
            Default: never.
        backend: "numba" runs compiled loops (the extra `fast`; kernels of this package, float32
            and float64) and "numpy" never does. "auto" starts with NumPy and switches to compiled
            loops when they are available (`load_compiled`). The choices are the same.
            Default: "auto".

    Raises:
        InvalidInputError: If a number is out of its range.

    References:
        Hübotter et al. (2025), Efficiently Learning at Test-Time, ICLR: section 4
        (objective), section 6 (adaptive stop).

    Example:
        >>> selector = SIFTSelector(noise_variance=0.1)
        >>> chosen = selector.select(query.embedding, pool.embeddings, 2)
        >>> [pool.document_ids[row] for row in chosen.positions]
        ['prices', 'timetable']
    """

    kernel: Kernel = field(default_factory=LinearKernel)
    noise_variance: float = None  # type: ignore[assignment]  # a number once constructed
    allow_repeats: bool = False

    def __post_init__(self) -> None:
        if self.noise_variance is None:
            default = 0.1 if isinstance(self.kernel, RBFKernel) else 0.01
            object.__setattr__(self, "noise_variance", default)
        check_flag("allow_repeats", self.allow_repeats)
        super().__post_init__()

    @classmethod
    def for_fine_tuning(cls, *, noise_variance: float = 0.01) -> SIFTSelector:
        """Return the paper's setting: linear kernel, λ = 0.01, repeats allowed."""
        return cls(noise_variance=noise_variance, allow_repeats=True)

    def select(
        self,
        query: FloatArray,
        candidates: FloatArray,
        n_select: int | None = None,
        *,
        relevance: FloatArray | None = None,
        weights: FloatArray | None = None,
        conditioned_on: FloatArray | None = None,
        limits: Limits | None = None,
    ) -> Selection:
        """Return the choices for one query.

        Takes O(n_select · n · (d + n_select + t)) time and O(n · (d + n_select + t)) memory
        for t targets. Ties go to the lowest position. All arithmetic is in float64. float32
        embeddings are read as they are, since their products are exact in float64.

        Args:
            query: Shape (d,), or several targets, shape (t, d), whose variances are summed.
            candidates: Shape (n, d). n may be 0.
            n_select: How many to choose at most, >= 0. More than n are chosen only with
                repeats. Default: as many as the budget allows, without repeats.
            relevance: Has no effect: the query alone is the target.
            weights: Weight of each target's variance, shape (t,), >= 0. Default: 1.
            conditioned_on: Embeddings that were seen before, shape (m, d), for example earlier in
                a conversation. Takes O(m · n · (d + m)) more. Default: none.
            limits: A budget, and how many of one group at most. Default: no limits.

        Returns:
            The positions in order of choice with the variance before and after each.

        Raises:
            InvalidInputError: If shapes do not fit, a number is not finite, a vector is
                all zero, `n_select` is not a count, or a limit is out of range.
            NumericalError: If the kernel's values are too large for float64.
            MissingDependencyError: If `backend` is "numba" and it is not installed.
        """
        n = _length(candidates)
        checked = checked_limits(limits, n)
        rules = Rules(
            n_select=number_to_select(n_select, n, checked, repeats=self.allow_repeats),
            priorities=np.zeros(n, dtype=np.int8),
            allow_repeats=self.allow_repeats,
            limits=checked,
        )
        compiled = compiled_for(self.backend, candidates)
        if compiled is not None and conditioned_on is None and _is_compiled(self.kernel):
            rows = compiled.read(_as_rows(query), candidates, rules.n_select)
            if rows is not None:
                own = checked_weights(weights, len(rows.nearness))
                found: Selection = rows.choose_for_queries(self, self.kernel, own, rules)
                return found

        def prior() -> Posterior:
            return Posterior.prior(
                self.kernel,
                self.noise_variance,
                query,
                candidates,
                weights=weights,
                conditioned_on=conditioned_on,
            )

        return self._chosen(prior, rules)


def _length(candidates: FloatArray) -> int:
    """Return the number of candidates; 0 if there is no length, which is refused later."""
    try:
        return len(candidates)
    except TypeError:
        return 0


def _as_rows(query: FloatArray) -> FloatArray | None:
    """Return a vector as a matrix of one row; None if it is neither a vector nor a matrix."""
    try:
        rows = np.asarray(query)
    except (TypeError, ValueError, RuntimeError):  # rows of different lengths, torch's tensors
        return None
    return np.atleast_2d(rows) if rows.ndim else None


def _is_compiled(kernel: Kernel) -> bool:
    """Return whether compiled code knows a kernel. A subclass may compute something else."""
    return type(kernel) is RBFKernel or (type(kernel) is LinearKernel and kernel.normalize)
