"""How many queries a second does batched selection reach on the device?

The peer is `SIFTSelector` on one core of the same machine, with compiled loops if Numba is there.
The tag `evidence-2026-11b` also compares with the limits of the device.
"""

from __future__ import annotations

import time
from statistics import median

import torch

from benchmarks.gpu.device import seconds_of
from benchmarks.report import Report
from sift_core import SIFTSelector, load_compiled
from sift_core.errors import MissingDependencyError
from sift_core.selection.torch_batch import select_batch

N_CANDIDATES, N_SELECT = 200, 50
CASES = ((384, 64), (384, 1024), (384, 16_384), (1024, 1024))  # dimensions, queries
TINY_CASES = ((32, 4), (48, 8))
JUDGED = (1024, 1024)
N_COMPARED = 64  # at most, with what the CPU chooses
N_REPEATED = 21


def measure(report: Report, device: torch.device, *, tiny: bool) -> None:
    """Measure every case; one for which memory does not suffice is left out."""
    try:
        load_compiled()
    except MissingDependencyError as error:
        report.skip("compiled loops, so that the CPU has NumPy alone", str(error))
    for d, n_queries in TINY_CASES if tiny else CASES:
        case = f"{n_queries} queries, d {d}, K {N_CANDIDATES}, N {N_SELECT}"
        report.heading(f"select_batch: {case}")
        try:
            rate = measure_case(report, case, device, d, n_queries)
        except torch.OutOfMemoryError as error:
            report.skip(case, str(error).splitlines()[0])
            continue
        if (d, n_queries) == JUDGED:
            report.judge("Batched selection, queries a second", rate, "queries_a_second")


def measure_case(report: Report, case: str, device: torch.device, d: int, n_queries: int) -> float:
    """Add a row; return queries a second."""
    queries, candidates = problems(device, d, n_queries)
    found = select_batch(queries, candidates, N_SELECT)[0][:N_COMPARED].cpu().numpy()
    own_queries = queries[:N_COMPARED].cpu().numpy()
    own_candidates = candidates[:N_COMPARED].cpu().numpy()
    begin = time.perf_counter()
    ours = SIFTSelector.for_fine_tuning().select_batch(own_queries, own_candidates, N_SELECT)
    cpu_rate = len(ours) / (time.perf_counter() - begin)
    taken = seconds_of(
        lambda: select_batch(queries, candidates, N_SELECT), device, repeats=N_REPEATED
    )
    rate = n_queries / median(taken)
    report.add(
        case=case,
        ms=round(1000 * median(taken), 4),
        queries_a_second=round(rate, 1),
        cpu_queries_a_second=round(cpu_rate, 1),
        over_cpu=round(rate / cpu_rate, 3),
        compared=len(ours),
        same_as_cpu=sum(
            chosen.positions.tolist() == row.tolist()
            for chosen, row in zip(ours, found, strict=True)
        ),
    )
    return rate


def problems(device: torch.device, d: int, n_queries: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return queries (b, d) and candidates (b, n, d) of unit length in float32, on the device.

    Candidates have cosines 0.9 to 0.3 with their query, in falling order as a search gives them.
    """
    generator = torch.Generator(device).manual_seed(0)

    def directions(*shape: int) -> torch.Tensor:
        rows = torch.randn(*shape, device=device, generator=generator)
        return torch.nn.functional.normalize(rows, dim=-1)

    queries = directions(n_queries, d)
    nearness = torch.linspace(0.9, 0.3, N_CANDIDATES, device=device)[None, :, None]
    candidates = nearness * queries[:, None]
    candidates += (1 - nearness**2).sqrt() * directions(n_queries, N_CANDIDATES, d)
    return queries, torch.nn.functional.normalize(candidates, dim=-1)
