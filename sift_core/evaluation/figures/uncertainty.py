"""Figures of σ_n, the uncertainty at the prompt, against the bits per byte that were measured.

As in the paper's figure "uncertainty_estimation": σ_n from the selector alone, and σ_n · bpb_0
with the base model's bits per byte, which cannot be had at test time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from sift_core.evaluation.analysis.bootstrap import Floats
from sift_core.evaluation.analysis.result_row import ArmLike, selector_label
from sift_core.evaluation.analysis.rows import Results
from sift_core.evaluation.analysis.statistics import OUTLIER_SHARE, Correlation, pearson, spearman
from sift_core.evaluation.analysis.uncertainty import (
    UncertaintyPoints,
    learning_arm,
    reliability_bins,
    uncertainty_points,
)
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

_Measure: TypeAlias = tuple[str, Floats]

_MAX_MARKS = 4_000  # beyond it marks hide each other and a density is drawn
_LAST = "#D55E00"
_LABEL = "bits per byte after n chunks"


def uncertainty_scatter(results: Results, arm: ArmLike | None = None) -> CaptionedFigure:
    """Return σ_n and σ_n · bpb_0 against bits per byte, each with its linear fit.

    One mark a prompt and measured step, n = 0 among them; a density where there are more than
    4,000. The lowest and highest 0.25 % of the uncertainties are left out, as in the paper.

    Args:
        results: Of one experiment.
        arm: As in `uncertainty_points`.

    Raises:
        InvalidInputError: As `uncertainty_points`.
    """
    points = uncertainty_points(results, arm)
    measures = _measures(points)
    texts = [_correlation_text(name, x, points) for name, x in measures]
    with drawing():
        figure = CaptionedFigure(
            3.9,
            caption="Uncertainty after n chunks against bits per byte after n chunks, of "
            f"{len(set(points.prompt_ids))} prompts and all measured n, chunks of "
            f"{selector_label(learning_arm(results, arm))}. {' '.join(texts)} The lines are linear "
            "fits to all points; intervals are 90 % bootstraps over prompts.",
            alt=f"Two scatter plots of uncertainty against bits per byte. {' '.join(texts)}",
        )
        panels = figure.subplots(1, 2, sharey=True)
        for axes, (name, x) in zip(panels, measures, strict=True):
            _draw_points(axes, x, points)
            axes.set_xlabel(name)
        panels[0].set_ylabel(_LABEL)
        legend_outside(figure, panels[0])
    return figure


def reliability_diagram(
    results: Results, arm: ArmLike | None = None, *, n_bins: int = 10
) -> CaptionedFigure:
    """Return mean bits per byte in bins of equal count over σ_n and over σ_n · bpb_0.

    Args:
        results: Of one experiment.
        arm: As in `uncertainty_points`.
        n_bins: At least 1.

    Raises:
        InvalidInputError: As `uncertainty_points` and `reliability_bins`.
    """
    points = uncertainty_points(results, arm)
    measures = _measures(points)
    ends: list[str] = []
    with drawing():
        figure = CaptionedFigure(
            3.4,
            caption=f"Mean bits per byte in {n_bins} bins of equal count over the uncertainty, "
            "with 90 % bootstrap confidence intervals over prompts; the line is a linear fit to "
            "the bins. Bits per byte do not go to 0 with the uncertainty, since text is never "
            "certain.",
            alt="",
        )
        panels = figure.subplots(1, 2, sharey=True)
        for axes, (name, x) in zip(panels, measures, strict=True):
            bins = reliability_bins(x, points.bits_per_byte, points.prompt_ids, n_bins=n_bins)
            means = np.array([one.uncertainty for one in bins])
            estimates = [one.bits_per_byte for one in bins]
            values = np.array([estimate.value for estimate in estimates])
            axes.errorbar(
                means,
                values,
                yerr=error_lengths(estimates),
                linestyle="none",
                marker="o",
                color=_LAST,
                elinewidth=1.1,
            )
            _draw_fit(axes, means, values)
            axes.set_xlabel(f"{name}, mean of the bin")
            ends.append(f"from {values[0]:.2f} in the lowest to {values[-1]:.2f} in the highest")
        panels[0].set_ylabel("bits per byte (mean, 90 % CI)")
        figure.alt = (
            f"Reliability diagrams: mean bits per byte go {ends[0]} bin of {measures[0][0]}, and "
            f"{ends[1]} bin of {measures[1][0]}."
        )
    return figure


def _measures(points: UncertaintyPoints) -> tuple[_Measure, _Measure]:
    return ("σₙ", points.deviations), ("σₙ · bpb₀", points.scaled_deviations)


def _draw_points(axes: Axes, x: Floats, points: UncertaintyPoints) -> None:
    kept = _without_outliers(x)
    last = kept & points.is_last
    bits = points.bits_per_byte
    if int(kept.sum()) > _MAX_MARKS:
        axes.hexbin(
            x[kept], bits[kept], gridsize=45, bins="log", cmap="Greys", mincnt=1, linewidths=0.1
        )
    else:
        axes.plot(
            x[kept],
            bits[kept],
            ".",
            color=MUTED,
            alpha=0.6,
            markersize=4.5,
            markeredgewidth=0,
            rasterized=True,
            label="every measured n",
        )
        axes.plot(
            x[last],
            bits[last],
            "o",
            color=_LAST,
            markersize=4,
            markerfacecolor="none",
            markeredgewidth=1.0,
            rasterized=True,
            label="last n",
        )
    _draw_fit(axes, x[kept], bits[kept])


def _draw_fit(axes: Axes, x: Floats, y: Floats) -> None:
    if np.unique(x).size < 2:
        return
    slope, intercept = np.polynomial.Polynomial.fit(x, y, 1).convert().coef[::-1]
    ends = np.array([x.min(), x.max()])
    axes.plot(ends, intercept + slope * ends, color=INK, linewidth=1.6, label="linear fit")


def _without_outliers(x: Floats) -> np.typing.NDArray[np.bool_]:
    cut = int(OUTLIER_SHARE * x.size)
    kept = np.zeros(x.size, dtype=np.bool_)
    kept[np.argsort(x, kind="stable")[cut : x.size - cut]] = True
    return kept


def _correlation_text(name: str, x: Floats, points: UncertaintyPoints) -> str:
    ranks = spearman(x, points.bits_per_byte, prompts=points.prompt_ids)
    linear = pearson(x, points.bits_per_byte, prompts=points.prompt_ids, leave_out=OUTLIER_SHARE)
    return f"{name}: Spearman {_coefficient(ranks)}, Pearson {_coefficient(linear)}."


def _coefficient(correlation: Correlation) -> str:
    if np.isnan(correlation.low):
        return f"{correlation.value:.2f}"
    return f"{correlation.value:.2f} [{correlation.low:.2f}, {correlation.high:.2f}]"
