"""Time against the number of candidates, as a table and a drawing."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from benchmarks.plotting import drawn
from benchmarks.report import Report
from benchmarks.selection import N_CONTEXT, N_SELECT, select_with
from benchmarks.selection_data import Problem, fetch_all, indexed
from benchmarks.selection_rivals import pyversity, retriever_timer
from benchmarks.timing import Timer, medians_ms, timed
from sift_core import ContextSelector, SIFTSelector

D = 384
N_VECTORS = 100_000
N_CANDIDATES = (50, 100, 200, 500, 1000, 2000, 5000)
OURS = f"sift_core, paper's setting, N {N_SELECT}"
SEARCH = f"Faiss search of {N_VECTORS:,}"
RETRIEVER = f"activeft Retriever, its SIFT part, N {N_SELECT}"


def measure_and_draw(report: Report, path: Path, *, quick: bool) -> None:
    """Time every method at every K on text-like data, add the rows, and draw them."""
    report.heading(f"Time against K: d {D}, one thread, text-like data")
    index, points = indexed("text", N_VECTORS, D, 2 if quick else 6)
    timers: dict[str, Timer[Problem]] = {
        OURS: timed(select_with(SIFTSelector.for_fine_tuning(), N_SELECT)),
        f"sift_core, default, N {N_CONTEXT}": timed(select_with(ContextSelector(), N_CONTEXT)),
        SEARCH: timed(lambda p: index.search(p.query[None], len(p.pool))),
        RETRIEVER: retriever_timer(index, N_SELECT),
    }
    for strategy in ("mmr", "dpp"):
        call = partial(pyversity, n_select=N_SELECT, strategy=strategy)
        timers[f"pyversity {strategy}, N {N_SELECT}"] = timed(call)
    curves: dict[str, list[float]] = {name: [] for name in timers}
    for n_candidates in N_CANDIDATES:
        problems = fetch_all(index, points, n_candidates)
        times_ms = medians_ms(OURS, timers, problems, rounds=1 if quick else 3)
        print(f"  K {n_candidates}")
        report.times(f"time against K: {n_candidates}", "text", OURS, times_ms)
        for name, ms in times_ms.items():
            curves[name].append(ms)
    draw(curves, path)


def draw(curves: dict[str, list[float]], path: Path) -> None:
    """Draw one line a method, both axes logarithmic."""
    with drawn(path, size=(7, 5.2)) as (figure, axes):
        for name, times_ms in curves.items():
            style = {"color": "grey", "linestyle": "--"} if name == SEARCH else {"marker": "o"}
            label = f"{name} (approximate above K 1000)" if name == RETRIEVER else name
            axes.loglog(N_CANDIDATES, times_ms, label=label, markersize=4, **style)
        axes.set_xlabel("candidates K")
        axes.set_ylabel("ms a query, one thread")
        axes.set_xticks(N_CANDIDATES, [str(n) for n in N_CANDIDATES])
        axes.minorticks_off()
        figure.legend(loc="outside lower center", ncols=2)
