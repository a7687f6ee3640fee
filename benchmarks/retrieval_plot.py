"""recall@10 against the number of noisy copies of every passage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from benchmarks.plotting import drawn
from benchmarks.retrieval_bars import Row

N_COPIES = range(1, 9)
METRIC = "recall@10"
LINES: dict[str, Callable[[str], bool]] = {  # label → the methods of which it is the best one
    "nearest neighbours": lambda method: method == "nn",
    "MMR": lambda method: method.startswith("mmr "),
    "DPP": lambda method: method.startswith("dpp a="),
    "SIFT, paper's setting": lambda method: method == "sift_paper",
    "sift (our default)": lambda method: method == "sift",
}


def is_drawn(method: str) -> bool:
    """Return whether a line needs the method."""
    return any(belongs(method) for belongs in LINES.values())


def draw(rows: Sequence[Row], path: Path) -> None:
    """Draw one line a kind of method: the mean over the sets, one setting over all points.

    Args:
        rows: Among them, of every drawn method, "duplicates n" for n in `N_COPIES`.
        path: A PNG file.
    """
    curves = means(rows)
    sets = ", ".join(dict.fromkeys(row["set"] for row in rows))
    with drawn(path, size=(7, 5)) as (figure, axes):
        for label, belongs in LINES.items():
            settings = [method for method in curves if belongs(method)]
            best = max(settings, key=lambda method: np.mean(curves[method]))
            setting = f" ({best}, the best of {len(settings)})" if len(settings) > 1 else ""
            axes.plot(N_COPIES, curves[best], marker="o", markersize=4, label=label + setting)
        axes.set_title(f"One setting a line at all points; mean over {sets}", fontsize=8)
        axes.set_xlabel("noisy copies of every passage")
        axes.set_ylabel(METRIC)
        figure.legend(loc="outside lower center", ncols=2)


def means(rows: Sequence[Row]) -> dict[str, list[float]]:
    """Return for every drawn method its mean over the sets at each of `N_COPIES`."""
    conditions = [f"duplicates {n}" for n in N_COPIES]
    values: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        if row["condition"] in conditions and is_drawn(row["method"]):
            at = values.setdefault(row["method"], {})
            at.setdefault(row["condition"], []).append(row[METRIC])
    return {
        method: [float(np.mean(at[condition])) for condition in conditions]
        for method, at in values.items()
    }
