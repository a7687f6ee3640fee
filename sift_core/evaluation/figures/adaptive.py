"""The figure of Adaptive SIFT: what stopping early costs, and where it stops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from sift_core.evaluation.analysis.adaptive import (
    ALPHAS,
    AdaptiveRun,
    adaptive_runs,
    stop_histogram,
)
from sift_core.evaluation.analysis.result_row import ArmLike, selector_label
from sift_core.evaluation.analysis.rows import Results
from sift_core.evaluation.analysis.statistics import mean
from sift_core.evaluation.analysis.uncertainty import learning_arm
from sift_core.evaluation.figures.marks import error_lengths
from sift_core.evaluation.figures.style import (
    INK,
    MUTED,
    CaptionedFigure,
    drawing,
    legend_outside,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOR = "#D55E00"


def adaptive_curve(
    results: Results, arm: ArmLike | None = None, *, alphas: Sequence[float] = ALPHAS
) -> CaptionedFigure:
    """Return bits per byte against mean steps for each α and for fixed steps, and the stops.

    As the paper's figure "early_stopping_details". Left, adaptive stopping helps where its
    marks are below the line; right, the share of prompts by where they stopped.

    Args:
        results: Of one experiment.
        arm: As in `adaptive_runs`.
        alphas: As in `adaptive_runs`, at least one.

    Raises:
        InvalidInputError: As `adaptive_runs`.
    """
    arm = learning_arm(results, arm)
    runs = sorted(adaptive_runs(results, arm, alphas=alphas), key=lambda run: run.alpha)
    points = [(run, mean(run.percent)) for run in runs]
    with drawing():
        figure = CaptionedFigure(
            3.9,
            caption="Adaptive SIFT stops before step n where σₙ > 1 / (α n). Left: bits per byte "
            "in % of the base model (lower is better) against the mean number of steps, one mark "
            f"an α, and the same number of steps for each of {len(runs[0].prompt_ids)} prompts as "
            f"a line, chunks of {selector_label(arm)}; 90 % bootstrap confidence intervals over "
            "prompts. Right: % of the prompts by the number of steps that they took.",
            alt="Bits per byte in % of base of Adaptive SIFT against mean steps: "
            + ", ".join(
                f"α {run.alpha:g}: {percent.value:.1f} % after {run.mean_steps.value:.1f} steps"
                for run, percent in points
            )
            + ".",
        )
        left, right = figure.subplots(1, 2, gridspec_kw={"width_ratios": [1, 1.15]})
        curve = results.curve(arm)
        left.plot(
            curve.steps,
            curve.percent.mean(axis=0),
            color=MUTED,
            linestyle="--",
            label="fixed steps",
        )
        estimates = [percent for _, percent in points]
        left.errorbar(
            [run.mean_steps.value for run in runs],
            [percent.value for percent in estimates],
            yerr=error_lengths(estimates),
            linestyle="none",
            marker="o",
            color=_COLOR,
            elinewidth=1.1,
            label="stopped by α",
        )
        left.set_xlabel("mean steps")
        left.set_ylabel("bits per byte, % of base (mean, 90 % CI)")
        _draw_stops(right, runs)
        legend_outside(figure, left)
    return figure


def _draw_stops(axes: Axes, runs: Sequence[AdaptiveRun]) -> None:
    """Draw one line an α, one column a range of steps, the share of prompts as shade and text."""
    edges = _edges(max(1, max(int(run.stops.max()) for run in runs)))
    shares = np.array([100 * stop_histogram(run, edges) / run.stops.size for run in runs])
    axes.imshow(shares, cmap="Greys", vmin=0, vmax=200, aspect="auto")
    for line, column in np.ndindex(*shares.shape):
        if shares[line, column] > 0:
            axes.text(
                column,
                line,
                f"{shares[line, column]:.0f}",
                ha="center",
                va="center",
                fontsize=8,
                color=INK,
            )
    lasts = [high - 1 for high in edges[1:-1]] + [edges[-1]]
    names = [
        f"{low}–{last}" if last > low else str(low)
        for low, last in zip(edges[:-1], lasts, strict=True)
    ]
    axes.set_xticks(range(len(names)), names, fontsize=8)
    axes.set_yticks(range(len(runs)), [f"{run.alpha:g}" for run in runs])
    axes.set_xlabel("steps taken")
    axes.set_ylabel("α")
    axes.grid(visible=False)
    axes.tick_params(length=0)


def _edges(longest: int) -> list[int]:
    """As `stop_table`: six ranges of about equal length, and prompts without a step."""
    return sorted({round(longest * i / 6) for i in range(7)} | {0, 1})
