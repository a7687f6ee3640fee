"""The demo's picture: facts found, by kind of question and method."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from demo_methods import HYBRID, MMR, N_CHUNKS, NEAREST, NEWEST, SIFT, Comparison
from demo_report import ALL, rows_by_kind

from sift_core.cli.output import counted

# Apart also for those who see no colours, and in grey; the first two are lighter.
COLORS = {
    NEAREST: "#bdbdbd",
    MMR: "#8c8c8c",
    HYBRID: "#6baed6",
    SIFT: "#d55e00",
    NEWEST: "#f4a261",
}
LABELS = {
    NEAREST: "nearest neighbours",
    HYBRID: "hybrid (rank fusion)",
    SIFT: "SIFT",
    NEWEST: 'SIFT, newest="date"',
}
INK = "#222222"


def draw(compared: Comparison, path: Path) -> None:
    """Write a PNG of 1600 pixels in width: a group of bars for each kind, with counts."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows_of = rows_by_kind(compared)
    figure = Figure(figsize=(8, 3.6), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    width = 0.84 / len(COLORS)
    for i, (name, color) in enumerate(COLORS.items()):
        found = compared.n_found(name)
        sums = [int(found[rows].sum()) for rows in rows_of.values()]
        totals = [int(compared.n_facts[rows].sum()) for rows in rows_of.values()]
        shares = 100 * np.array(sums) / totals
        places = np.arange(len(rows_of)) + (i - (len(COLORS) - 1) / 2) * width
        label = f"MMR, best weight ({compared.mmr_weight})" if name == MMR else LABELS[name]
        bars = axes.bar(places, shares, 0.92 * width, label=label, color=color)
        axes.bar_label(bars, [str(one) for one in sums], fontsize=9, color=INK, padding=1.5)
    labels = []
    for kind, rows in rows_of.items():
        name = "all questions" if kind == ALL else kind
        labels.append(f"{name}\n{counted(int(compared.n_facts[rows].sum()), 'fact')}")
    axes.set_xticks(range(len(rows_of)), labels, fontsize=10, color=INK)
    axes.tick_params(length=0)
    axes.set_yticks([0, 50, 100], ["0 %", "50 %", "100 %"], color="#666666", fontsize=9)
    axes.set_ylim(0, 108)
    axes.grid(axis="y", color="#e4e4e4", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    title = f"Facts found among {N_CHUNKS} chosen chunks"
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, weight="bold", color=INK)
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=10)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=200, metadata={"Software": None})
