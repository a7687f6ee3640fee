"""Figures of the retrieval experiments: how much of what answers a question was found.

A row is one method on one set under one condition, as the runner of the retrieval experiments
writes it: "set", "condition", "method", "n_queries", metrics as fractions, and under "ci" the
low and the high end of each metric's 90 % confidence interval over questions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from sift_core.errors import InvalidInputError
from sift_core.evaluation.figures.style import (
    CaptionedFigure,
    Style,
    drawing,
    legend_outside,
    styles_for,
)

Row: TypeAlias = Mapping[str, Any]

_N_COLUMNS = 3
_TITLES = {"recall": "recall", "all_gold": "all gold", "ndcg": "nDCG", "alpha_ndcg": "α-nDCG"}
_MEANINGS = {
    "recall": "the share of a question's gold passages that is among the first {n} chosen",
    "all_gold": "the share of questions whose gold passages are all among the first {n} chosen",
}


def retrieval_dots(rows: Sequence[Row], metric: str = "recall@10") -> CaptionedFigure:
    """Return one panel a condition, one line a set and one mark a method.

    Of a family of methods with a setting (MMR's λ, for example) the setting with the best mean
    over all that is drawn stands for the family, which favours the family. Conditions in which
    fewer methods were measured than in others are left to `copies_curve`.

    Args:
        rows: Of any number of sets, conditions and methods.
        metric: A metric that each row has.

    Raises:
        InvalidInputError: If there are no rows, or one lacks the metric.
    """
    _check(rows, metric)
    rows = of_full_conditions(rows)
    conditions = list(dict.fromkeys(str(row["condition"]) for row in rows))
    sets = list(dict.fromkeys(str(row["set"]) for row in rows))
    methods = best_of_families(rows, metric)
    styles = styles_for([family_of(method) for method in methods])
    n_lines = -(-len(conditions) // _N_COLUMNS)
    panel_height = 0.35 + len(sets) * max(0.4, 0.11 * len(methods))
    title = metric_title(metric)
    with drawing():
        figure = CaptionedFigure(
            0.7 + n_lines * (panel_height + 0.35),
            caption=f"{title}, {_meaning(metric)}. {_interval_text(rows, metric)}"
            f"{_settings_text(methods, rows)}",
            alt=f"Dot plot of {title} by set and method, one panel for each of "
            f"{len(conditions)} conditions. {_means_text(rows, methods, metric)}",
        )
        panels = figure.subplots(
            n_lines, min(_N_COLUMNS, len(conditions)), sharex=True, sharey=True, squeeze=False
        )
        for axes, condition in zip(panels.flat, conditions, strict=False):
            those = [row for row in rows if row["condition"] == condition]
            for i, (method, style) in enumerate(zip(methods, styles, strict=True)):
                offset = 0.7 * ((i + 0.5) / len(methods) - 0.5)
                _draw_method(axes, those, method, metric, sets, offset, style)
            axes.set_title(condition)
            axes.set_yticks(range(len(sets)), sets)
            axes.set_ylim(len(sets) - 0.5, -0.5)
            axes.grid(axis="y", visible=False)
            for edge in np.arange(len(sets) - 1) + 0.5:
                axes.axhline(edge, color="#e4e4e4", linewidth=0.7)
            axes.tick_params(axis="y", length=0)
            axes.set_xlabel(f"{title} (%)")
        for axes in list(panels.flat)[len(conditions) :]:
            axes.set_visible(False)
        legend_outside(figure, panels[0, 0])
    return figure


def copies_curve(rows: Sequence[Row], metric: str = "recall@10") -> CaptionedFigure:
    """Return the metric against the number of noisy copies of every passage.

    One line a method (a family by its best setting, the same along the line), the mean over
    the sets.

    Args:
        rows: Those whose condition is "duplicates n" are drawn.
        metric: A metric that each row has.

    Raises:
        InvalidInputError: If fewer than two numbers of copies were measured.
    """
    _check(rows, metric)
    rows = [row for row in rows if n_copies(row) is not None]
    counts = sorted({n for row in rows if (n := n_copies(row)) is not None})
    if len(counts) < 2:
        raise InvalidInputError(
            f"a curve over copies needs two conditions named 'duplicates n', got {counts}"
        )
    everywhere = _measured_everywhere(rows)
    rows = [row for row in rows if row["method"] in everywhere]
    methods = best_of_families(rows, metric)
    sets = list(dict.fromkeys(str(row["set"]) for row in rows))
    title = metric_title(metric)
    with drawing():
        figure = CaptionedFigure(
            4.0,
            caption=f"{title}, mean over {', '.join(sets)}, where every passage stands in the "
            "corpus as often as the axis says. Error bars are 90 % confidence intervals over "
            f"questions, the sets taken as independent.{_settings_text(methods, rows)}",
            alt=f"Line plot of {title} against the number of noisy copies of every passage. "
            f"{_means_text(rows, methods, metric)}",
        )
        axes = figure.subplots()
        styles = styles_for([family_of(method) for method in methods])
        for method, style in zip(methods, styles, strict=True):
            cells = [[row for row in rows if _is_at(row, method, n)] for n in counts]
            axes.errorbar(
                counts,
                [100 * float(np.mean([row[metric] for row in own])) for own in cells],
                yerr=100 * np.array([_mean_error(own, metric) for own in cells]).T,
                elinewidth=1.1,
                color=style.color,
                marker=style.marker,
                markerfacecolor=style.face,
                linestyle=style.line,
                label=method,
            )
        axes.set_xticks(counts)
        axes.set_xlabel("noisy copies of every passage")
        axes.set_ylabel(f"{title} (%)")
        legend_outside(figure, axes)
    return figure


def of_full_conditions(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of the conditions in which the most methods were measured."""
    methods: dict[str, set[str]] = {}
    for row in rows:
        methods.setdefault(str(row["condition"]), set()).add(str(row["method"]))
    most = max(len(names) for names in methods.values())
    return [row for row in rows if len(methods[str(row["condition"])]) == most]


def family_of(method: str) -> str:
    """Return a method's name without its setting: "mmr .5" is "mmr"."""
    return re.sub(r"\s+(?:\w=)?[\d.]+$", "", method)


def best_of_families(rows: Sequence[Row], metric: str) -> list[str]:
    """Return the methods, of each family the one with the best mean over `rows`."""
    scores: dict[str, list[float]] = {}
    for row in rows:
        scores.setdefault(str(row["method"]), []).append(float(row[metric]))
    best: dict[str, str] = {}
    for method, values in scores.items():
        rival = best.get(family_of(method))
        if rival is None or np.mean(values) > np.mean(scores[rival]):
            best[family_of(method)] = method
    return list(best.values())


def n_copies(row: Row) -> int | None:
    """Return n where the row's condition is "duplicates n", else None."""
    match = re.fullmatch(r"duplicates (\d+)", str(row["condition"]))
    return int(match[1]) if match else None


def metric_title(metric: str) -> str:
    """Return the metric as a reader would write it: "all_gold@10" is "all gold@10"."""
    name, _, cut = metric.partition("@")
    return f"{_TITLES.get(name, name)}@{cut}" if cut else _TITLES.get(name, name)


def _draw_method(
    axes: Any,
    rows: Sequence[Row],
    method: str,
    metric: str,
    sets: Sequence[str],
    offset: float,
    style: Style,
) -> None:
    own = [row for row in rows if row["method"] == method]
    values = np.array([100 * float(row[metric]) for row in own])
    errors = np.abs(
        np.array([[100 * end for end in _interval(row, metric)] for row in own]).reshape(-1, 2).T
        - values
    )
    axes.errorbar(
        values,
        [sets.index(row["set"]) + offset for row in own],
        xerr=errors if errors.any() else None,
        linestyle="none",
        color=style.color,
        marker=style.marker,
        markersize=4.5,
        markerfacecolor=style.face,
        elinewidth=1.2,
        label=method,
    )


def _interval(row: Row, metric: str) -> tuple[float, float]:
    low, high = row.get("ci", {}).get(metric) or (row[metric], row[metric])
    return float(low), float(high)


def _mean_error(rows: Sequence[Row], metric: str) -> tuple[float, float]:
    """How far the interval of the mean over sets reaches below and above it.

    The sets' questions are others, so that the squares of their errors add up.
    """
    ends = np.array([_interval(row, metric) for row in rows])
    reach = np.abs(ends - np.array([[row[metric]] for row in rows]))
    below, above = np.sqrt((reach**2).sum(axis=0)) / len(rows)
    return float(below), float(above)


def _check(rows: Sequence[Row], metric: str) -> None:
    if not rows:
        raise InvalidInputError("there are no rows of retrieval to draw")
    lacking = next((row for row in rows if metric not in row), None)
    if lacking is not None:
        raise InvalidInputError(f"a row lacks `{metric}`; it has {', '.join(lacking)}")


def _measured_everywhere(rows: Sequence[Row]) -> set[str]:
    cells: dict[str, set[tuple[str, str]]] = {}
    for row in rows:
        cells.setdefault(str(row["method"]), set()).add((str(row["set"]), str(row["condition"])))
    most = max(len(those) for those in cells.values())
    return {method for method, those in cells.items() if len(those) == most}


def _is_at(row: Row, method: str, count: int) -> bool:
    return bool(row["method"] == method) and n_copies(row) == count


def _meaning(metric: str) -> str:
    name, _, cut = metric.partition("@")
    return _MEANINGS.get(name, "mean over questions").format(n=cut)


def _interval_text(rows: Sequence[Row], metric: str) -> str:
    if all(metric in row.get("ci", {}) for row in rows):
        return "Error bars are 90 % bootstrap confidence intervals over questions."
    return "Confidence intervals were not measured."


def _settings_text(methods: Sequence[str], rows: Sequence[Row]) -> str:
    n_settings: dict[str, int] = {}
    for method in dict.fromkeys(str(row["method"]) for row in rows):
        n_settings[family_of(method)] = n_settings.get(family_of(method), 0) + 1
    chosen = [
        f"{method} of {n_settings[family_of(method)]}"
        for method in methods
        if n_settings[family_of(method)] > 1
    ]
    if not chosen:
        return ""
    return f" A method with a setting is shown at its best one: {', '.join(chosen)}."


def _means_text(rows: Sequence[Row], methods: Sequence[str], metric: str) -> str:
    means = {
        method: 100 * np.mean([row[metric] for row in rows if row["method"] == method])
        for method in methods
    }
    ranked = sorted(means, key=lambda method: -means[method])
    return "Means: " + ", ".join(f"{method} {means[method]:.1f} %" for method in ranked) + "."
