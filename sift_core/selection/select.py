"""Selectors from plain values, as configuration files and frameworks have them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Literal, get_args

from sift_core.checks import check_flag, short_repr
from sift_core.errors import InvalidInputError
from sift_core.selection.context import ContextSelector
from sift_core.selection.kernels import Kernel, LinearKernel, RBFKernel
from sift_core.selection.limits import check_takes_preference
from sift_core.selection.sift import SIFTSelector
from sift_core.types import FloatArray, IntArray, Selection

KernelName = Literal["auto", "rbf", "linear"]


def selector_from_settings(
    *,
    kernel: KernelName | Kernel = "auto",
    length_scale: float | None = None,
    noise_variance: float | None = None,
    allow_repeats: bool = False,
    alpha: float | None = None,
) -> ContextSelector | SIFTSelector:
    """Return the selector that these settings describe.

    Args:
        kernel: "auto" for `ContextSelector`, which reads its scales from the pool; "rbf",
            "linear" or a kernel for `SIFTSelector`, whose target is the query alone.
        length_scale: Of "rbf"; its default if None.
        noise_variance: λ > 0; the selector's default if None.
        allow_repeats: Whether a candidate may be chosen again; not with "auto".
        alpha: Adaptive stop; None never stops.

    Raises:
        InvalidInputError: If a value is out of range, or has no effect on this kernel.
    """
    is_known = kernel in get_args(KernelName) if isinstance(kernel, str) else False
    if isinstance(kernel, type) or not (is_known or isinstance(kernel, Kernel)):
        raise InvalidInputError(
            f"`kernel` must be 'auto', 'rbf', 'linear' or a kernel, got {short_repr(kernel)}"
        )
    check_flag("allow_repeats", allow_repeats)
    if kernel != "rbf" and length_scale is not None:
        raise InvalidInputError(
            f"`length_scale` has no effect with kernel={kernel!r}, got {short_repr(length_scale)}; "
            f'leave it out or pass kernel="rbf"'
        )
    if kernel == "auto":
        if allow_repeats:
            raise InvalidInputError(
                '`allow_repeats` has no meaning for text in a prompt; pass kernel="linear"'
            )
        if noise_variance is None:
            return ContextSelector(alpha=alpha)
        return ContextSelector(noise_variance=noise_variance, alpha=alpha)
    if kernel == "rbf":
        kernel = RBFKernel() if length_scale is None else RBFKernel(length_scale=length_scale)
    return SIFTSelector(
        kernel=LinearKernel() if kernel == "linear" else kernel,
        noise_variance=noise_variance,  # type: ignore[arg-type]  # None is the kernel's default
        allow_repeats=allow_repeats,
        alpha=alpha,
    )


def select(
    query: FloatArray,
    candidates: FloatArray,
    n_select: int | None = None,
    *,
    kernel: KernelName | Kernel = "auto",
    noise_variance: float | None = None,
    allow_repeats: bool = False,
    alpha: float | None = None,
    costs: FloatArray | None = None,
    budget: float | None = None,
    groups: Sequence[Hashable] | IntArray | None = None,
    max_per_group: int | None = None,
    prefer: FloatArray | None = None,
    weight: FloatArray | None = None,
) -> Selection:
    """Return the candidates that together say most about the query.

    Without further arguments the default for text in a prompt, `ContextSelector`; with a
    kernel the paper's method, `SIFTSelector`.

    Args:
        query: Embedding of the question, shape (d,), or of several, shape (m, d).
        candidates: Embeddings to choose from, shape (n, d).
        n_select: How many to choose at most, >= 0; may be left out with a budget.
        kernel: As in `selector_from_settings`, like the rest.
        noise_variance: λ > 0; the selector's default if None.
        allow_repeats: Not with "auto".
        alpha: Adaptive stop.
        costs: Of each candidate, shape (n,), > 0, for instance tokens.
        budget: What the choices may cost together.
        groups: Of each candidate, n names or numbers, for instance of documents.
        max_per_group: How many of one group at most.
        prefer: Which of several near-duplicates to choose, shape (n,), for instance dates in
            seconds: the highest. Only with "auto".
        weight: What each candidate counts beforehand, shape (n,), > 0, for instance recency
            or trust. Only with "auto".

    Raises:
        InvalidInputError: If an argument is out of range or shapes do not fit.

    Example:
        >>> import numpy as np
        >>> basis = np.eye(3)
        >>> query = np.array([2.0, 1.0, 0.0])
        >>> select(query, basis[[0, 0, 1]], 2).positions.tolist()
        [0, 2]
    """
    selector = selector_from_settings(
        kernel=kernel, noise_variance=noise_variance, allow_repeats=allow_repeats, alpha=alpha
    )
    given: dict[str, Any] = {"prefer": prefer, "weight": weight}
    given = {name: values for name, values in given.items() if values is not None}
    if given:
        check_takes_preference(selector)
    given |= {"costs": costs, "budget": budget, "groups": groups, "max_per_group": max_per_group}
    return selector.select(query, candidates, n_select, **given)
