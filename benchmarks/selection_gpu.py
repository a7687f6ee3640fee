"""How many queries a second does batched selection reach on a GPU, and what is the floor?

Run by `benchmarks.selection`; imports torch where it is used and needs CUDA only to measure.

Floor, for b queries with K candidates of d numbers of s bytes and N choices:

- bytes: the candidates must be read once, b·K·d·s; queries and results are small beside them.
- FLOPs: N kernel columns against K candidates, 2·K·d each, and the partial Cholesky update of
  choice j, 2·K·j, so b·(2·N·K·d + N²·K). A form that makes the Gram matrix first needs
  b·(K²·d + N²·K) instead (the matrix is symmetric); the smaller of the two counts.

Each over what this very device is measured to do: copying a large tensor, and a large matrix
product in float32 and in TF32. The floor is the larger of the two times; its share of the
measured time says how near the device's limit we are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.report import Report
from sift_core import SIFTSelector

CASE = "GPU"
N_QUERIES, D, N_CANDIDATES, N_SELECT = 1024, 1024, 200, 50
N_CHECKED = 8  # queries whose positions are compared with the CPU's


def floor_bytes(b: int, d: int, n_candidates: int, itemsize: int = 4) -> int:
    """Return how many bytes any exact selection must at least read."""
    return b * n_candidates * d * itemsize


def floor_flops(b: int, d: int, n_candidates: int, n_select: int) -> int:
    """Return how many floating-point operations the leaner of the two forms takes."""
    columns = 2 * n_select * n_candidates * d
    gram = n_candidates**2 * d
    return b * (min(columns, gram) + n_select**2 * n_candidates)


def measure(report: Report, *, repetitions: int = 21) -> None:
    """Measure the batched selection where there are a GPU and the function; else say so."""
    report.heading(f"GPU: batches of {N_QUERIES}, d {D}, K {N_CANDIDATES}, N {N_SELECT}")
    try:
        import torch

        from sift_core.selection.torch_batch import select_batch
    except ImportError as error:
        report.skip(CASE, f"{error}")
        return
    if not torch.cuda.is_available():
        report.skip(CASE, "no CUDA device")
        return
    queries, candidates = problems(torch)
    call = lambda: select_batch(queries, candidates, N_SELECT)  # noqa: E731
    seconds = median_seconds(torch, call, repetitions)
    limits = device_limits(torch)
    byte_s = floor_bytes(N_QUERIES, D, N_CANDIDATES) / limits["bytes_a_second"]
    flops = floor_flops(N_QUERIES, D, N_CANDIDATES, N_SELECT)
    row = {
        "case": CASE,
        "device": torch.cuda.get_device_name(),
        "ms": seconds * 1000,
        "queries_a_second": N_QUERIES / seconds,
        **limits,
        "floor_bytes_ms": byte_s * 1000,
        "floor_float32_ms": flops / limits["float32_flops_a_second"] * 1000,
        "floor_tf32_ms": flops / limits["tf32_flops_a_second"] * 1000,
        "share_of_memory_limit": byte_s / seconds,
        "share_of_float32_limit": flops / limits["float32_flops_a_second"] / seconds,
        "share_of_tf32_limit": flops / limits["tf32_flops_a_second"] / seconds,
        "compared": N_CHECKED,
        "same_as_cpu": same_as_cpu(call()[0], queries, candidates),
    }
    report.rows.append(row)
    for name, value in row.items():
        print(f"  {name:>24} {value if isinstance(value, str) else f'{value:.4g}'}")
    report.judge("GPU, queries a second", row["queries_a_second"], "gpu_queries_a_second")


def problems(
    torch: Any,
    device: str = "cuda",
    *,
    n_queries: int = N_QUERIES,
    d: int = D,
    n_candidates: int = N_CANDIDATES,
) -> tuple[Any, Any]:
    """Return queries (b, d) and candidates (b, n, d) of unit length, made on the device.

    Candidates have cosines .9 to .3 with their query, in falling order as a search gives them.
    """
    generator = torch.Generator(device).manual_seed(0)

    def directions(*shape: int) -> Any:
        rows = torch.randn(*shape, device=device, generator=generator)
        return torch.nn.functional.normalize(rows, dim=-1)

    queries = directions(n_queries, d)
    nearness = torch.linspace(0.9, 0.3, n_candidates, device=device)[None, :, None]
    candidates = nearness * queries[:, None]
    candidates += (1 - nearness**2).sqrt() * directions(n_queries, n_candidates, d)
    return queries, torch.nn.functional.normalize(candidates, dim=-1)


def median_seconds(torch: Any, call: Callable[[], object], repetitions: int) -> float:
    """Return the median time of a call by CUDA events, after three to warm up."""
    for _ in range(3):
        call()
    times = []
    for _ in range(repetitions):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start.record()
        call()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) / 1000)
    return float(np.median(times))


def device_limits(torch: Any) -> dict[str, float]:
    """Return what the device does at best: bytes copied and products computed a second."""
    source = torch.empty(2**28, device="cuda")  # 1 GiB
    target = torch.empty_like(source)
    copied = 2 * source.numel() * 4  # read and written
    limits = {"bytes_a_second": copied / median_seconds(torch, lambda: target.copy_(source), 11)}
    n = 8192
    a, b = (torch.randn(n, n, device="cuda") for _ in range(2))
    before = torch.backends.cuda.matmul.allow_tf32
    try:
        for name, allowed in (("float32", False), ("tf32", True)):
            torch.backends.cuda.matmul.allow_tf32 = allowed
            seconds = median_seconds(torch, lambda: a @ b, 11)
            limits[f"{name}_flops_a_second"] = 2 * n**3 / seconds
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    return limits


def same_as_cpu(found: Any, queries: Any, candidates: Any, n_select: int = N_SELECT) -> int:
    """Return for how many of the first queries `SIFTSelector` chooses the same on the CPU.

    Args:
        found: Positions, tensor (b, n_select).
        queries: Tensor (b, d).
        candidates: Tensor (b, n, d).
        n_select: How many were chosen.
    """
    selector = SIFTSelector.for_fine_tuning()
    same = 0
    for i in range(min(N_CHECKED, len(queries))):
        ours = selector.select(queries[i].cpu().numpy(), candidates[i].cpu().numpy(), n_select)
        same += np.array_equal(found[i].cpu().numpy(), ours.positions)
    return same
