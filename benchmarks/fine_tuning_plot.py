"""Time and peak memory against the number of chunks, for a context and for fine-tuning."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.fine_tuning_memory import Cost, Job, cost_in_own_process, why_not
from benchmarks.fine_tuning_shapes import small_llama
from benchmarks.report import Report

N_TOKENS = 256  # of a chunk
N_NEW = 32
N_CHUNKS = (0, 1, 2, 3, 5, 10, 20, 50)
WINDOW = 1024  # of the shape
WIDE_WINDOW = 16_384  # the same shape, so that a curve shows what a larger window would cost
CONTEXT = "context"
WAYS = {
    CONTEXT: Job(way="context", n_chunks=0, n_tokens=N_TOKENS, window=WIDE_WINDOW),
    "fine-tune, fp32": Job(way="engine", n_chunks=0, n_tokens=N_TOKENS),
    "fine-tune, bf16 base": Job(way="engine", n_chunks=0, n_tokens=N_TOKENS, dtype="bfloat16"),
}
Curves = dict[str, dict[int, Cost]]  # name → number of chunks → cost


def measure_and_draw(report: Report, path: Path | None, *, threads: int, quick: bool) -> None:
    """Measure every way at every number of chunks in processes of their own, and draw."""
    shape = small_llama().name
    report.heading(
        f"Time and memory against chunks of {N_TOKENS} tokens: {shape}, {N_NEW} new tokens, "
        f"{threads} thread(s)"
    )
    if why := why_not():
        report.skip("against chunks", why)
        return
    curves: Curves = {name: {} for name in WAYS}
    for name, job in WAYS.items():
        for n_chunks in N_CHUNKS[:3:2] if quick else N_CHUNKS:
            rounds = 1 if quick else 3 if n_chunks <= 10 else 2
            cost = cost_in_own_process(
                replace(job, n_chunks=n_chunks, n_new=N_NEW, rounds=rounds, threads=threads)
            )
            curves[name][n_chunks] = cost
            report.rows.append(
                {
                    "case": f"against chunks, {shape}, {N_TOKENS} tokens",
                    "method": name,
                    "threads": threads,
                    "n_chunks": n_chunks,
                    "fits_window": name != CONTEXT or fits(n_chunks),
                    "seconds": round(cost.seconds, 4),
                    "peak_mib": round(cost.peak_mib, 1),
                }
            )
            print(
                f"  {n_chunks:>4} chunks {cost.seconds:>8.3f} s {cost.peak_mib:>7.0f} MiB  {name}",
                flush=True,
            )
    if path is not None:
        draw(curves, path, f"{shape}, one CPU with {threads} thread(s), {N_NEW} new tokens")


def fits(n_chunks: int) -> bool:
    """Return whether chunks, question (BOS and 32 tokens) and answer fit into the window."""
    return n_chunks * N_TOKENS + 33 + N_NEW <= WINDOW


def draw(curves: Curves, path: Path, title: str) -> None:
    """Draw one panel for the time and one for the memory, all axes logarithmic but 0 to 1."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 2, figsize=(10, 4.6), layout="constrained")
    for axes, field, label in (
        (panels[0], "seconds", "seconds a query"),
        (panels[1], "peak_mib", "peak memory over the loaded model, MiB"),
    ):
        for position, (name, costs) in enumerate(curves.items()):
            points = {n: max(getattr(cost, field), 0.01) for n, cost in costs.items()}
            _line(axes, name, points, f"C{position}")
        axes.set_xscale("symlog", linthresh=1)
        axes.set_yscale("log")
        ticks = sorted({n for costs in curves.values() for n in costs})
        axes.set_xticks(ticks, [str(n) for n in ticks])
        axes.minorticks_off()
        axes.set_xlabel(f"chunks of {N_TOKENS} tokens")
        axes.set_ylabel(label)
        axes.grid(alpha=0.3)
    figure.suptitle(title, fontsize=10)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def _line(axes: Any, name: str, points: dict[int, float], color: str) -> None:
    """Draw a curve; a context's is dashed where it would need a larger window."""
    style = {"color": color, "marker": "o", "markersize": 4}
    if name != CONTEXT:
        axes.plot(list(points), list(points.values()), label=name, **style)
        return
    inside = {n: value for n, value in points.items() if fits(n)}
    last = max(inside)
    beyond = {n: value for n, value in points.items() if n >= last}
    axes.plot(list(inside), list(inside.values()), label=f"context, window {WINDOW:,}", **style)
    axes.plot(
        list(beyond),
        list(beyond.values()),
        label=f"context, were its window {WIDE_WINDOW:,}",
        **{**style, "linestyle": "--", "markerfacecolor": "white", "zorder": 0},
    )
