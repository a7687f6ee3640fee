"""Figures of the paper's experiment: learning curves, uncertainty against bits per byte, stops.

Colours are Okabe and Ito's (2008), which people with any common colour blindness can tell
apart; every selector also has a mark and a line of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib.style
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.language_modeling.adaptive_tables import (
    AdaptiveRun,
    adaptive_runs,
    range_names,
    stop_edges,
)
from benchmarks.language_modeling.results import Results
from benchmarks.language_modeling.statistics import without_ends
from benchmarks.language_modeling.uncertainty_tables import sift_arm, uncertainty_points
from sift_core.errors import InvalidInputError
from sift_core.evaluation.statistics import Estimate, mean

STYLE = Path(__file__).parents[1] / "sift.mplstyle"
WIDTH_INCHES = 7.0
INK, MUTED, SIFT_COLOR = "#222222", "#666666", "#D55E00"
STYLES = {  # colour, mark and line
    "SIFT": (SIFT_COLOR, "o", "-"),
    "NN": ("#0072B2", "s", "--"),
    "NN-F": ("#56B4E9", "v", ":"),
    "US": ("#009E73", "^", "-."),
    "HullFT": ("#CC79A7", "D", (0, (6, 1.5, 1, 1.5, 1, 1.5))),
    "other prompt": (MUTED, "X", (0, (1, 2))),
}
PERCENT_LABEL = "bits per byte, % of base (mean, 90 % CI)"


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
    figure = Figure(figsize=(WIDTH_INCHES, 4.3), layout="constrained")
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
    axes.set(xlabel="chunks learned", ylabel=PERCENT_LABEL)
    axes.set_xlim(left=0)
    figure.legend(loc="outside upper left", ncols=4)
    return figure


def uncertainty_scatter(results: Results) -> Figure:
    """Return σ_n and σ_n · bpb_0 against bits per byte, each with its linear fit.

    As the paper's figure "uncertainty_estimation": one mark a prompt and measured step, the
    lowest and highest 0.25 % of the uncertainties left out.
    """
    points = uncertainty_points(results)
    figure = Figure(figsize=(WIDTH_INCHES, 3.9), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, name, label in zip(panels, ("σ_n", "σ̂_n"), ("σₙ", "σₙ · bpb₀"), strict=True):
        _draw_points(axes, points.iloc[without_ends(points[name].to_numpy())], name)
        axes.set_xlabel(label)
    panels[0].set_ylabel("bits per byte after n chunks")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper left", ncols=3)
    return figure


def adaptive_curve(results: Results) -> Figure:
    """Return bits per byte against mean steps for each α and for fixed steps, and the stops.

    As the paper's figure "early_stopping_details". Left, adaptive stopping helps where its
    marks are below the line; right, the share of prompts by where they stopped.
    """
    runs = adaptive_runs(results)
    figure = Figure(figsize=(WIDTH_INCHES, 3.9), layout="constrained")
    left, right = figure.subplots(1, 2, gridspec_kw={"width_ratios": [1, 1.15]})
    curve = results.curve(sift_arm(results)).mean()
    left.plot(curve.index, curve, color=MUTED, linestyle="--", label="fixed steps")
    estimates = [mean(run.percent) for run in runs]
    left.errorbar(
        [run.stops.mean() for run in runs],
        [one.value for one in estimates],
        yerr=error_lengths(estimates),
        linestyle="none",
        marker="o",
        color=SIFT_COLOR,
        elinewidth=1.1,
        label="stopped by α",
    )
    left.set(xlabel="mean steps", ylabel=PERCENT_LABEL)
    _draw_stops(right, runs)
    figure.legend(*left.get_legend_handles_labels(), loc="outside upper left", ncols=2)
    return figure


FIGURES: dict[str, Callable[[Results], Figure]] = {
    "steps": learning_curves,
    "uncertainty": uncertainty_scatter,
    "adaptive": adaptive_curve,
}


def save_figures(folder: Path, results: Results) -> None:
    """Write a PNG file for each of `FIGURES` for which there are rows."""
    folder.mkdir(parents=True, exist_ok=True)
    with matplotlib.style.context(["default", STYLE]):
        for name, make in FIGURES.items():
            try:
                figure = make(results)
            except InvalidInputError as error:
                print(f"{name}.png: {error}")
                continue
            figure.savefig(folder / f"{name}.png", metadata={"Software": None})


def error_lengths(estimates: Sequence[Estimate]) -> np.ndarray:
    """Return how far the intervals reach below and above the means, shape (2, n); 0 for none."""
    lengths = [[one.value - one.low, one.high - one.value] for one in estimates]
    return np.nan_to_num(np.array(lengths).T).clip(min=0)


def _draw_points(axes: Axes, points: pd.DataFrame, name: str) -> None:
    x, bits = points[name], points["bits"]
    last = points["is_last"]
    axes.plot(
        x,
        bits,
        ".",
        color=MUTED,
        alpha=0.6,
        markersize=4.5,
        markeredgewidth=0,
        label="every measured n",
    )
    axes.plot(
        x[last],
        bits[last],
        "o",
        color=SIFT_COLOR,
        markersize=4,
        markerfacecolor="none",
        markeredgewidth=1.0,
        label="last n",
    )
    fit = np.polynomial.Polynomial.fit(x, bits, 1)
    ends = np.array([x.min(), x.max()])
    axes.plot(ends, fit(ends), color=INK, linewidth=1.6, label="linear fit")


def _draw_stops(axes: Axes, runs: list[AdaptiveRun]) -> None:
    """Draw one line an α, one column a range of steps, the share of prompts as shade and text."""
    edges = stop_edges(runs)
    shares = [100 * np.histogram(run.stops, bins=edges)[0] / run.stops.size for run in runs]
    axes.imshow(shares, cmap="Greys", vmin=0, vmax=200, aspect="auto")
    for place, share in np.ndenumerate(shares):
        if share > 0:
            axes.text(*place[::-1], f"{share:.0f}", ha="center", va="center", fontsize=8)
    axes.set_xticks(range(len(edges) - 1), range_names(edges), fontsize=8)
    axes.set_yticks(range(len(runs)), [f"{run.alpha:g}" for run in runs])
    axes.set(xlabel="steps taken", ylabel="α")
    axes.grid(visible=False)
    axes.tick_params(length=0)
