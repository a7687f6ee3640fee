"""Exact SIFT for many queries at once on torch tensors: one code for CPU and CUDA.

The recursion of `sift_core.selection.posterior` with a batch axis in front. Paper symbols:
λ' → `noise_variance`, N → `n_select`, K → n, σ²_n(x*) → `variances[:, n]`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

from sift_core.checks import as_count
from sift_core.errors import InvalidInputError, MissingDependencyError, NumericalError
from sift_core.selection.greedy import TIE_TOLERANCE
from sift_core.selection.kernels import Kernel, LinearKernel, RBFKernel
from sift_core.selection.posterior import check_noise_variance
from sift_core.types import Selection, StopReason

try:
    import torch
    from torch import Tensor
except ImportError as error:
    raise MissingDependencyError("torch", extra="fine-tune") from error

NO_CHOICE = -1  # in `positions`, once a query's pool has run out

# The n × n matrix first while n is at most this multiple of `n_select`. A column takes one
# pass over the features, which is bound by memory; the matrix is bound by arithmetic. CPU:
# measured, one thread, d 384 and 1024, the matrix costs n/8 to n/3 columns. CUDA: by formula
# for 50 TFLOP/s and 4 TB/s (n/25 columns), less a margin.
GRAM_CANDIDATES_A_CHOICE = {"cpu": 4, "cuda": 16}
GRAM_CANDIDATES_A_DIMENSION = 4  # the matrix is at most this many times the candidates' size

KEY_COORDINATES = 64  # of a row, that its key is made of; guess, see `_Keys`


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
        n_select = self.positions.shape[1]
        columns = zip(self.positions.cpu().numpy(), self.variances.cpu().numpy(), strict=True)
        found = []
        for positions, variances in columns:
            k = int((positions != NO_CHOICE).sum())
            reason = StopReason.N_SELECT if k == n_select else StopReason.POOL_EXHAUSTED
            found.append(
                Selection(
                    positions=positions[:k].copy(),
                    variances=variances[: k + 1].copy(),
                    stop_reason=reason,
                )
            )
        return found


def select_batch(
    queries: Tensor,
    candidates: Tensor,
    n_select: int,
    *,
    kernel: Kernel | None = None,
    noise_variance: float = 0.01,
    allow_repeats: bool = True,
    mask: Tensor | None = None,
    dtype: torch.dtype | None = None,
    validate: bool = True,
) -> TorchSelection:
    """Return for every query what `SIFTSelector` would choose, by tensor operations alone.

    Takes O(b · N · n · (d + N)) time and O(b · n · (d + N)) memory, where the n × n matrices
    pay (n <= 4 N on a CPU, 16 N on CUDA, and n <= 4 d) O(b · n · (n · d + N²)) and
    O(b · n · (n + d + N)). The host never waits inside the loop over choices, and before it
    once if `validate`. Ties go to the lowest position, copies of a row included. Holds no
    state, so any number of threads may call it. Meant for GPUs: on a CPU `SIFTSelector`
    with Numba takes a fraction of the time.

    Args:
        queries: Shape (b, d).
        candidates: Shape (b, n, d), on the same device. n may be 0.
        n_select: How many to choose for each query, >= 0. A pool gives more than it has
            only with repeats.
        kernel: A `LinearKernel` or an `RBFKernel`; `LinearKernel()` if None.
        noise_variance: λ > 0.
        allow_repeats: Whether a candidate may be chosen again.
        mask: Shape (b, n), bool: the rows that exist, for pools of unequal size. The others
            may hold anything. All if None.
        dtype: Of the embeddings and the kernel's values, torch.float64 if None; what is
            computed from them is float64 in any case. torch.float32 is for GPUs with few
            float64 units (not A100, H100 or H200) and may choose otherwise. Measured with
            d 384, n 200, N 50: while no two candidates have a cosine above .92, 3,358 of
            3,360 selections at λ from 1e-6 to 1 were float64's; with cosines of .9999,
            which some corpora have, little more than half at λ <= 1e-5. It is taken as
            torch.float64 while this process lets torch compute float32 products in TF32 or
            bfloat16 (`torch.set_float32_matmul_precision`, `torch.backends`): that is the
            caller's setting, and too rough for variances.
        validate: Look at the numbers first, which waits for the device once. Without it a
            query with NaN, infinity or an all-zero vector in its numbers gets meaningless
            positions (in range all the same); other queries are unaffected.

    Raises:
        InvalidInputError: If an argument is out of range, shapes or devices do not fit, or,
            if `validate`, a number is not finite or a vector that must have a direction is
            all zero.
        NumericalError: If `validate` and kernel values are too large.
    """
    kernel = LinearKernel() if kernel is None else kernel
    n_select = as_count("n_select", n_select, minimum=0)
    check_noise_variance(noise_variance)
    _check_kernel(kernel)
    _check_tensors(queries, candidates, mask)
    if dtype not in (None, torch.float32, torch.float64):
        raise InvalidInputError(
            f"`dtype` must be torch.float32, torch.float64 or None, got {dtype}"
        )
    if dtype is None or not _has_full_float32(candidates.device.type):
        dtype = torch.float64
    # Autocast would take float32 products in half precision.
    with torch.no_grad(), torch.autocast(candidates.device.type, enabled=False):
        prior = _Prior.of(queries, candidates, mask, kernel, dtype, n_select, validate)
        return _choose(prior, n_select, float(noise_variance), allow_repeats, mask)


class GraphedSelector:
    """`select_batch` for one shape, captured as a CUDA graph and replayed.

    Saves the launches of about 20 small kernels a choice, which for small batches are most
    of the time. Numbers are not looked at, as with `validate=False`. Holds the buffers of
    one batch: use one selector from one thread and one CUDA stream at a time.

    Args:
        queries: An example, shape (b, d), on CUDA; its shape, dtype and device are those of
            every call. Numbers are of no consequence.
        candidates: Likewise, shape (b, n, d).
        n_select: As in `select_batch`, like the rest.
        kernel: `LinearKernel()` if None.
        noise_variance: λ > 0.
        allow_repeats: Whether a candidate may be chosen again.
        mask: An example, shape (b, n), if every call gives one.
        dtype: Of the kernel's values.

    Raises:
        InvalidInputError: If an argument is out of range or not on CUDA.
    """

    def __init__(
        self,
        queries: Tensor,
        candidates: Tensor,
        n_select: int,
        *,
        kernel: Kernel | None = None,
        noise_variance: float = 0.01,
        allow_repeats: bool = True,
        mask: Tensor | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        _check_tensors(queries, candidates, mask)
        if not candidates.is_cuda:
            raise InvalidInputError(
                f"`candidates` must be on CUDA to be captured in a graph, got device "
                f"{candidates.device}; select_batch runs anywhere"
            )
        inputs = (queries, candidates) if mask is None else (queries, candidates, mask)
        self._inputs = tuple(tensor.detach().clone() for tensor in inputs)

        def run() -> TorchSelection:
            return select_batch(
                self._inputs[0],
                self._inputs[1],
                n_select,
                kernel=kernel,
                noise_variance=noise_variance,
                allow_repeats=allow_repeats,
                mask=None if mask is None else self._inputs[2],
                dtype=dtype,
                validate=False,
            )

        self._graph: Any = torch.cuda.CUDAGraph()
        with torch.cuda.device(candidates.device):
            # Libraries make their workspaces on first use, which a capture does not allow.
            stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch has no types here
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                run()
            torch.cuda.current_stream().wait_stream(stream)
            with torch.cuda.graph(self._graph):
                self._output = run()

    def select(
        self, queries: Tensor, candidates: Tensor, mask: Tensor | None = None
    ) -> TorchSelection:
        """Return the choices for a batch of the captured shape.

        Raises:
            InvalidInputError: If a shape, dtype or device is not the captured one, or `mask`
                is given or missing unlike then.
        """
        inputs = (queries, candidates) if mask is None else (queries, candidates, mask)
        now, captured = ([_layout(t) for t in tensors] for tensors in (inputs, self._inputs))
        if now != captured:
            raise InvalidInputError(
                f"`queries`, `candidates` and `mask` must be like those of the capture, "
                f"{captured}, got {now}; make a GraphedSelector for each shape"
            )
        for buffer, given in zip(self._inputs, inputs, strict=True):
            buffer.copy_(given)
        with torch.cuda.device(candidates.device):
            self._graph.replay()
        return TorchSelection(
            positions=self._output.positions.clone(), variances=self._output.variances.clone()
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Prior:
    """The Gaussian processes before any observation, with all that columns are made from."""

    kernel: Kernel
    features: Tensor  # (b, n, d), what the kernel's products are taken of
    gram: Tensor | None  # (b, n, n), k(x, x'), where making it first pays
    diagonal: Tensor  # (b, n) float64, k(x, x)
    query_row: Tensor  # (b, n) float64, k(x*, x)
    variance: Tensor  # (b,) float64, k(x*, x*)
    originals: Tensor | None  # (b, n), first equal row of each; None if surely all differ

    @classmethod
    def of(
        cls,
        queries: Tensor,
        candidates: Tensor,
        mask: Tensor | None,
        kernel: Kernel,
        dtype: torch.dtype,
        n_select: int,
        validate: bool,
    ) -> _Prior:
        is_normalized = not (isinstance(kernel, LinearKernel) and not kernel.normalize)
        given = candidates if mask is None else candidates.masked_fill(~mask[..., None], 0)
        target = _Vectors.of(queries[:, None], is_normalized, dtype)  # n = 1
        pool = _Vectors.of(given, is_normalized, dtype)
        keys = _Keys.of(pool.given, mask)
        may_repeat = not validate or _checked(target, pool, keys, mask)
        originals = keys.first_equal_rows() if may_repeat else None
        features, diagonal, variance = pool.features, pool.squares, target.squares
        query_row = _kernel_values(kernel, torch.bmm(features, target.features.mT))
        query_row = query_row.squeeze(2).double()
        if originals is not None:
            query_row = query_row.gather(1, originals)
            diagonal = diagonal.gather(1, originals)
        n, d = features.shape[1:]
        most = GRAM_CANDIDATES_A_CHOICE[features.device.type] * n_select
        gram: Tensor | None = None
        if n <= min(most, GRAM_CANDIDATES_A_DIMENSION * d):
            gram = _kernel_values(kernel, torch.bmm(features, features.mT))
        return cls(
            kernel=kernel,
            features=features,
            gram=gram,
            diagonal=diagonal,
            query_row=query_row,
            variance=variance.squeeze(1),
            originals=originals,
        )

    def columns(self, picks: Tensor) -> Tensor:
        """Return k(x, x_pick) for one pick (b, 1) a query, shape (b, 1, n), float64."""
        b, n, d = self.features.shape
        if self.gram is not None:
            return self.gram.gather(1, picks[..., None].expand(b, 1, n)).double()
        points = self.features.gather(1, picks[..., None].expand(b, 1, d))
        return _kernel_values(self.kernel, torch.bmm(self.features, points.mT)).mT.double()


def _choose(
    prior: _Prior,
    n_select: int,
    noise_variance: float,
    allow_repeats: bool,
    mask: Tensor | None,
) -> TorchSelection:
    """Return the greedy choices; launches work for the device and never waits for it."""
    b, n = prior.diagonal.shape
    device = prior.diagonal.device
    n_steps = min(n_select, n) if n == 0 or not allow_repeats else n_select
    diagonal, query_row = prior.diagonal.clone(), prior.query_row.clone()
    factor = torch.empty((b, n_steps, n), dtype=torch.float64, device=device)
    positions = torch.full((b, n_select), NO_CHOICE, dtype=torch.int64, device=device)
    variances = prior.variance[:, None].repeat(1, n_select + 1)
    numbers = torch.arange(n, device=device)
    closed = None if mask is None else ~mask
    if closed is None and not allow_repeats:
        closed = torch.zeros((b, n), dtype=torch.bool, device=device)
    for step in range(n_steps):
        gains = query_row.square().div_(diagonal + noise_variance)
        if closed is not None:
            gains.masked_fill_(closed, -torch.inf)
        picks, largest = _first_largest(gains, numbers)
        if closed is not None and not allow_repeats:
            closed.scatter_(1, picks, True)
        points = picks if prior.originals is None else prior.originals.gather(1, picks)
        pick_diagonal = diagonal.gather(1, points)
        scale = (pick_diagonal + noise_variance).rsqrt_()
        chosen = picks
        if mask is not None:  # a pool may have run out: record and change nothing
            is_left = largest >= 0
            scale = scale * is_left
            chosen = torch.where(is_left, picks, NO_CHOICE)
        column = prior.columns(points)  # (b, 1, n)
        if step:
            earlier = factor[:, :step]
            weights = earlier.gather(2, points[:, None].expand(b, step, 1))
            column = torch.baddbmm(column, weights.mT, earlier, alpha=-1)
        column = column.squeeze(1)
        if prior.features.dtype == torch.float32:
            # Rounding of this size can make a matrix with negative eigenvalues, whose factor
            # grows without bound where λ is small. Cauchy-Schwarz bounds the column; at the
            # pick it is known from the diagonal, which decides what a repeat is worth.
            bound = (diagonal * pick_diagonal).sqrt_()
            column = column.clamp(-bound, bound).scatter_(1, points, pick_diagonal)
        if prior.originals is not None:
            column = column.gather(1, prior.originals)
        row = torch.mul(column, scale, out=factor[:, step])
        weight = query_row.gather(1, points).mul_(scale)  # its square is the gain
        query_row.addcmul_(row, weight, value=-1)
        diagonal.addcmul_(row, row, value=-1).clamp_(min=0)  # rounding may cross zero
        positions[:, step : step + 1] = chosen
        before, after = variances[:, step : step + 1], variances[:, step + 1 : step + 2]
        torch.addcmul(before, weight, weight, value=-1, out=after)
    variances[:, n_steps + 1 :] = variances[:, n_steps : n_steps + 1]
    return TorchSelection(positions=positions, variances=variances.clamp_(min=0))


def _first_largest(values: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
    """Return the lowest position of the largest of each row, up to rounding, and its value.

    Not by argmax, which names any one of several equals where it runs in parallel.

    Args:
        values: Shape (b, n), n >= 1; each >= 0, or -inf where it does not count.
        numbers: 0 ... n - 1.
    """
    largest = values.amax(1, keepdim=True)
    is_near = values >= largest * (1 - TIE_TOLERANCE)
    # n - 1 also where NaN compares with nothing: a position in range whatever happens.
    return torch.where(is_near, numbers, len(numbers) - 1).amin(1, keepdim=True), largest


def _kernel_values(kernel: Kernel, products: Tensor) -> Tensor:
    """Return k for the inner products of features, in their place."""
    if not isinstance(kernel, RBFKernel):
        return products
    return products.clamp_(max=1).sub_(1).div_(kernel.length_scale**2).exp_()


@dataclass(frozen=True, kw_only=True, eq=False)
class _Vectors:
    """What a kernel makes of some vectors for each query."""

    given: Tensor  # (b, n, d), any floating dtype
    largest: Tensor  # (b, n), the largest magnitude in each
    is_normalized: bool
    features: Tensor  # (b, n, d) in the computing dtype, unit rows if normalised
    squares: Tensor  # (b, n) float64, k(x, x)

    @classmethod
    def of(cls, given: Tensor, is_normalized: bool, dtype: torch.dtype) -> _Vectors:
        given = given if given.is_floating_point() else given.double()
        largest = torch.linalg.vector_norm(given, ord=torch.inf, dim=-1)
        rows = given
        if is_normalized and given.dtype == torch.float64:
            # Squares of very small or large numbers would leave float64's range, which is
            # wide enough for those of the smaller dtypes.
            rows = given / _or_one(largest)[..., None]
        norms = torch.linalg.vector_norm(rows, dim=-1, dtype=torch.float64)
        if is_normalized:
            features = torch.empty(rows.shape, dtype=dtype, device=rows.device)
            torch.div(rows, _or_one(norms)[..., None], out=features)  # rounded once
            squares = torch.ones_like(norms)
        else:
            features, squares = rows.to(dtype), norms.square_()
        return cls(
            given=given,
            largest=largest,
            is_normalized=is_normalized,
            features=features,
            squares=squares,
        )


def _or_one(values: Tensor) -> Tensor:
    """Return the values that can be divided by, and 1 in place of the others."""
    return values.where(values > 0, 1)


def _checked(target: _Vectors, pool: _Vectors, keys: _Keys, mask: Tensor | None) -> bool:
    """Return whether the pool may have equal rows, and refuse numbers that cannot be used.

    Waits for the device once.
    """
    row_largest = pool.largest if mask is None else pool.largest.masked_fill(~mask, 1)
    largest = torch.cat([target.largest, row_largest], dim=1)  # (b, 1 + n)
    squares = torch.cat([target.squares, pool.squares], dim=1)
    limit = torch.finfo(pool.features.dtype).max
    answers = [
        largest.isfinite().all(),
        (largest > 0).all() if pool.is_normalized else largest.isfinite().all(),
        (squares <= limit).all() & (target.squares * pool.squares).isfinite().all(),
        keys.are_repeated(),
    ]
    is_finite, has_directions, is_in_range, may_repeat = torch.stack(answers).tolist()
    if not is_finite:
        _refuse_infinite(target.given.squeeze(1), pool.given)
    if not has_directions:
        _refuse_zero(largest)
    if not is_in_range:
        raise NumericalError(
            f"the kernel's values are too large for {pool.features.dtype} (k(x, x) up to "
            f"{squares.max():g}); scale the embeddings, or use LinearKernel(normalize=True)"
        )
    return bool(may_repeat)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Keys:
    """Numbers that are equal for equal rows, and for others hardly ever."""

    rows: Tensor  # (b, n, d)
    ordered: Tensor  # (b, n) int64
    order: Tensor  # (b, n), the positions of `ordered`; equal keys in order of position

    @classmethod
    def of(cls, rows: Tensor, mask: Tensor | None) -> _Keys:
        few = rows[..., :: -(-rows.shape[2] // KEY_COORDINATES)]
        few = few.float() if few.element_size() < 4 else few
        bits = (few + 0.0).contiguous().view(torch.int32)  # + 0.0 makes -0.0 and 0.0 alike
        factors = torch.arange(1, bits.shape[2] + 1, device=rows.device)
        for multiplier, shift in SPLITMIX:
            factors = factors * multiplier
            factors = factors ^ (factors >> shift)
        # A sum of whole numbers is the same in any order, unlike one of floats.
        keys = (bits * (factors | 1)).sum(-1)
        if mask is not None:  # rows that don't exist are all equal, and of no consequence
            keys = keys.where(mask, -1 - torch.arange(rows.shape[1], device=rows.device))
        ordered, order = keys.sort(dim=1, stable=True)
        return cls(rows=rows, ordered=ordered, order=order)

    def are_repeated(self) -> Tensor:
        """Return whether any query has two equal keys, shape ()."""
        return (self.ordered[:, 1:] == self.ordered[:, :-1]).any()

    def first_equal_rows(self) -> Tensor:
        """Return the lowest position of an equal row for each row, (b, n).

        Products of equal rows may be rounded differently, and what a small λ makes of the
        rest would be noise, so copies take the first one's values. Keys propose, the rows
        decide: never are others taken for copies. A copy is missed, and ties only up to
        rounding, if an unlike row before it has the same key; that takes rows of which most
        coordinates are equal, as sparse ones.
        """
        numbers = torch.arange(self.order.shape[1], device=self.order.device)
        numbers = numbers.expand_as(self.order)
        is_first = torch.ones_like(self.order, dtype=torch.bool)
        is_first[:, 1:] = self.ordered[:, 1:] != self.ordered[:, :-1]
        start = torch.where(is_first, numbers, 0).cummax(1).values  # of each run of keys
        proposed = torch.empty_like(self.order)
        proposed.scatter_(1, self.order, self.order.gather(1, start))
        firsts = self.rows.gather(1, proposed[..., None].expand_as(self.rows))
        return torch.where((self.rows == firsts).all(-1), proposed, numbers)


# Multipliers of the splitmix64 generator (Steele, Lea and Flood 2014) as signed integers.
SPLITMIX = (
    (0x9E3779B97F4A7C15 - 2**64, 30),
    (0xBF58476D1CE4E5B9 - 2**64, 27),
    (0x94D049BB133111EB - 2**64, 31),
)


def _check_kernel(kernel: Kernel) -> None:
    if type(kernel) not in (LinearKernel, RBFKernel):  # a subclass may compute anything
        raise InvalidInputError(
            f"`kernel` must be a LinearKernel or an RBFKernel, got {type(kernel).__name__}; "
            f"SIFTSelector takes any kernel"
        )


def _check_tensors(queries: Tensor, candidates: Tensor, mask: Tensor | None) -> None:
    """Refuse tensors that do not fit together; looks at no number in them."""
    _check_tensor("queries", queries, n_dimensions=2)
    _check_tensor("candidates", candidates, n_dimensions=3)
    b, d = queries.shape
    if d == 0:
        raise InvalidInputError("`queries` must have at least 1 number each, got empty vectors")
    if candidates.shape[0] != b:
        raise InvalidInputError(
            f"`candidates` must have one pool for each of the {b} queries, got "
            f"{candidates.shape[0]}"
        )
    if candidates.shape[2] != d:
        raise InvalidInputError(
            f"`candidates` must have {d} columns like the queries, got {candidates.shape[2]}; "
            f"were both made by one model?"
        )
    device = candidates.device
    if device.type not in GRAM_CANDIDATES_A_CHOICE:
        raise InvalidInputError(f"`candidates` must be on a CPU or on CUDA, got device {device}")
    if queries.device != device:
        raise InvalidInputError(
            f"`queries` must be on {device} like the candidates, got {queries.device}"
        )
    if mask is not None:
        _check_mask(mask, candidates)


def _check_tensor(name: str, tensor: Tensor, *, n_dimensions: int) -> None:
    if not isinstance(tensor, Tensor):
        raise InvalidInputError(
            f"`{name}` must be a torch tensor, got {type(tensor).__name__}; "
            f"torch.as_tensor makes one"
        )
    if tensor.is_complex() or tensor.dtype == torch.bool:
        raise InvalidInputError(f"`{name}` must hold real numbers, got dtype {tensor.dtype}")
    if tensor.ndim != n_dimensions:
        raise InvalidInputError(
            f"`{name}` must have {n_dimensions} dimensions, got shape {tuple(tensor.shape)}"
        )


def _check_mask(mask: Tensor, candidates: Tensor) -> None:
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        kind = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise InvalidInputError(f"`mask` must be a torch tensor of bool or None, got {kind}")
    if mask.shape != candidates.shape[:2]:
        raise InvalidInputError(
            f"`mask` must have shape {tuple(candidates.shape[:2])}, a value for each "
            f"candidate, got {tuple(mask.shape)}"
        )
    if mask.device != candidates.device:
        raise InvalidInputError(
            f"`mask` must be on {candidates.device} like the candidates, got {mask.device}"
        )


def _refuse_infinite(queries: Tensor, candidates: Tensor) -> NoReturn:
    """Name the first number that is none."""
    name, tensor = ("queries", queries)
    if tensor.isfinite().all():
        name, tensor = ("candidates", candidates)
    bad = (~tensor.isfinite()).nonzero().tolist()
    raise InvalidInputError(
        f"`{name}` must be finite, got {tensor[tuple(bad[0])].item()} at {bad[0]} "
        f"({len(bad)} such value(s)); was an empty text embedded?"
    )


def _refuse_zero(largest: Tensor) -> NoReturn:
    """Name the first vector without a direction; column 0 of `largest` is the query's."""
    b, column = (largest == 0).nonzero()[0].tolist()
    where = f"`queries` at [{b}]" if column == 0 else f"`candidates` at [{b}, {column - 1}]"
    raise InvalidInputError(
        f"embeddings must not be all zero, got such a vector in {where}; was an empty text "
        f"embedded?"
    )


def _has_full_float32(device_type: str) -> bool:
    """Return whether float32 products have float32's precision in this process."""
    backend: Any = torch.backends.cuda if device_type == "cuda" else torch.backends.mkldnn
    precision = getattr(getattr(backend, "matmul", None), "fp32_precision", None)
    if precision is None:  # before torch 2.9 there is one setting for all
        return torch.get_float32_matmul_precision() == "highest"
    return precision in ("none", "ieee")


def _layout(tensor: Tensor) -> tuple[tuple[int, ...], torch.dtype, torch.device]:
    return tuple(tensor.shape), tensor.dtype, tensor.device
