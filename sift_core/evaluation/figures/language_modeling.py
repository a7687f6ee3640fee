"""The main figures of language modelling: learning curves, domains, and what context gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sift_core.errors import InvalidInputError
from sift_core.evaluation.analysis.arm_grids import main_arms, mode_arms
from sift_core.evaluation.analysis.comparing import best_position
from sift_core.evaluation.analysis.rows import ArmRecord, Results, selector_label
from sift_core.evaluation.analysis.statistics import mean, paired_difference
from sift_core.evaluation.analysis.tables import BASELINES, paired_columns
from sift_core.evaluation.figures.marks import (
    BAND_CAPTION,
    PAIRING_CAPTION,
    PERCENT_LABEL,
    categories,
    draw_level,
    draw_line,
    draw_rows,
    error_lengths,
    mark_base,
    on_common_prompts,
    percent,
    spoken,
)
from sift_core.evaluation.figures.style import (
    INK,
    CaptionedFigure,
    drawing,
    legend_outside,
    styles_for,
)
from sift_core.evaluation.statistics import Estimate

ALL = "all domains"
_MODES = {"context": "in context", "fine_tune": "fine-tuned", "both": "both"}


def learning_curves(results: Results) -> CaptionedFigure:
    """Return bits per byte in % of the base model against steps, one line a selector.

    The paper's figure "spotlight". A dashed line is the base model, a level line the same
    chunks in the context.

    Args:
        results: Of one experiment.

    Raises:
        InvalidInputError: If nothing was fine-tuned or there are no base rows.
    """
    arms = main_arms(results)
    in_context = mode_arms(results).get("context")
    results = on_common_prompts(results, [*arms.values(), *([in_context] if in_context else [])])
    last = {selector_label(arm): percent(results, arm) for arm in arms.values()}
    with drawing():
        figure = CaptionedFigure(
            4.3,
            caption="Bits per byte in % of the base model (lower is better) against the number "
            f"of chunks learned, mean of {len(results.prompts)} prompts. {BAND_CAPTION} "
            f"{PAIRING_CAPTION}",
            alt="Line plot of bits per byte in % of base against steps. Last: "
            f"{spoken(last.items())}.",
        )
        axes = figure.subplots()
        for arm, style in zip(arms.values(), styles_for(list(arms)), strict=True):
            curve = results.curve(arm)
            estimates = [mean(column) for column in curve.percent.T]
            draw_line(
                axes, curve.steps.tolist(), estimates, style, selector_label(arm), is_band=True
            )
        if in_context is not None:
            draw_level(
                axes,
                percent(results, in_context),
                styles_for(["context"])[0],
                f"{selector_label(in_context)} in context",
            )
        mark_base(axes, is_vertical=False)
        axes.set_xlabel("chunks learned")
        axes.set_ylabel(PERCENT_LABEL)
        axes.set_xlim(left=0)
        legend_outside(figure, axes)
    return figure


def domain_dots(results: Results) -> CaptionedFigure:
    """Return one line a domain and one mark a selector, and SIFT against the best baseline.

    The narrow panel is the difference on the same prompts between SIFT and the baseline that
    is strongest in that domain; left of 0 SIFT is better. Domains are sorted by SIFT's result.

    Args:
        results: Of one experiment.

    Raises:
        InvalidInputError: If nothing was fine-tuned or there are no base rows.
    """
    arms = main_arms(results)
    scores = {selector_label(arm): results.percent_of_base(arm) for arm in arms.values()}
    columns = by_domain(results, scores)
    ours = selector_label(arms["SIFT"]) if "SIFT" in arms else ""
    rivals = [selector_label(arm) for name, arm in arms.items() if name in BASELINES]
    differences = _differences(results, scores, ours, rivals)
    explanation = (
        f" Right: {ours} minus the strongest baseline of the line, on the same prompts, in "
        "points; below 0 SIFT is better."
        if differences
        else ""
    )
    alt = "Dot plot of bits per byte in % of base by domain and selector. Over all: "
    return _dots(
        columns,
        styles=list(arms),
        differences=differences,
        caption="Bits per byte in % of the base model (lower is better) after the last step, "
        f"by domain. Error bars are 90 % bootstrap confidence intervals over prompts.{explanation}",
        alt=alt + spoken((label, own[ALL]) for label, own in columns.items()) + ".",
    )


def mode_dots(results: Results) -> CaptionedFigure:
    """Return one line a domain, with marks for context, fine-tuning and both.

    Args:
        results: Of one experiment.

    Raises:
        InvalidInputError: If one mode alone was measured, or there are no base rows.
    """
    arms = mode_arms(results)
    if len(arms) < 2:
        raise InvalidInputError(
            f"context and fine-tuning are compared, but only {', '.join(arms)} was measured"
        )
    scores = {_MODES[mode]: results.percent_of_base(arm) for mode, arm in arms.items()}
    others = _other_contexts(results, arms)
    scores |= {f"{name} in context": results.percent_of_base(arm) for name, arm in others.items()}
    columns = by_domain(results, scores)
    return _dots(
        columns,
        styles=[*arms, *others],
        differences={},
        caption="Bits per byte in % of the base model (lower is better) with the chunks that "
        f"{selector_label(arms['fine_tune'])} chose: in the context, learned by "
        "fine-tuning, or both. Error bars are 90 % bootstrap confidence intervals over prompts.",
        alt="Dot plot of bits per byte in % of base by domain and way of use. Over all: "
        + spoken((label, own[ALL]) for label, own in columns.items())
        + ".",
    )


def _other_contexts(results: Results, arms: Mapping[str, ArmRecord]) -> dict[str, ArmRecord]:
    """The arms of other selectors whose chunks were put into the context, by selector."""
    others = [arm for arm in results.arms_where(mode="context") if arm != arms.get("context")]
    return {str(arm["selector"]): arm for arm in reversed(others)}


def by_domain(
    results: Results, scores: Mapping[str, Mapping[str, float]]
) -> dict[str, dict[str, Estimate]]:
    """Return by column and domain the mean over the prompts that all columns have there.

    Args:
        results: Whose prompts say the domains.
        scores: By column, then by prompt id.

    Returns:
        As `scores`, with domains in place of prompts, and `ALL`.
    """
    columns: dict[str, dict[str, Estimate]] = {label: {} for label in scores}
    for name, paired in _lines(results, scores).items():
        for label, values in paired.items():
            if values:
                columns[label][name] = mean(list(values.values()))
    return columns


def _lines(
    results: Results, scores: Mapping[str, Mapping[str, float]]
) -> dict[str, dict[str, Mapping[str, float]]]:
    prompts = results.prompts
    ids = {name: [i for i in prompts if prompts[i].domain == name] for name in results.domains}
    return {name: paired_columns(scores, own) for name, own in {**ids, ALL: list(prompts)}.items()}


def _differences(
    results: Results,
    scores: Mapping[str, Mapping[str, float]],
    ours: str,
    rivals: Sequence[str],
) -> dict[str, Estimate]:
    differences = {}
    for name, line in _lines(results, scores).items():
        there = [line[rival] for rival in rivals if line[rival]]
        if line.get(ours) and there:
            differences[name] = paired_difference(line[ours], there[best_position(there)])
    return differences


def _dots(
    columns: Mapping[str, Mapping[str, Estimate]],
    *,
    styles: Sequence[str],
    differences: Mapping[str, Estimate],
    caption: str,
    alt: str,
) -> CaptionedFigure:
    first = next(iter(columns.values()))
    names = dict.fromkeys(name for own in columns.values() for name in own if name != ALL)
    rows = sorted(names, key=lambda name: first[name].value if name in first else 0.0)
    rows = [ALL, *rows] if len(rows) > 1 else rows
    with drawing():
        figure = CaptionedFigure(
            1.1 + len(rows) * max(0.3, 0.085 * len(columns)), caption=caption, alt=alt
        )
        widths = [3.2, 1] if differences else [1]
        panels = figure.subplots(
            1, len(widths), sharey=True, squeeze=False, gridspec_kw={"width_ratios": widths}
        )[0]
        mark_base(panels[0], is_vertical=True)
        draw_rows(panels[0], rows, columns, styles_for(styles))
        panels[0].set_xlabel(PERCENT_LABEL)
        if differences:
            there = [name for name in rows if name in differences]
            panels[1].axvline(0, color=INK, linewidth=0.9)
            panels[1].errorbar(
                [differences[name].value for name in there],
                [rows.index(name) for name in there],
                xerr=error_lengths([differences[name] for name in there]),
                linestyle="none",
                color=INK,
                marker="o",
                markersize=4.5,
                elinewidth=1.1,
            )
            categories(panels[1], rows)
            panels[1].set_xlabel("SIFT minus baseline")
        if len(rows) > 1:
            panels[0].get_yticklabels()[0].set_fontweight("bold")
        legend_outside(figure, panels[0])
    return figure
