"""Exact greedy SIFT by an incremental partial Cholesky factorisation.

Paper symbols: prompt x* → `query`, data space D → `candidates`, λ' → `noise_variance`,
N → `n_select`, K → n, σ²_n(x*) → `variances[n]`, ψ(X) → the sum of `gains`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from sift_core.errors import InvalidInputError
from sift_core.selection.kernels import Kernel, LinearKernel, RBFKernel
from sift_core.selection.posterior import Posterior
from sift_core.types import FloatArray, Selection, StopReason, as_count

# Objectives closer than this, relative to the largest, count as tied. Guess: a few
# hundred roundings of float64, so that copies of a vector tie whatever order BLAS sums in.
TIE_TOLERANCE = 1e-12


@dataclass(frozen=True, kw_only=True)
class SIFTSelector:
    """Chooses, one after another, the candidates that most lower the variance at the query.

    Holds settings alone, so one selector may serve any number of threads. The default
    chooses text for a prompt (decision 0002); `for_fine_tuning` gives the paper's setting.

    Args:
        kernel: How much one text tells about another.
        noise_variance: λ > 0 in squared kernel units. Larger values trust a single text
            less and so choose closer to the query and allow more overlap.
        allow_repeats: Whether a candidate may be chosen again. Worth it for training
            steps, useless in a prompt.
        alpha: Adaptive stop: end before the first step n at which σ_n > 1 / (alpha · n).
            Larger values stop earlier. None never stops.
        max_variance: Stop as soon as the variance is at most this. None never stops.
        min_gain: Stop before a choice that would lower the variance by less than this.
            None never stops.

    Raises:
        InvalidInputError: If a number is out of its range.

    References:
        Hübotter et al. (2025), Efficiently Learning at Test-Time, ICLR: section 4
        (objective), section 6 (adaptive stop).
    """

    kernel: Kernel = field(default_factory=RBFKernel)
    noise_variance: float = 0.1
    allow_repeats: bool = False
    alpha: float | None = None
    max_variance: float | None = None
    min_gain: float | None = None

    def __post_init__(self) -> None:
        if not 0 < self.noise_variance < np.inf:  # also rejects NaN
            raise InvalidInputError(
                f"`noise_variance` must be a finite number > 0, got {self.noise_variance}"
            )
        for name in ("alpha", "max_variance", "min_gain"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InvalidInputError(f"`{name}` must be > 0 or None, got {value}")

    @classmethod
    def for_fine_tuning(cls, *, noise_variance: float = 0.01) -> SIFTSelector:
        """Return the paper's setting: linear kernel, λ = 0.01, repeats allowed."""
        return cls(kernel=LinearKernel(), noise_variance=noise_variance, allow_repeats=True)

    @classmethod
    def from_settings(
        cls,
        *,
        kernel: Literal["rbf", "linear"] = "rbf",
        length_scale: float | None = None,
        noise_variance: float | None = None,
        allow_repeats: bool = False,
        alpha: float | None = None,
    ) -> SIFTSelector:
        """Return a selector from plain values, as configuration files and frameworks have them.

        Args:
            kernel: "rbf", for text in a prompt, or "linear", the paper's.
            length_scale: Of the RBF kernel; its default if None.
            noise_variance: λ > 0. If None, 0.1 with "rbf" and the paper's 0.01 with "linear".
            allow_repeats: Whether a candidate may be chosen again.
            alpha: Adaptive stop; None never stops.

        Raises:
            InvalidInputError: If a value is out of range, or a length scale is given for
                the linear kernel.
        """
        if kernel not in ("rbf", "linear"):
            raise InvalidInputError(f"`kernel` must be 'rbf' or 'linear', got {kernel!r}")
        if kernel == "linear" and length_scale is not None:
            raise InvalidInputError(
                f"`length_scale` has no effect on the linear kernel, got {length_scale}; leave it "
                f'out or pass kernel="rbf"'
            )
        default = cls() if kernel == "rbf" else cls.for_fine_tuning()
        return cls(
            kernel=default.kernel if length_scale is None else RBFKernel(length_scale=length_scale),
            noise_variance=default.noise_variance if noise_variance is None else noise_variance,
            allow_repeats=allow_repeats,
            alpha=alpha,
        )

    def select(self, query: FloatArray, candidates: FloatArray, n_select: int) -> Selection:
        """Return the choices for one query.

        Takes O(n_select · n · (d + n_select)) time and O(n · (d + n_select)) memory.
        Ties go to the lowest position. Computes in float64 whatever arrives.

        Args:
            query: Shape (d,).
            candidates: Shape (n, d). n may be 0.
            n_select: How many to choose, >= 0. More than n are chosen only with repeats.

        Returns:
            The positions in order of choice with the variance before and after each.

        Raises:
            InvalidInputError: If shapes do not fit, a number is not finite, a vector is
                all zero, or `n_select` is not a count.
            NumericalError: If the kernel's values are too large for float64.
        """
        n_select = as_count("n_select", n_select, minimum=0)
        posterior = Posterior.prior(self.kernel, self.noise_variance, query, candidates)
        return posterior.as_selection(self._choose(posterior, n_select))

    def _choose(self, posterior: Posterior, n_select: int) -> StopReason:
        """Add choices to `posterior` and return why they ended."""
        chosen = np.zeros(posterior.n, dtype=bool)
        for n in range(1, n_select + 1):
            if self.max_variance is not None and posterior.variances[-1] <= self.max_variance:
                return StopReason.MAX_VARIANCE
            if chosen.all() and (posterior.n == 0 or not self.allow_repeats):
                return StopReason.POOL_EXHAUSTED
            gains = posterior.gains()
            if not self.allow_repeats:
                gains[chosen] = -np.inf
            position = _first_largest(gains)
            gain = float(gains[position])
            if self.min_gain is not None and gain < self.min_gain:
                return StopReason.MIN_GAIN
            variance = max(posterior.variances[-1] - gain, 0.0)
            if self.alpha is not None and variance**0.5 > 1.0 / (self.alpha * n):
                return StopReason.ALPHA  # paper, section 6: stop *before* this step
            chosen[position] = True
            posterior.observe(position)
        return StopReason.N_SELECT


