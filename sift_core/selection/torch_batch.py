"""Exact SIFT for many queries at once on torch tensors: one code for CPU and CUDA.

The recursion of `sift_core.selection.posterior` with a batch axis in front. Paper symbols:
λ' → `noise_variance`, N → `n_select`, K → n, σ²_n(x*) → `variances[:, n]`.
"""

from __future__ import annotations

from dataclasses import dataclass

from sift_core.checks import as_count
from sift_core.errors import InvalidInputError, MissingDependencyError
from sift_core.selection.greedy import TIE_TOLERANCE
from sift_core.selection.kernels import LinearKernel, RBFKernel
from sift_core.selection.posterior import check_noise_variance
from sift_core.types import Selection, StopReason

try:
    import torch
    from torch import Tensor
except ImportError as error:
    raise MissingDependencyError("torch", extra="fine-tune") from error

NO_CHOICE = -1  # in `positions`, once a query's pool has run out


@dataclass(frozen=True, kw_only=True, eq=False)
class TorchSelection:
    """What was chosen for every query of a batch, on the device where it was computed.

    Args:
        positions: Shape (b, N), int64, rows of each query's candidates in order of choice;
            -1 after the last choice where a pool ran out.
        variances: Shape (b, N + 1), float64, σ² at each query before the first and after
            every choice; constant after the last one.
    """

    positions: Tensor
    variances: Tensor

    def __len__(self) -> int:
        """Return the number of queries."""
        return len(self.positions)

    def selections(self) -> list[Selection]:
        """Return one `Selection` a query, on the CPU; waits for the device."""
        rows, variances = self.positions.cpu().numpy(), self.variances.cpu().numpy()
        return [
            Selection(
                positions=chosen[:k].copy(),
                variances=falling[: k + 1].copy(),
                stop_reason=StopReason.N_SELECT if k == len(chosen) else StopReason.POOL_EXHAUSTED,
            )
            for chosen, falling, k in zip(rows, variances, (rows >= 0).sum(axis=1), strict=True)
        ]


def select_batch(
    queries: Tensor,
    candidates: Tensor,
    n_select: int,
    *,
    kernel: LinearKernel | RBFKernel | None = None,
    noise_variance: float = 0.01,
    allow_repeats: bool = True,
    mask: Tensor | None = None,
) -> TorchSelection:
    """Return for every query what `SIFTSelector` would choose, by tensor operations alone.

    Takes O(b · N · n · (d + N)) time and O(b · n · (d + N)) memory, in float64. Inside the loop
    over choices the host never waits for the device. Meant for GPUs: on a CPU `SIFTSelector`
    with Numba takes a fraction of the time. Ties within rounding go to the lowest position.
    Holds no state, so any number of threads may call it.

    Args:
        queries: Shape (b, d).
        candidates: Shape (b, n, d), on the same device. n may be 0.
        n_select: How many to choose for each query, >= 0. A pool gives more than it has
            only with repeats.
        kernel: On unit vectors; `LinearKernel()` if None.
        noise_variance: λ > 0. Below about 1e-6 exact copies no longer surely tie, since a
            batch of products may round them differently.
        allow_repeats: Whether a candidate may be chosen again.
        mask: Shape (b, n), bool: the rows that exist, for pools of unequal size. The others
            may hold anything. All if None.

    Raises:
        InvalidInputError: If an argument is out of range, shapes or devices do not fit, a
            number is not finite, or a vector is all zero. Waits for the device once.
    """
    kernel = LinearKernel() if kernel is None else kernel
    n_select = as_count("n_select", n_select, minimum=0)
    check_noise_variance(noise_variance)
    _check(queries, candidates, mask, kernel)
    # Autocast would take products in half precision.
    with torch.no_grad(), torch.autocast(candidates.device.type, enabled=False):
        mask = torch.ones_like(candidates[..., 0], dtype=torch.bool) if mask is None else mask
        targets = _unit_rows("queries", queries)
        features = _unit_rows("candidates", candidates.masked_fill(~mask[..., None], 1))
        return _choose(targets, features, mask, n_select, kernel, noise_variance, allow_repeats)


