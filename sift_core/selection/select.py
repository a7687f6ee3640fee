"""Selectors from plain values, as configuration files and frameworks have them."""

from __future__ import annotations

from typing import Literal

from sift_core.errors import InvalidInputError
from sift_core.selection.context import ContextSelector
from sift_core.selection.kernels import Kernel, LinearKernel, RBFKernel
from sift_core.selection.sift import SIFTSelector
from sift_core.types import FloatArray, Selection

KernelName = Literal["auto", "rbf", "linear"]


def selector_from_settings(
    *,
    kernel: KernelName = "auto",
    length_scale: float | None = None,
    noise_variance: float | None = None,
    allow_repeats: bool = False,
    alpha: float | None = None,
) -> ContextSelector | SIFTSelector:
    """Return the selector that these settings describe.

    Args:
        kernel: "auto" for `ContextSelector`, which reads its scales from the pool; "rbf" or
            "linear" for `SIFTSelector`, whose target is the query alone.
        length_scale: Of the RBF kernel; its default if None.
        noise_variance: λ > 0. If None 0.2 with "auto", 0.1 with "rbf", and the paper's 0.01
            with "linear".
        allow_repeats: Whether a candidate may be chosen again; not with "auto".
        alpha: Adaptive stop; None never stops.

    Raises:
        InvalidInputError: If a value is out of range, or has no effect on this kernel.
    """
    if kernel not in ("auto", "rbf", "linear"):
        raise InvalidInputError(f"`kernel` must be 'auto', 'rbf' or 'linear', got {kernel!r}")
    if kernel != "rbf" and length_scale is not None:
        raise InvalidInputError(
            f"`length_scale` has no effect with kernel={kernel!r}, got {length_scale}; leave it "
            f'out or pass kernel="rbf"'
        )
    if kernel == "auto":
        if allow_repeats:
            raise InvalidInputError(
                '`allow_repeats` has no meaning for text in a prompt; pass kernel="linear"'
            )
        return ContextSelector(noise_variance=_or(noise_variance, 0.2), alpha=alpha)
    chosen: Kernel = LinearKernel()
    if kernel == "rbf":
        chosen = RBFKernel() if length_scale is None else RBFKernel(length_scale=length_scale)
    return SIFTSelector(
        kernel=chosen,
        noise_variance=_or(noise_variance, 0.1 if kernel == "rbf" else 0.01),
        allow_repeats=allow_repeats,
        alpha=alpha,
    )


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

    Without further arguments the default for text in a prompt, `ContextSelector`; with a
    kernel the paper's method, `SIFTSelector`.

    Args:
        query: Embedding of the question, shape (d,).
        candidates: Embeddings to choose from, shape (n, d).
        n_select: How many to choose, >= 0.
        kernel: Of SIFT with the query as its target; None for `ContextSelector`.
        noise_variance: λ > 0; if None 0.2, with a kernel the paper's 0.01.
        allow_repeats: Whether a candidate may be chosen again; needs a kernel.
        alpha: Adaptive stop; None never stops.

    Raises:
        InvalidInputError: If an argument is out of range or shapes do not fit.

    Example:
        >>> import numpy as np
        >>> basis = np.eye(3)
        >>> query = np.array([2.0, 1.0, 0.0])
        >>> select(query, basis[[0, 0, 1]], 2).positions.tolist()
        [0, 2]
    """
    if kernel is None:
        selector = selector_from_settings(
            noise_variance=noise_variance, allow_repeats=allow_repeats, alpha=alpha
        )
        return selector.select(query, candidates, n_select)
    return SIFTSelector(
        kernel=kernel,
        noise_variance=_or(noise_variance, 0.01),
        allow_repeats=allow_repeats,
        alpha=alpha,
    ).select(query, candidates, n_select)


def _or(value: float | None, default: float) -> float:
    return default if value is None else value
