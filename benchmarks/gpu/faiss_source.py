"""How fast is a `FaissSource` over an index on the GPU, against one on all cores of the machine?"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import torch

from benchmarks.report import Report
from sift_core import Query
from sift_core.sources import FaissSource

N_VECTORS, D, N_CANDIDATES = 1_000_000, 384, 200
N_QUERIES, N_ROUNDS = 64, 5


def measure(report: Report, device: torch.device, *, tiny: bool) -> None:
    """Measure exact search with vectors and documents, one query at a time and all at once."""
    n = 2_000 if tiny else N_VECTORS
    case = f"IndexFlatIP, {n:,} × {D}, top {N_CANDIDATES}"
    report.heading(case)
    try:
        import faiss
    except ImportError as error:
        report.skip(case, f"Faiss cannot be imported: {error}")
        return
    generator = np.random.default_rng(0)
    vectors = unit_rows(generator.standard_normal((n, D), dtype=np.float32))
    asked = unit_rows(generator.standard_normal((N_QUERIES, D), dtype=np.float32))
    queries = [Query(text="", embedding=row) for row in asked]
    texts = [str(row) for row in range(n)]
    index = faiss.IndexFlatIP(D)
    index.add(vectors)
    found = add_row(
        report, case, f"CPU, {faiss.omp_get_max_threads()} threads", index, texts, queries
    )
    if not getattr(faiss, "get_num_gpus", int)():
        report.skip(f"{case}, GPU", f"Faiss {faiss.__version__} is built without GPUs or sees none")
        return
    resources = faiss.StandardGpuResources()  # must outlive the index
    on_gpu = faiss.index_cpu_to_gpu(resources, device.index or 0, index)
    ids = add_row(report, case, "GPU", on_gpu, texts, queries)
    shared = [len(set(one) & set(other)) / len(one) for one, other in zip(found, ids, strict=True)]
    report.add(case=case, same_as_cpu=round(float(np.mean(shared)), 5))


def add_row(
    report: Report, case: str, method: str, index: Any, texts: list[str], queries: list[Query]
) -> list[list[str]]:
    """Add the times of a source over an index; return what it finds for each query."""
    source = FaissSource(index, texts)
    found = source.fetch_batch(queries, N_CANDIDATES)  # a first call does not count
    source.fetch(queries[0], N_CANDIDATES)
    one = [ms_of(partial(source.fetch, query, N_CANDIDATES)) for query in queries]
    all_ms = median(
        ms_of(lambda: source.fetch_batch(queries, N_CANDIDATES)) for _ in range(N_ROUNDS)
    )
    report.add(
        case=case,
        method=method,
        fetch_ms=round(median(one), 4),
        fetch_batch_queries_a_second=round(1000 * len(queries) / all_ms, 2),
    )
    return [list(pool.document_ids) for pool in found]


def unit_rows(rows: np.ndarray) -> np.ndarray:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def ms_of(call: Callable[[], object]) -> float:
    """Return a call's time; what a source returns is in the memory of the CPU by then."""
    begin = time.perf_counter()
    call()
    return 1000 * (time.perf_counter() - begin)
