"""Exact greedy SIFT by an incremental partial Cholesky factorisation.

Paper symbols: prompt x* → `query`, data space D → `candidates`, λ' → `noise_variance`,
N → `n_select`, K → n, σ²_n(x*) → `variances[n]`, ψ(X) → the sum of `gains`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np

from sift_core.checks import check_flag, checked_weights
from sift_core.selection.backend import compiled_for
from sift_core.selection.greedy import GreedySelector
from sift_core.selection.kernels import Kernel, LinearKernel, RBFKernel
from sift_core.selection.limits import limits_of, number_to_select
from sift_core.selection.posterior import Posterior
from sift_core.types import FloatArray, IntArray, Selection


@dataclass(frozen=True, kw_only=True)
class SIFTSelector(GreedySelector):
    """Chooses, one after another, the candidates that most lower the variance at the query.

    The paper's method: SIFT(λ), and Adaptive SIFT with `alpha`. To choose text for a prompt
    take `ContextSelector`, which keeps the recall of nearest neighbours (decision 0006).
    Holds settings alone, so one selector may serve any number of threads.

    Args:
        kernel: How much one text tells about another.
        noise_variance: λ > 0 in squared kernel units. Larger values trust a single text
            less and so choose closer to the query and allow more overlap. None for the
            paper's 0.01, or 0.1 with an `RBFKernel` (decision 0002).
        allow_repeats: Whether a candidate may be chosen again. Worth it for training
            steps, useless in a prompt.
        alpha: Adaptive stop: end before the first step n at which σ_n > 1 / (alpha · n).
            Larger values stop earlier. None never stops.
        max_variance: Stop as soon as the variance is at most this. None never stops.
        min_gain: Stop before a choice that would lower the variance by less than this.
            None never stops.
        backend: "numba" runs compiled code (the extra `fast`; kernels of this package, float32
            and float64), "numpy" never does, "auto" does where Numba is installed, once selections
            have taken as long as loading it takes, or after `load_compiled`. The choices are the
            same.

    Raises:
        InvalidInputError: If a number is out of its range.

    References:
        Hübotter et al. (2025), Efficiently Learning at Test-Time, ICLR: section 4
        (objective), section 6 (adaptive stop).
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
        costs: FloatArray | None = None,
        budget: float | None = None,
        groups: Sequence[Hashable] | IntArray | None = None,
        max_per_group: int | None = None,
    ) -> Selection:
        """Return the choices for one query.

        Takes O(n_select · n · (d + n_select + t)) time and O(n · (d + n_select + t)) memory
        for t targets. Ties go to the lowest position. All arithmetic is in float64; float32
        embeddings are read as they are, since their products are exact there.

        Args:
            query: Shape (d,), or several targets, shape (t, d), whose variances are summed.
            candidates: Shape (n, d). n may be 0.
            n_select: How many to choose at most, >= 0. More than n are chosen only with
                repeats. None, with a budget and without repeats, for as many as that allows.
            relevance: Disregarded; the query alone is the target. `ContextSelector` goes by it.
            weights: What the variance of each target counts, shape (t,), >= 0; 1 if None.
            conditioned_on: Embeddings of what was seen before, shape (m, d), for instance
                shown earlier in a conversation. Takes O(m · n · (d + m)) more.
            costs: What each candidate costs, shape (n,), > 0, in any unit, for instance tokens;
                with `budget`.
            budget: What the choices may cost together, > 0. Of those that still fit, the one
                with the largest gain over √cost is next, or first the best single one where
                it alone is worth more than all of these (decision 0020: what that guarantees).
            groups: The group of each candidate, n names or numbers, for instance of
                documents; with `max_per_group`.
            max_per_group: How many of one group at most, >= 1.

        Returns:
            The positions in order of choice with the variance before and after each.

        Raises:
            InvalidInputError: If shapes do not fit, a number is not finite, a vector is
                all zero, `n_select` is not a count, or a limit cannot be one.
            NumericalError: If the kernel's values are too large for float64.
            MissingDependencyError: If `backend` is "numba" and it is not installed.
        """
        n = _length(candidates)
        limits = limits_of(
            n, costs=costs, budget=budget, groups=groups, max_per_group=max_per_group
        )
        n_select = number_to_select(n_select, n, limits, repeats=self.allow_repeats)
        compiled = compiled_for(self.backend, candidates)
        decay = _decay_of(self.kernel)
        if compiled is not None and decay is not None and conditioned_on is None:
            targets = _as_rows(query)
            if targets is not None and compiled.can_read(targets, candidates, n_select):
                found: Selection | None = compiled.select_rows(
                    self,
                    targets,
                    candidates,
                    checked_weights(weights, len(targets)),
                    n_select,
                    decay=decay,
                    allow_repeats=self.allow_repeats,
                    limits=limits,
                )
                if found is not None:
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

        return self._chosen(prior, n_select, allow_repeats=self.allow_repeats, limits=limits)


def _length(candidates: FloatArray) -> int:
    """Return the number of candidates; 0 of what has none and will be refused."""
    try:
        return len(candidates)
    except TypeError:
        return 0


def _as_rows(query: FloatArray) -> FloatArray | None:
    """Return a vector as a matrix of one row; None for what is no vector and no matrix."""
    try:
        rows = np.asarray(query)
    except (TypeError, ValueError, RuntimeError):  # rows of different lengths, torch's tensors
        return None
    return np.atleast_2d(rows) if rows.ndim else None


def _decay_of(kernel: Kernel) -> float | None:
    """Return the number by which compiled code knows a kernel; None for others.

    Exact types: a subclass may compute something else.
    """
    if type(kernel) is RBFKernel:
        return kernel.decay
    if type(kernel) is LinearKernel and kernel.normalize:
        return 0.0
    return None
