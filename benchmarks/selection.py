"""How fast is selection, against activeft, its bare arithmetic, pyversity and a Faiss search?

    python -m benchmarks.selection [--quick] [--json FILE] [--plot FILE]

One thread. Every time is a median over queries and repetitions of one run in which ours and each
rival alternate; a bar is held against the worse of two kinds of data (selection_data.py).
selection_rivals.py says what exactly is timed of each rival, bars.toml what must be reached.
`--quick` shows that everything runs; its ratios are rough.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before NumPy and torch load their libraries
os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["MKL_NUM_THREADS"] = "1"
os.environ["NUMBA_NUM_THREADS"] = "1"

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import faiss
import numpy as np

from benchmarks.options import options
from benchmarks.report import Report
from benchmarks.selection_data import LEVELS, Problem, fetch_all, indexed
from benchmarks.selection_rivals import (
    PYVERSITY_STRATEGIES,
    algorithm_1,
    bare_vtl,
    pyversity,
    retriever_timer,
    without_wandb,
)
from benchmarks.timing import Timer, medians_ms, timed
from sift_core import ContextSelector, SIFTSelector, load_compiled

PACKAGES = ["numpy", "numba", "faiss-cpu", "pyversity", "activeft", "torch", "sift-rerank"]
N_SELECT = 50  # the paper's number of steps
N_CONTEXT = 10  # chunks in a prompt
OURS = "ours"
RETRIEVER = "activeft Retriever, its SIFT part"
BARE_VTL = "activeft VTL, arithmetic alone"
WITH_PAPER = "search, reconstruct_batch, for_fine_tuning()"
WITH_DEFAULT = "search, reconstruct_batch, ContextSelector()"


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much to measure."""

    n_queries: int = 16
    rounds: int = 5
    n_indexed: int = 20_000
    n_searched: int = 100_000


QUICK = Effort(n_queries=4, rounds=2, n_indexed=6_000)


def measure(report: Report, effort: Effort) -> None:
    """Run every case."""
    faiss.omp_set_num_threads(1)
    for d, n_candidates in ((384, 200), (384, 1000), (1024, 200)):
        rivals(report, effort, d, n_candidates)
    growth(report, effort)
    batch(report, effort)
    context_default(report, effort)
    on_top_of_faiss(report, effort)


def select_with(
    selector: ContextSelector | SIFTSelector, n_select: int
) -> Callable[[Problem], np.ndarray]:
    return lambda problem: selector.select(problem.query, problem.pool, n_select).positions


def numpy_timers(
    selector: ContextSelector | SIFTSelector, n_select: int
) -> dict[str, Timer[Problem]]:
    """Return a timer of the selector without compiled code."""
    plain = replace(selector, backend="numpy")
    return {"ours, NumPy alone": timed(select_with(plain, n_select))}


def pyversity_timers(n_select: int) -> dict[str, Timer[Problem]]:
    return {
        f"pyversity {strategy}": timed(partial(pyversity, n_select=n_select, strategy=strategy))
        for strategy in PYVERSITY_STRATEGIES
    }


def rivals(report: Report, effort: Effort, d: int, n_candidates: int) -> None:
    """Measure the paper's setting against activeft, its arithmetic, pyversity and Algorithm 1."""
    case = f"{d}_{n_candidates}_{N_SELECT}"
    report.heading(f"d {d}, K {n_candidates}, N {N_SELECT}, SIFTSelector.for_fine_tuning()")
    selector = SIFTSelector.for_fine_tuning()
    ratios: list[dict[str, float]] = []
    for kind in LEVELS:
        index, points = indexed(kind, effort.n_indexed, d, effort.n_queries)
        problems = fetch_all(index, points, n_candidates)
        retriever = retriever_timer(index, N_SELECT)
        timers: dict[str, Timer[Problem]] = {
            OURS: timed(select_with(selector, N_SELECT)),
            RETRIEVER: retriever,
            f"{RETRIEVER}, no wandb": silently(retriever),
            BARE_VTL: silently(timed(lambda p: bare_vtl(p.query, p.pool, N_SELECT))),
            "Algorithm 1 in NumPy": timed(lambda p: algorithm_1(p.query, p.pool, N_SELECT)),
        }
        timers |= pyversity_timers(N_SELECT) | numpy_timers(selector, N_SELECT)
        times_ms = medians_ms(OURS, timers, problems, rounds=effort.rounds)
        report.times(case, kind, OURS, times_ms)
        ratios.append({name: ms / times_ms[OURS] for name, ms in times_ms.items()})
        agreement(report, case, kind, selector, problems)
    keys = {RETRIEVER: f"retriever_{case}", BARE_VTL: f"bare_vtl_{case}"}
    keys |= {name: f"pyversity_{case}" for name in pyversity_timers(N_SELECT)}
    for name, key in keys.items():
        if key in report.bar_numbers:
            worst = min(ratio[name] for ratio in ratios)
            report.judge(f"{name} ÷ ours, {case.replace('_', '/')}", worst, key)


