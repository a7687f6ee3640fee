"""Exact SIFT for many queries at once on torch tensors: one code for CPU and CUDA.

The recursion of `sift_core.selection.posterior` with a batch axis in front. Paper symbols:
λ' → `noise_variance`, N → `n_select`, K → n, σ²_n(x*) → `variances[:, n]`.
"""

from __future__ import annotations

from sift_core.checks import as_count, as_number
from sift_core.errors import InvalidInputError, MissingDependencyError
from sift_core.selection.greedy import TIE_TOLERANCE
from sift_core.selection.kernels import LinearKernel, RBFKernel

try:
    import torch
    from torch import Tensor
except ImportError as error:
    raise MissingDependencyError("torch", extra="fine-tune") from error


@torch.no_grad()  # autocast changes nothing here: it leaves float64 as it is
def select_batch(
    queries: Tensor,
    candidates: Tensor,
    n_select: int,
    *,
    kernel: LinearKernel | RBFKernel | None = None,
    noise_variance: float = 0.01,
    allow_repeats: bool = True,
) -> tuple[Tensor, Tensor]:
    """Return for every query what `SIFTSelector` would choose, by tensor operations alone.

    Takes O(b · N · n · (d + N)) time and O(b · n · (d + N)) memory, in float64. The loop over
    choices never waits for the device. Meant for GPUs: on a CPU `SIFTSelector` with Numba takes
    a fraction of the time. Ties within rounding go to the lowest position. Safe in threads.

    Args:
        queries: Shape (b, d).
        candidates: Shape (b, n, d), on the same device. n may be 0.
        n_select: How many to choose for each query, >= 0. N is this number, or n without
            repeats if n is smaller. N is 0 if n is.
        kernel: On unit vectors. Default: `LinearKernel()`.
        noise_variance: λ > 0. Below about 1e-6 exact copies may no longer tie, since a batch
            of products may round them differently. Default: 0.01.
        allow_repeats: Whether a candidate may be chosen again. Default: yes.

    Returns:
        Positions, shape (b, N), int64, rows of each query's candidates in order of choice. And
        variances, shape (b, N + 1), float64, σ² at each query before the first and after every
        choice. Both are on the device of the candidates.

    Raises:
        InvalidInputError: If an argument is out of range, shapes or devices do not fit, a
            number is not finite, or a vector is all zero. Waits for the device twice.
    """
    kernel = LinearKernel() if kernel is None else kernel
    if not (type(kernel) is RBFKernel or (type(kernel) is LinearKernel and kernel.normalize)):
        raise InvalidInputError(f"`kernel` must be LinearKernel() or an RBFKernel, got {kernel!r}")
    n_select = as_count("n_select", n_select, minimum=0)
    as_number("noise_variance", noise_variance, above=0)
    targets = _unit_rows("queries", queries, n_dimensions=2)
    features = _unit_rows("candidates", candidates, n_dimensions=3)
    b, n, d = features.shape
    if targets.shape != (b, d) or targets.device != features.device:
        raise InvalidInputError(
            f"`queries` must have shape {(b, d)} on {features.device} for `candidates` of shape "
            f"{(b, n, d)}, got {tuple(targets.shape)} on {targets.device}"
        )
    n_steps = n_select if allow_repeats and n else min(n_select, n)
    diagonal = features.new_ones((b, n))  # k_j(x, x)
    query_row = _kernel(kernel, features, targets)  # (b, n), k_j(x*, x)
    factor = features.new_empty((b, n_steps, n))  # rows of the partial Cholesky factor
    positions = torch.empty((b, n_steps), dtype=torch.int64, device=features.device)
    variances = features.new_ones((b, n_steps + 1))
    numbers = torch.arange(n, device=features.device)
    is_closed = torch.zeros_like(diagonal, dtype=torch.bool)
    for step in range(n_steps):
        gains = query_row.square() / (diagonal + noise_variance)
        gains = gains.masked_fill(is_closed, -torch.inf)
        enough = gains.amax(1, keepdim=True) * (1 - TIE_TOLERANCE)
        # Not argmax, which names any one of several equals where it runs in parallel.
        pick = torch.where(gains >= enough, numbers, n - 1).amin(1, keepdim=True)  # (b, 1)
        points = features.gather(1, pick[..., None].expand(b, 1, d)).squeeze(1)
        loads = factor[:, :step].gather(2, pick[:, None].expand(b, step, 1))
        column = _kernel(kernel, features, points) - (loads * factor[:, :step]).sum(1)
        scale = (diagonal.gather(1, pick) + noise_variance).rsqrt()
        row = column * scale
        load = query_row.gather(1, pick) * scale  # its square is the gain
        factor[:, step] = row
        query_row = query_row - row * load
        diagonal = (diagonal - row.square()).clamp_(min=0)  # rounding may cross zero
        positions[:, step] = pick[:, 0]
        variances[:, step + 1] = (variances[:, step] - load[:, 0].square()).clamp_(min=0)
        if not allow_repeats:
            is_closed.scatter_(1, pick, True)
    return positions, variances


def _kernel(kernel: LinearKernel | RBFKernel, features: Tensor, points: Tensor) -> Tensor:
    """Return k(x, point) for one point (b, d) a query and its rows (b, n, d), shape (b, n)."""
    products = torch.bmm(features, points[..., None]).squeeze(2)
    if isinstance(kernel, LinearKernel):
        return products
    return ((products.clamp(max=1) - 1) * kernel.decay).exp()


def _unit_rows(name: str, vectors: Tensor, *, n_dimensions: int) -> Tensor:
    """Return the vectors in float64 at unit length; refuse those without a direction."""
    if not isinstance(vectors, Tensor) or vectors.is_complex() or vectors.ndim != n_dimensions:
        raise InvalidInputError(
            f"`{name}` must be a real torch tensor of {n_dimensions} dimensions"
        )
    rows = vectors.double()
    largest = rows.abs().amax(-1, keepdim=True) if rows.shape[-1] else rows.new_zeros(1)
    if not bool(((largest > 0) & largest.isfinite()).all()):
        raise InvalidInputError(f"`{name}` must be finite and not all zero; was a text empty?")
    rows = rows / largest  # squares of very small or large numbers would leave the range
    length: Tensor = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
    return rows / length
