"""The figure of the paper's experiment: bits per byte against the number of chunks learned.

Colours are Okabe and Ito's (2008), which people with any common colour blindness can tell
apart; every selector also has a mark and a line of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import matplotlib.style
import numpy as np
from matplotlib.figure import Figure

from benchmarks.language_modeling.results import Results
from sift_core.evaluation.statistics import Estimate, mean

STYLE = Path(__file__).parents[1] / "sift.mplstyle"
MUTED = "#666666"
STYLES = {  # colour, mark and line
    "SIFT": ("#D55E00", "o", "-"),
    "NN": ("#0072B2", "s", "--"),
    "NN-F": ("#56B4E9", "v", ":"),
    "US": ("#009E73", "^", "-."),
    "HullFT": ("#CC79A7", "D", (0, (6, 1.5, 1, 1.5, 1, 1.5))),
    "other prompt": (MUTED, "X", (0, (1, 2))),
}


def save_learning_curves(path: Path, results: Results) -> None:
    """Write the figure as a PNG file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with matplotlib.style.context(["default", STYLE]):
        learning_curves(results).savefig(path, metadata={"Software": None})


def learning_curves(results: Results) -> Figure:
    """Return bits per byte in % of the base model against steps, one line a selector.

    The paper's figure "spotlight". A dashed line is the base model, a level line the same
    chunks in the context. All lines are of the prompts that every arm was measured on.
    """
    arms = results.main_arms()
    readers = results.where(mode="context", selector="SIFT")
    rooms = readers["context_tokens"].map(lambda tokens: tokens or math.inf)
    in_context = None if readers.empty else rooms.idxmax()
    drawn = [*arms.values(), *([in_context] if in_context is not None else [])]
    results = results.of_prompts(results.percent[drawn].notna().all(axis=1))
    figure = Figure(figsize=(7.0, 4.3), layout="constrained")
    axes = figure.subplots()
    for selector, arm in arms.items():
        color, marker, line = STYLES[selector]
        curve = results.curve(arm)
        estimates = [mean(curve[step]) for step in curve]
        below, above = error_lengths(estimates)
        values = np.array([one.value for one in estimates])
        axes.plot(
            curve.columns,
            values,
            color=color,
            marker=marker,
            linestyle=line,
            label=results.arms.loc[arm, "label"],
        )
        axes.fill_between(
            curve.columns, values - below, values + above, color=color, alpha=0.15, linewidth=0
        )
    if in_context is not None:
        level = mean(results.percent[in_context])
        label = f"{results.arms.loc[in_context, 'label'].removeprefix('context ')} in context"
        axes.axhline(level.value, color="black", linestyle=(0, (8, 2)), label=label)
        axes.axhspan(level.low, level.high, color="black", alpha=0.08, linewidth=0)
    axes.axhline(100, color=MUTED, linestyle=(0, (4, 3)), linewidth=1.1, zorder=1, label="base")
    axes.set(xlabel="chunks learned", ylabel="bits per byte, % of base (mean, 90 % CI)")
    axes.set_xlim(left=0)
    figure.legend(loc="outside upper left", ncols=4)
    return figure


def error_lengths(estimates: Sequence[Estimate]) -> np.ndarray:
    """Return how far the intervals reach below and above the means, shape (2, n); 0 for none."""
    lengths = [[one.value - one.low, one.high - one.value] for one in estimates]
    return np.nan_to_num(np.array(lengths).T).clip(min=0)