def silently(timer: Timer[Problem]) -> Timer[Problem]:
    def quiet(problem: Problem) -> float:
        with without_wandb():
            return timer(problem)

    return quiet


def agreement(
    report: Report, case: str, kind: str, selector: SIFTSelector, problems: list[Problem]
) -> None:
    """Note on how many of the problems the rivals that do the same choose the same."""
    with without_wandb():
        ours = [select_with(selector, N_SELECT)(p) for p in problems]
        theirs = [bare_vtl(p.query, p.pool, N_SELECT) for p in problems[:4]]
    exact = [algorithm_1(p.query, p.pool, N_SELECT) for p in problems[:4]]
    report.add(
        case=case,
        data=kind,
        compared=len(theirs),
        same_as_algorithm_1=sum(a.tolist() == b for a, b in zip(ours, exact, strict=False)),
        same_as_activeft=sum(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=False)),
        distinct_chosen=float(np.median([len(set(a.tolist())) for a in ours])),
    )


def growth(report: Report, effort: Effort) -> None:
    """Measure how time grows with K.

    The bar is "under 8 ms where the first is under .6 ms": K 5000 is held against 8 ms, after
    division by what K 200 takes over .6 ms where it takes more. A slower machine may so take
    longer, and being faster at K 200 makes nothing stricter.
    """
    report.heading(f"d 384, N {N_SELECT}: K 5000 beside K 200")
    select = select_with(SIFTSelector.for_fine_tuning(), N_SELECT)
    timers: dict[str, Timer[tuple[Problem, Problem]]] = {
        "K 200": timed(lambda pair: select(pair[0])),
        "K 5000": timed(lambda pair: select(pair[1])),
    }
    scaled = []
    for kind in LEVELS:
        index, points = indexed(kind, effort.n_indexed, 384, effort.n_queries)
        small, large = fetch_all(index, points, 200), fetch_all(index, points, 5000)
        pairs = list(zip(small, large, strict=True))
        times_ms = medians_ms("K 200", timers, pairs, rounds=effort.rounds)
        report.times("growth", kind, "K 200", times_ms)
        slower = max(1.0, times_ms["K 200"] / report.bar_numbers["k200_ms"])
        scaled.append(times_ms["K 5000"] / slower)
    report.judge("K 5000, ms where K 200 takes .6 ms", max(scaled), "k5000_ms", "lower")


def batch(report: Report, effort: Effort) -> None:
    """Measure `select_batch` with 64 queries at once."""
    n_queries = 64
    report.heading(f"select_batch, {n_queries} queries, d 384, K 200, N {N_SELECT}")
    selector = SIFTSelector.for_fine_tuning()
    select = select_with(selector, N_SELECT)
    together = "select_batch, 64 queries"
    slowest = 0.0
    for kind in LEVELS:
        index, points = indexed(kind, effort.n_indexed, 384, n_queries)
        problems = fetch_all(index, points, 200)
        pools = np.stack([problem.pool for problem in problems])  # (b, n, d)
        calls: dict[str, Callable[[object], list[Any]]] = {
            together: lambda _, q=points, p=pools: selector.select_batch(q, p, N_SELECT),
            "select, 64 times": lambda _, p=problems: [select(one) for one in p],
        }
        timers = {name: timed(call) for name, call in calls.items()}
        times_ms = medians_ms(together, timers, [None], rounds=2 * effort.rounds)
        report.times("select_batch", kind, together, times_ms)
        slowest = max(slowest, times_ms[together] / n_queries)
        pairs = zip(*(call(None) for call in calls.values()), strict=True)
        same = sum(np.array_equal(one.positions, positions) for one, positions in pairs)
        report.add(case="select_batch", data=kind, same_as_select=same)
    report.judge("select_batch, ms a query", slowest, "select_batch_ms_a_query", "lower")


