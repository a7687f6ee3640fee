"""How many queries a second does batched selection reach on a GPU?

Run by `benchmarks.selection`; imports torch where it is used and needs CUDA only to measure. The
tag `evidence-2026-11b` also compares with the device's limits of memory and arithmetic.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.report import Report
from sift_core import SIFTSelector

CASE = "GPU"
N_QUERIES, D, N_CANDIDATES, N_SELECT = 1024, 1024, 200, 50
N_CHECKED = 8  # queries whose positions are compared with the CPU's
N_REPEATED = 21


def measure(report: Report) -> None:
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
    found = select_batch(queries, candidates, N_SELECT)[0]
    selector, same = SIFTSelector.for_fine_tuning(), 0
    for i in range(N_CHECKED):
        ours = selector.select(queries[i].cpu().numpy(), candidates[i].cpu().numpy(), N_SELECT)
        same += np.array_equal(found[i].cpu().numpy(), ours.positions)
    times_ms = []
    for _ in range(N_REPEATED):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        select_batch(queries, candidates, N_SELECT)
        end.record()
        torch.cuda.synchronize()
        times_ms.append(start.elapsed_time(end))
    ms = float(np.median(times_ms))
    rate = 1000 * N_QUERIES / ms
    report.add(
        case=CASE,
        device=torch.cuda.get_device_name(),
        ms=ms,
        queries_a_second=rate,
        compared=N_CHECKED,
        same_as_cpu=same,
    )
    report.judge("GPU, queries a second", rate, "gpu_queries_a_second")


def problems(torch: Any) -> tuple[Any, Any]:
    """Return queries (b, d) and candidates (b, n, d) of unit length, made on the device.

    Candidates have cosines 0.9 to 0.3 with their query, in falling order as a search gives them.
    """
    generator = torch.Generator("cuda").manual_seed(0)

    def directions(*shape: int) -> Any:
        rows = torch.randn(*shape, device="cuda", generator=generator)
        return torch.nn.functional.normalize(rows, dim=-1)

    queries = directions(N_QUERIES, D)
    nearness = torch.linspace(0.9, 0.3, N_CANDIDATES, device="cuda")[None, :, None]
    candidates = nearness * queries[:, None]
    candidates += (1 - nearness**2).sqrt() * directions(N_QUERIES, N_CANDIDATES, D)
    return queries, torch.nn.functional.normalize(candidates, dim=-1)
