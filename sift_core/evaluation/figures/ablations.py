"""Figures of what was varied: λ, number of candidates, learning rate, scope, order, batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from sift_core.errors import InvalidInputError
from sift_core.evaluation.analysis.arm_grids import main_arms, varied
from sift_core.evaluation.analysis.rows import ArmRecord, Results, selector_label
from sift_core.evaluation.figures.marks import (
    BAND_CAPTION,
    PAIRING_CAPTION,
    PERCENT_LABEL,
    draw_level,
    draw_line,
    draw_rows,
    log_axis,
    mark_base,
    on_common_prompts,
    percent,
    spoken,
)
from sift_core.evaluation.figures.style import (
    CaptionedFigure,
    Style,
    drawing,
    legend_outside,
    styles_for,
)
from sift_core.evaluation.statistics import Estimate

_SCOPES = {  # name, mark, colour and line of what learns; "top:k" is "top"
    "all": ("LoRA, all layers", Style(color="#D55E00", marker="o", line="-")),
    "top": ("LoRA, top {n}", Style(color="#E69F00", marker="D", line=(0.0, (6.0, 1.5, 1.0, 1.5)))),
    "head": ("head", Style(color="#009E73", marker="^", line="-.")),
    "full": ("whole model", Style(color="#0072B2", marker="s", line="--")),
}
_SETTINGS: Mapping[
    str, tuple[str, Mapping[object, str]]
] = {  # key of an arm → title of its panel, and what stands at its values
    "order": ("order of steps", {"chosen": "as chosen", "reversed": "reversed"}),
    "chunks_per_step": ("chunks a step", {}),
    "is_normalized": ("embeddings", {True: "normalised", False: "as they are"}),
}
_NOTE = f"{BAND_CAPTION} {PAIRING_CAPTION}"


def noise_variance_curve(results: Results) -> CaptionedFigure:
    """Return % of base against λ on a logarithmic axis, NN and NN-F as level lines.

    Raises:
        InvalidInputError: If no selector was measured with two λ.
    """
    return _curve(
        results,
        "noise_variance",
        label="λ (noise variance)",
        levels=("NN", "NN-F"),
        what="the noise variance λ, which trades relevance (large) against diversity (small)",
    )


def n_candidates_curve(results: Results) -> CaptionedFigure:
    """Return % of base against the number of candidates on a logarithmic axis.

    Raises:
        InvalidInputError: If no selector was measured with two numbers of candidates.
    """
    return _curve(
        results,
        "n_candidates",
        label="candidates (K)",
        levels=("NN",),
        what="the number of candidates that a selector chooses from",
    )


def learning_rate_curve(results: Results) -> CaptionedFigure:
    """Return % of base against the learning rate on a logarithmic axis, one line a scope.

    Of the selector that was measured with the most learning rates.

    Raises:
        InvalidInputError: If no selector was measured with two learning rates.
    """
    selector, arms = _most_measured(results, "learning_rate", "scope")
    results = on_common_prompts(results, arms)
    scopes = _by_scope(arms)
    with drawing():
        figure = CaptionedFigure(
            3.8,
            caption=f"Bits per byte in % of the base model (lower is better) with chunks of "
            f"{selector} against the learning rate, by what is trained. {_NOTE}",
            alt="Line plot of bits per byte in % of base against the learning rate. Best: "
            + spoken((name, _best(results, own)[1]) for name, own in scopes.items())
            + ".",
        )
        axes = figure.subplots()
        for (scope, own), style in zip(scopes.items(), _scope_styles(scopes), strict=True):
            estimates = [percent(results, arm) for arm in own]
            draw_line(axes, [arm["learning_rate"] for arm in own], estimates, style, scope)
        mark_base(axes, is_vertical=False)
        log_axis(axes, (arm["learning_rate"] for arm in arms), "learning rate")
        axes.set_ylabel(PERCENT_LABEL)
        legend_outside(figure, axes)
    return figure


def scope_dots(results: Results) -> CaptionedFigure:
    """Return % of base of every scope at its best learning rate.

    Raises:
        InvalidInputError: If one scope alone was measured.
    """
    selector, arms = _most_measured(results, "learning_rate", "scope")
    results = on_common_prompts(results, arms)
    scopes = _by_scope(arms)
    if len(scopes) < 2:
        raise InvalidInputError(f"scopes are compared, but only {', '.join(scopes)} was measured")
    best = {name: _best(results, own) for name, own in scopes.items()}
    rows = [f"{name} ({arm['learning_rate']:g})" for name, (arm, _) in best.items()]
    estimates = dict(zip(rows, (estimate for _, estimate in best.values()), strict=True))
    with drawing():
        figure = CaptionedFigure(
            0.9 + 0.4 * len(rows),
            caption="Bits per byte in % of the base model (lower is better) by what is trained, "
            f"each at its best learning rate (in brackets), with chunks of {selector}. {_NOTE}",
            alt=f"Dot plot of bits per byte in % of base by scope: {spoken(estimates.items())}.",
        )
        axes = figure.subplots()
        draw_rows(axes, rows, {selector: estimates}, styles_for([selector]))
        axes.set_xlabel(PERCENT_LABEL)
    return figure


def setting_dots(results: Results) -> CaptionedFigure:
    """Return small multiples: order of steps, chunks a step, normalised embeddings.

    Only what was measured with two values is drawn; marks are selectors.

    Raises:
        InvalidInputError: If none of these was varied.
    """
    groups = {name: varied(results, name) for name in _SETTINGS}
    groups = {name: group for name, group in groups.items() if group}
    if not groups:
        raise InvalidInputError(f"none of {', '.join(_SETTINGS)} was measured with two values")
    results = on_common_prompts(
        results, [arm for group in groups.values() for arms in group.values() for arm in arms]
    )
    panels = {name: _setting_columns(results, name, group) for name, group in groups.items()}
    heights = [len(rows) for rows, _ in panels.values()]
    with drawing():
        figure = CaptionedFigure(
            1.0 + 0.42 * sum(heights) + 0.3 * len(heights),
            caption="Bits per byte in % of the base model (lower is better) with other orders "
            f"of the steps, several chunks a step, and embeddings as they are. {_NOTE}",
            alt="Dot plots of bits per byte in % of base: "
            + "; ".join(_panel_text(name, columns) for name, (_, columns) in panels.items())
            + ".",
        )
        grid = figure.subplots(
            len(panels), 1, sharex=True, squeeze=False, gridspec_kw={"height_ratios": heights}
        )[:, 0]
        for axes, (name, (rows, columns)) in zip(grid, panels.items(), strict=True):
            draw_rows(axes, rows, columns, styles_for(list(groups[name])))
            axes.set_title(_SETTINGS[name][0])
        grid[-1].set_xlabel(PERCENT_LABEL)
        widest = int(np.argmax([len(columns) for _, columns in panels.values()]))
        legend_outside(figure, grid[widest])
    return figure


def _curve(
    results: Results, name: str, *, label: str, levels: Sequence[str], what: str
) -> CaptionedFigure:
    groups = varied(results, name)
    if not groups:
        raise InvalidInputError(f"`{name}` was measured with one value alone; two make a curve")
    main = main_arms(results)
    level_arms = {selector: main[selector] for selector in levels if selector in main}
    level_arms = {key: arm for key, arm in level_arms.items() if key not in groups}
    drawn = [arm for arms in groups.values() for arm in arms]
    results = on_common_prompts(results, [*drawn, *level_arms.values()])
    points = {
        selector: [(float(arm[name]), percent(results, arm)) for arm in arms]
        for selector, arms in groups.items()
    }
    flat = {selector: percent(results, arm) for selector, arm in level_arms.items()}
    spoken_points = "; ".join(
        f"{selector} "
        + ", ".join(f"{estimate.value:.1f} % at {value:g}" for value, estimate in own)
        for selector, own in points.items()
    )
    with drawing():
        figure = CaptionedFigure(
            3.8,
            caption="Bits per byte in % of the base model (lower is better) against "
            f"{what}. {_NOTE}",
            alt=f"Line plot of bits per byte in % of base against {label}: {spoken_points}.",
        )
        axes = figure.subplots()
        for (selector, own), style in zip(points.items(), styles_for(list(points)), strict=True):
            draw_line(axes, [x for x, _ in own], [estimate for _, estimate in own], style, selector)
        for (selector, estimate), style in zip(flat.items(), styles_for(list(flat)), strict=True):
            draw_level(axes, estimate, style, selector)
        log_axis(axes, (x for own in points.values() for x, _ in own), label)
        axes.set_ylabel(PERCENT_LABEL)
        legend_outside(figure, axes)
    return figure


def _most_measured(results: Results, *names: str) -> tuple[str, list[ArmRecord]]:
    groups = varied(results, *names)
    if not groups:
        raise InvalidInputError(f"none of {', '.join(names)} was measured with two values")
    selector = max(groups, key=lambda one: len(groups[one]))
    return selector, groups[selector]


def _by_scope(arms: Sequence[ArmRecord]) -> dict[str, list[ArmRecord]]:
    names = list(dict.fromkeys(str(arm["scope"]) for arm in arms))
    names.sort(key=lambda name: [*_SCOPES, name.partition(":")[0]].index(name.partition(":")[0]))
    return {_scope_label(name): [arm for arm in arms if arm["scope"] == name] for name in names}


def _scope_label(name: str) -> str:
    kind, _, n = name.partition(":")
    return _SCOPES[kind][0].format(n=n) if kind in _SCOPES else name


def _scope_styles(scopes: Mapping[str, Sequence[ArmRecord]]) -> list[Style]:
    kinds = [str(arms[0]["scope"]).partition(":")[0] for arms in scopes.values()]
    fixed = {kind: style for kind, (_, style) in _SCOPES.items()}
    return styles_for(kinds, named=fixed)


def _best(results: Results, arms: Sequence[ArmRecord]) -> tuple[ArmRecord, Estimate]:
    pairs = [(arm, percent(results, arm)) for arm in arms]
    return min(pairs, key=lambda pair: pair[1].value)


def _setting_columns(
    results: Results, name: str, groups: Mapping[str, Sequence[ArmRecord]]
) -> tuple[list[str], dict[str, dict[str, Estimate]]]:
    texts: Mapping[object, str] = _SETTINGS[name][1]
    values = list(dict.fromkeys(arm[name] for arms in groups.values() for arm in arms))
    values.sort(
        key=lambda value: (not value, "") if value in (True, False) else (False, str(value))
    )
    if name == "chunks_per_step":
        values.sort()
    columns = {
        selector_label(arms[0]): {
            texts.get(arm[name], str(arm[name])): percent(results, arm) for arm in arms
        }
        for arms in groups.values()
    }
    return [texts.get(value, str(value)) for value in values], columns


def _panel_text(name: str, columns: Mapping[str, Mapping[str, Estimate]]) -> str:
    cells = (
        (f"{label} {value}", estimate)
        for label, own in columns.items()
        for value, estimate in own.items()
    )
    return f"{_SETTINGS[name][0]}: {spoken(cells)}"