def context_default(report: Report, effort: Effort) -> None:
    """Measure the default for context as a prompt needs it."""
    report.heading(f"d 384, K 200, N {N_CONTEXT}, ContextSelector()")
    selector = ContextSelector()
    timers = {OURS: timed(select_with(selector, N_CONTEXT))}
    timers |= pyversity_timers(N_CONTEXT) | numpy_timers(selector, N_CONTEXT)
    slowest = 0.0
    for kind in LEVELS:
        index, points = indexed(kind, effort.n_indexed, 384, effort.n_queries)
        problems = fetch_all(index, points, 200)
        times_ms = medians_ms(OURS, timers, problems, rounds=effort.rounds)
        report.times("context default", kind, OURS, times_ms)
        slowest = max(slowest, times_ms[OURS])
    report.judge("context default, ms", slowest, "context_default_ms", "lower")


def on_top_of_faiss(report: Report, effort: Effort) -> None:
    """Measure a search of 100,000 vectors alone and with a selection after it.

    Each selection finds the processor's caches full of the index, as it does in use. The
    bars count how the vectors are had: `reconstruct_batch` of the 200 found.
    """
    report.heading(f"Faiss IndexFlatIP, {effort.n_searched:,} × 384, top 200")
    worst: dict[str, float] = {}
    for kind in LEVELS:
        index, points = indexed(kind, effort.n_searched, 384, effort.n_queries)
        timers = faiss_timers(index)
        problems = fetch_all(index, points, 200)
        times_ms = medians_ms("search", timers, problems, rounds=2 * effort.rounds)
        report.times("on top of Faiss", kind, "search", times_ms)
        for name, ms in times_ms.items():
            worst[name] = max(worst.get(name, 0.0), ms / times_ms["search"])
    for name, key in (
        (WITH_PAPER, "faiss_and_selection_over_faiss"),
        (WITH_DEFAULT, "faiss_and_context_default_over_faiss"),
    ):
        report.judge(f"({name}) ÷ search", worst[name], key, "lower")


def faiss_timers(index: faiss.IndexFlatIP) -> dict[str, Timer[Problem]]:
    """Return timers of the search of a problem's query, alone and with what may follow."""
    paper, default = SIFTSelector.for_fine_tuning(), ContextSelector()

    def search(problem: Problem) -> np.ndarray:
        return index.search(problem.query[None], len(problem.pool))[1][0]

    def fetch(problem: Problem) -> np.ndarray:
        return index.reconstruct_batch(search(problem))

    return {
        "search": timed(search),
        "search, reconstruct_batch": timed(fetch),
        WITH_PAPER: timed(lambda p: paper.select(p.query, fetch(p), N_SELECT)),
        WITH_DEFAULT: timed(lambda p: default.select(p.query, fetch(p), N_CONTEXT)),
    }


def main() -> None:
    parser = options(__doc__, quick="fewer queries and repetitions")
    parser.add_argument("--plot", type=Path, help="where to draw time against K (PNG)")
    arguments = parser.parse_args()
    load_compiled()  # what a process that selects a lot runs
    report = Report(section="selection")
    measure(report, QUICK if arguments.quick else Effort())
    if arguments.plot:
        from benchmarks import selection_plot

        selection_plot.measure_and_draw(report, arguments.plot, quick=arguments.quick)
    report.finish(arguments.json, PACKAGES)


if __name__ == "__main__":
    main()
