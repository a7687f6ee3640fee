"""The figure of the paper's experiment: bits per byte against the number of chunks learned.

Colours are Okabe and Ito's (2008), which people with any common colour blindness can tell
apart; every selector also has a mark and a line of its own.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from benchmarks.language_modeling.results import Results
from benchmarks.plotting import drawn
from sift_core.evaluation.statistics import mean

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
    """Draw bits per byte in % of the base model against steps, one line a selector.

    The paper's figure "spotlight". A dashed line is the base model, a level line the same
    chunks in the context. All lines are of the prompts that every arm was measured on.
    """
    arms = results.main_arms()
    readers = results.where(mode="context", selector="SIFT")
    rooms = readers["context_tokens"].map(lambda tokens: tokens or math.inf)
    in_context = None if readers.empty else rooms.idxmax()
    compared = [*arms.values(), *([in_context] if in_context is not None else [])]
    results = results.of_prompts(results.percent[compared].notna().all(axis=1))
    with drawn(path, size=(7.0, 4.3)) as (figure, axes):
        for selector, arm in arms.items():
            color, marker, line = STYLES[selector]
            curve = results.curve(arm)
            estimates = [mean(curve[step]) for step in curve]
            values = np.array([(one.low, one.value, one.high) for one in estimates])
            label = results.arms.loc[arm, "label"]
            axes.plot(
                *(curve.columns, values[:, 1]),
                color=color,
                marker=marker,
                linestyle=line,
                label=label,
            )
            low, _, high = values.T  # NaN for one prompt, which fills nothing
            axes.fill_between(curve.columns, low, high, color=color, alpha=0.15, linewidth=0)
        if in_context is not None:
            level = mean(results.percent[in_context])
            label = f"{results.arms.loc[in_context, 'label'].removeprefix('context ')} in context"
            axes.axhline(level.value, color="black", linestyle=(0, (8, 2)), label=label)
            axes.axhspan(level.low, level.high, color="black", alpha=0.08, linewidth=0)
        axes.axhline(100, color=MUTED, linestyle=(0, (4, 3)), linewidth=1.1, zorder=1, label="base")
        axes.set(xlabel="chunks learned", ylabel="bits per byte, % of base (mean, 90 % CI)")
        axes.set_xlim(left=0)
        figure.legend(loc="outside upper left", ncols=4)
