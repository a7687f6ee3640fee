"""How many different chunks SIFT chose, and what it gained over NN where they were few or many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from sift_core.errors import InvalidInputError
from sift_core.evaluation.analysis.ablation_tables import UNIQUE_BINS
from sift_core.evaluation.analysis.arm_grids import main_arms
from sift_core.evaluation.analysis.rows import ArmRecord, Results, selector_label
from sift_core.evaluation.analysis.statistics import mean
from sift_core.evaluation.figures.marks import BAND_CAPTION, draw_rows, spoken
from sift_core.evaluation.figures.style import (
    INK,
    CaptionedFigure,
    drawing,
    legend_outside,
    styles_for,
)
from sift_core.evaluation.statistics import Estimate

_RIGHT = (
    " Right: its bits per byte in % of the baseline's on the same prompts (below 100 SIFT is "
    f"better), by that number. {BAND_CAPTION}"
)


def unique_picks(results: Results) -> CaptionedFigure:
    """Return how many different chunks SIFT chose, and what that means against NN and NN-F.

    Left, the share of prompts by the number of different chunks among the chosen. Right, the
    paper's figure of the advantage over NN: bits per byte of SIFT in % of NN's and NN-F's on
    the same prompts, by that number.

    Raises:
        InvalidInputError: If SIFT was not measured, or its rows do not say what was chosen.
    """
    arms = main_arms(results)
    if "SIFT" not in arms:
        raise InvalidInputError(f"unique picks are SIFT's; fine-tuned were only {', '.join(arms)}")
    rows = results.rows_of(arms["SIFT"])
    counts = {prompt_id: row.n_unique for prompt_id, row in rows.items() if row.chosen}
    if not counts:
        raise InvalidInputError("no row of SIFT says what was chosen; `sift eval` writes it")
    groups = _groups_of(counts)
    columns: dict[str, dict[str, Estimate]] = {
        rival: _relative(results, arms["SIFT"], arms[rival], groups)
        for rival in ("NN", "NN-F")
        if rival in arms
    }
    columns = {rival: own for rival, own in columns.items() if own}
    median = float(np.median(list(counts.values())))
    everything = ((rival, own["all"]) for rival, own in columns.items() if "all" in own)
    with drawing():
        figure = CaptionedFigure(
            3.4,
            caption=f"{'Left: how' if columns else 'How'} many different chunks "
            f"{selector_label(arms['SIFT'])} chose, of {len(counts)} prompts (median {median:g})."
            + (_RIGHT if columns else ""),
            alt=f"Histogram of different chunks, median {median:g}; dot plot of SIFT's bits per "
            f"byte in % of {spoken(everything) or 'no baseline'} over all prompts.",
        )
        panels = figure.subplots(1, 2 if columns else 1, squeeze=False)[0]
        most = max(counts.values())
        edges = np.arange(0.5, most + _width(most) + 0.5, _width(most))
        shares = [100 / len(counts)] * len(counts)
        panels[0].hist(
            list(counts.values()), bins=edges.tolist(), weights=shares, color="#D55E00",
            edgecolor="white",
        )  # fmt: skip
        panels[0].grid(axis="x", visible=False)
        panels[0].set_xlabel("different chunks chosen")
        panels[0].set_ylabel("prompts (%)")
        if columns:
            panels[1].axvline(100, color=INK, linewidth=0.9)
            draw_rows(panels[1], list(groups), columns, styles_for(list(columns)))
            panels[1].set_xlabel("bits per byte, % of the baseline's")
            panels[1].set_ylabel("different chunks")
            legend_outside(figure, panels[1])
    return figure


def _width(most: int) -> int:
    """How many whole numbers stand in one bar, of at most 12."""
    return -(-most // 12)


def _groups_of(counts: Mapping[str, int]) -> dict[str, list[str]]:
    groups = {"all": list(counts)}
    for low, high in UNIQUE_BINS:
        groups[_bin_name(low, high)] = [
            key for key, n in counts.items() if low <= n and (high is None or n <= high)
        ]
    return {name: keys for name, keys in groups.items() if keys}


def _bin_name(low: int, high: int | None) -> str:
    if high is None:
        return f"over {low - 1}"
    return str(low) if low == high else f"{low} to {high}"


def _relative(
    results: Results, ours: ArmRecord, rival: ArmRecord, groups: Mapping[str, Sequence[str]]
) -> dict[str, Estimate]:
    first, second = results.rows_of(ours), results.rows_of(rival)
    ratios = {
        key: 100 * row.last_bits_per_byte / second[key].last_bits_per_byte
        for key, row in first.items()
        if key in second and second[key].last_bits_per_byte > 0
    }
    there = {name: [ratios[key] for key in keys if key in ratios] for name, keys in groups.items()}
    return {name: mean(values) for name, values in there.items() if values}