def _choose(
    targets: Tensor,
    features: Tensor,
    mask: Tensor,
    n_select: int,
    kernel: LinearKernel | RBFKernel,
    noise_variance: float,
    allow_repeats: bool,
) -> TorchSelection:
    b, n, d = features.shape
    n_steps = n_select if allow_repeats and n else min(n_select, n)
    diagonal = torch.ones_like(features[..., 0])  # (b, n), k_j(x, x)
    query_row = _kernel(kernel, features, targets)  # (b, n), k_j(x*, x)
    factor = features.new_empty((b, n_steps, n))  # rows of the partial Cholesky factor
    positions = features.new_full((b, n_select), NO_CHOICE, dtype=torch.int64)
    variances = features.new_ones((b, n_select + 1))
    numbers = torch.arange(n, device=features.device)
    is_open = mask.clone()
    for step in range(n_steps):
        gains = (query_row.square() / (diagonal + noise_variance)).where(is_open, -torch.inf)
        largest = gains.amax(1, keepdim=True)
        # Not argmax, which names any one of several equals where it runs in parallel.
        pick = torch.where(gains >= largest * (1 - TIE_TOLERANCE), numbers, n - 1)
        pick = pick.amin(1, keepdim=True)  # (b, 1)
        is_left = largest >= 0  # a pool that ran out records and changes nothing
        points = features.gather(1, pick[..., None].expand(b, 1, d)).squeeze(1)
        earlier = factor[:, :step]
        loads = earlier.gather(2, pick[:, None].expand(b, step, 1))
        column = _kernel(kernel, features, points) - (loads * earlier).sum(1)
        scale = (diagonal.gather(1, pick) + noise_variance).rsqrt() * is_left
        row = column * scale
        factor[:, step] = row
        weight = query_row.gather(1, pick) * scale  # its square is the gain
        query_row = query_row - row * weight
        diagonal = (diagonal - row.square()).clamp_(min=0)  # rounding may cross zero
        positions[:, step : step + 1] = torch.where(is_left, pick, NO_CHOICE)
        variances[:, step + 1 :] = (variances[:, step : step + 1] - weight.square()).clamp_(min=0)
        if not allow_repeats:
            is_open.scatter_(1, pick, False)
    return TorchSelection(positions=positions, variances=variances)


def _kernel(kernel: LinearKernel | RBFKernel, features: Tensor, points: Tensor) -> Tensor:
    """Return k(x, point) for one point (b, d) a query and its rows (b, n, d), shape (b, n)."""
    products = torch.bmm(features, points[..., None]).squeeze(2)
    if isinstance(kernel, LinearKernel):
        return products
    return ((products.clamp(max=1) - 1) * kernel.decay).exp()


def _unit_rows(name: str, vectors: Tensor) -> Tensor:
    """Return the vectors in float64 at unit length; refuse those without a direction."""
    rows = vectors.double()
    largest = rows.abs().amax(-1, keepdim=True)
    if not bool(((largest > 0) & largest.isfinite()).all()):
        raise InvalidInputError(
            f"`{name}` must be finite and not all zero, got a vector that is not; "
            f"was an empty text embedded?"
        )
    rows = rows / largest  # squares of very small or large numbers would leave the range
    length: Tensor = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
    return rows / length


def _check(queries: Tensor, candidates: Tensor, mask: Tensor | None, kernel: object) -> None:
    """Refuse what does not fit together; looks at no number."""
    if not (type(kernel) is RBFKernel or (type(kernel) is LinearKernel and kernel.normalize)):
        raise InvalidInputError(
            f"`kernel` must be a LinearKernel() or an RBFKernel, got {kernel!r}; SIFTSelector "
            f"takes any kernel"
        )
    for name, tensor, n_dimensions in (("queries", queries, 2), ("candidates", candidates, 3)):
        if not isinstance(tensor, Tensor) or tensor.is_complex() or tensor.ndim != n_dimensions:
            got = tuple(tensor.shape) if isinstance(tensor, Tensor) else type(tensor).__name__
            raise InvalidInputError(
                f"`{name}` must be a real torch tensor of {n_dimensions} dimensions, got {got}"
            )
    b, d = queries.shape
    shape, device = tuple(candidates.shape), candidates.device
    if d == 0 or shape[0] != b or shape[2] != d:
        raise InvalidInputError(
            f"`candidates` must have shape ({b}, n, {d}) for `queries` of {(b, d)} with d >= 1, "
            f"got {shape}; were both made by one model?"
        )
    if queries.device != device:
        raise InvalidInputError(
            f"`queries` must be on {device} like the candidates, got {queries.device}"
        )
    if mask is not None and (
        not isinstance(mask, Tensor)
        or (mask.dtype, mask.shape, mask.device) != (torch.bool, shape[:2], device)
    ):
        raise InvalidInputError(
            f"`mask` must be a torch tensor of bool with shape {shape[:2]} on {device}, got "
            f"{mask!r:.80}"
        )
