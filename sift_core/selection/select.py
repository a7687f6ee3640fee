"""The choice from arrays, and the selectors that the command line and the service name."""

from __future__ import annotations

from typing import Literal

from sift_core.checks import short_repr
from sift_core.errors import InvalidInputError
from sift_core.selection.context import ContextSelector
from sift_core.selection.kernels import LinearKernel, RBFKernel
from sift_core.selection.limits import Limits
from sift_core.selection.sift import SIFTSelector
from sift_core.types import FloatArray, Selection

KernelName = Literal["auto", "rbf", "linear"]


def select(
    query: FloatArray,
    candidates: FloatArray,
    n_select: int | None = None,
    *,
    selector: ContextSelector | SIFTSelector | None = None,
    limits: Limits | None = None,
) -> Selection:
    """Return the candidates that together say most about the query, in order of choice.

    Args:
        query: Embedding of the question, shape (d,), or of several, shape (m, d).
        candidates: Embeddings to choose from, shape (n, d).
        n_select: How many to choose at most, >= 0. Default: as many as the budget allows.
        selector: What chooses, for example `SIFTSelector()` for the paper's method. Default:
            `ContextSelector()`, for text in a prompt.
        limits: A budget, and how many of one group at most. Default: no limits.

    Raises:
        InvalidInputError: If an argument is out of range or shapes do not fit.

    Example:
        >>> import numpy as np
        >>> basis = np.eye(3)
        >>> query = np.array([2.0, 1.0, 0.0])
        >>> select(query, basis[[0, 0, 1]], 2).positions.tolist()
        [0, 2]
    """
    if selector is None:
        selector = ContextSelector()
    elif not isinstance(selector, ContextSelector | SIFTSelector):
        raise InvalidInputError(
            f"`selector` must be a ContextSelector or a SIFTSelector, got {short_repr(selector)}"
        )
    return selector.select(query, candidates, n_select, limits=limits)


def selector_of(kernel: KernelName, noise_variance: float | None) -> ContextSelector | SIFTSelector:
    """Return the selector of a kernel that is given by name.

    Args:
        kernel: "auto" for `ContextSelector`, which reads its scales from the pool; "rbf" or
            "linear" for `SIFTSelector`, whose target is the query alone.
        noise_variance: λ > 0; the selector's default if None.

    Raises:
        InvalidInputError: If `noise_variance` is out of range.
    """
    if kernel != "auto":
        return SIFTSelector(
            kernel=RBFKernel() if kernel == "rbf" else LinearKernel(),
            noise_variance=noise_variance,  # type: ignore[arg-type]  # None is the kernel's default
        )
    if noise_variance is None:
        return ContextSelector()
    return ContextSelector(noise_variance=noise_variance)