def select(
    query: FloatArray,
    candidates: FloatArray,
    n_select: int,
    *,
    kernel: Kernel | None = None,
    noise_variance: float | None = None,
    allow_repeats: bool = False,
    alpha: float | None = None,
) -> Selection:
    """Return the candidates that together say most about the query.

    The plain-function form of `SIFTSelector`; the same arguments mean the same, and
    leaving them out gives the same default.

    Args:
        query: Embedding of the question, shape (d,).
        candidates: Embeddings to choose from, shape (n, d).
        n_select: How many to choose, >= 0.
        kernel: `RBFKernel()` if None.
        noise_variance: λ > 0; 0.1 if None.
        allow_repeats: Whether a candidate may be chosen again.
        alpha: Adaptive stop; None never stops.

    Raises:
        InvalidInputError: If an argument is out of range or shapes do not fit.

    Example:
        >>> import numpy as np
        >>> basis = np.eye(3)
        >>> query = np.array([2.0, 1.0, 0.0])
        >>> paper = {"kernel": LinearKernel(), "noise_variance": 0.01}
        >>> select(query, basis[[0, 0, 1]], 2, **paper).positions.tolist()
        [0, 2]
    """
    default = SIFTSelector()
    selector = SIFTSelector(
        kernel=default.kernel if kernel is None else kernel,
        noise_variance=default.noise_variance if noise_variance is None else noise_variance,
        allow_repeats=allow_repeats,
        alpha=alpha,
    )
    return selector.select(query, candidates, n_select)


def _first_largest(values: FloatArray) -> int:
    """Return the lowest position whose value is the largest, up to rounding."""
    largest = values.max()
    return int(np.argmax(values >= largest - abs(largest) * TIE_TOLERANCE))
