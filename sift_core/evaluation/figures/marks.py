"""Drawing of estimates: marks with error bars, lines with bands, one row of marks a category."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from sift_core.errors import InvalidInputError
from sift_core.evaluation.analysis.rows import ArmRecord, Results
from sift_core.evaluation.analysis.statistics import mean
from sift_core.evaluation.figures.style import BAND_ALPHA, MUTED, Style
from sift_core.evaluation.statistics import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BAND_CAPTION = "Error bars and bands are 90 % bootstrap confidence intervals over prompts."
PAIRING_CAPTION = (
    "Prompts differ more than arms do; on the same prompts arms can be told apart even where "
    "intervals overlap."
)
_MAX_NAME = 28
_LABEL_SHARE = 0.07  # of an axis that the label of a tick takes
PERCENT_LABEL = "bits per byte, % of base (mean, 90 % CI)"


def percent(results: Results, arm: ArmRecord) -> Estimate:
    """Return the mean over prompts of the arm's bits per byte in % of the base model's."""
    return mean(list(results.percent_of_base(arm).values()))


def on_common_prompts(results: Results, arms: Iterable[ArmRecord]) -> Results:
    """Return the results of the prompts that have a row of the base model and of each arm.

    Means over different prompts cannot be compared, and a run may have been interrupted.

    Raises:
        InvalidInputError: If there is no such prompt.
    """
    common = set.intersection(*(set(results.percent_of_base(arm)) for arm in arms))
    if not common:
        raise InvalidInputError(
            "no prompt was measured under all arms of the figure; run `sift eval` on the same "
            "file once more, it adds what is missing"
        )
    return results.filtered(lambda prompt: prompt.prompt_id in common)


def error_lengths(estimates: Sequence[Estimate]) -> npt.NDArray[np.float64]:
    """Return how far the intervals reach below and above the means, shape (2, n); 0 for none."""
    lengths = [[e.value - e.low, e.high - e.value] for e in estimates]
    return np.nan_to_num(np.array(lengths, dtype=np.float64).reshape(-1, 2).T).clip(min=0)


def draw_rows(
    axes: Axes,
    rows: Sequence[str],
    columns: Mapping[str, Mapping[str, Estimate]],
    styles: Sequence[Style],
) -> None:
    """Draw one line a category and one mark with an error bar a column, side by side.

    Args:
        axes: To draw into; the first category is at the top.
        rows: Names of the categories.
        columns: By label, the estimate of each category; some may be missing.
        styles: Beside `columns`.
    """
    for i, ((label, estimates), style) in enumerate(zip(columns.items(), styles, strict=True)):
        offset = min(0.3, 0.74 / len(columns)) * (i - (len(columns) - 1) / 2)
        there = [name for name in rows if name in estimates]
        axes.errorbar(
            [estimates[name].value for name in there],
            [rows.index(name) + offset for name in there],
            xerr=error_lengths([estimates[name] for name in there]),
            linestyle="none",
            color=style.color,
            marker=style.marker,
            markersize=4.5,
            markerfacecolor=style.face,
            elinewidth=1.1,
            label=label,
        )
    categories(axes, rows)


def categories(axes: Axes, rows: Sequence[str]) -> None:
    """Name the lines of a dot plot and part them by thin rules."""
    axes.set_yticks(range(len(rows)), [shortened(name) for name in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    for edge in np.arange(len(rows) - 1) + 0.5:
        axes.axhline(edge, color="#e4e4e4", linewidth=0.7, zorder=0)


def shortened(name: str) -> str:
    """Return a name of at most 28 letters, the end cut off."""
    return name if len(name) <= _MAX_NAME else name[: _MAX_NAME - 1].rstrip() + "…"


def draw_line(
    axes: Axes,
    x: Sequence[float],
    estimates: Sequence[Estimate],
    style: Style,
    label: str,
    *,
    is_band: bool = False,
) -> None:
    """Draw one line with marks; its intervals as a band or as error bars."""
    values = np.array([estimate.value for estimate in estimates])
    below, above = error_lengths(estimates)
    axes.errorbar(
        x,
        values,
        yerr=None if is_band else (below, above),
        color=style.color,
        linestyle=style.line,
        marker=style.marker,
        markerfacecolor=style.face,
        elinewidth=1.1,
        label=label,
    )
    if is_band:
        axes.fill_between(
            x, values - below, values + above, color=style.color, alpha=BAND_ALPHA, linewidth=0
        )


def draw_level(axes: Axes, estimate: Estimate, style: Style, label: str) -> None:
    """Draw an estimate that does not depend on x as a level line with a band."""
    axes.axhline(estimate.value, color=style.color, linestyle=style.line, label=label)
    if np.isfinite(estimate.low):
        axes.axhspan(estimate.low, estimate.high, color=style.color, alpha=0.08, linewidth=0)


def log_axis(axes: Axes, values: Iterable[float], label: str) -> None:
    """Make x logarithmic, with a tick at each measured value that has room for its label."""
    ticks: list[float] = []
    measured = sorted(set(values))
    room = _LABEL_SHARE * np.log(measured[-1] / measured[0])
    for value in measured:
        if not ticks or np.log(value / ticks[-1]) >= room:
            ticks.append(value)
    axes.set_xscale("log")
    axes.set_xticks(ticks, [f"{value:g}".replace("e-0", "e-") for value in ticks])
    axes.set_xticks([], minor=True)
    axes.set_xlabel(label)


def mark_base(axes: Axes, *, is_vertical: bool) -> None:
    """Draw the base model's 100 % as a dashed line."""
    line = axes.axvline if is_vertical else axes.axhline
    line(100, color=MUTED, linestyle=(0.0, (4.0, 3.0)), linewidth=1.1, zorder=1, label="base")


def spoken(columns: Iterable[tuple[str, Estimate]]) -> str:
    """Return means as a sentence for a figure's alternative text, best (lowest) first."""
    ranked = sorted(columns, key=lambda pair: pair[1].value)
    return ", ".join(f"{label} {estimate.value:.1f} %" for label, estimate in ranked)
