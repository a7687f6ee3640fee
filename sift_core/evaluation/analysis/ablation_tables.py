"""Tables of one setting varied at a time, of the steps, and of how many chunks were unique.

A line of an ablation has arms that are equal in all else, compared on the prompts that all of
its columns have; it says how many these are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sift_core.errors import InvalidInputError
from sift_core.evaluation.analysis.comparing import (
    SETTING_NAMES,
    ArmGroup,
    Scores,
    common_prompts,
    describe,
    diverged_note,
    groups_varying,
    main_by_selector,
    mean_percent,
    not_measured,
    restrict,
    setting,
)
from sift_core.evaluation.analysis.result_row import selector_label
from sift_core.evaluation.analysis.rows import ArmRecord, Results
from sift_core.evaluation.analysis.statistics import mean, paired_difference
from sift_core.evaluation.analysis.table import (
    Cell,
    Table,
    count,
    difference,
    missing,
    number,
    with_error,
    word,
)
from sift_core.evaluation.analysis.tables import (
    ALL,
    BOLD_NOTE,
    CELL_NOTE,
    paired_columns,
    percent_cells,
)

# The paper's figure has all prompts, those with one unique point, and those with more than 25.
UNIQUE_BINS: tuple[tuple[int, int | None], ...] = ((1, 1), (2, 10), (11, 25), (26, None))


def learning_rate_table(results: Results, *, by_domain: bool = False) -> Table:
    """Return the learning rates, one line a selector and scope.

    Args:
        results: Of one experiment.
        by_domain: Whether every line is followed by one a domain.

    Raises:
        InvalidInputError: If no two fine-tuned arms differ in nothing else.
    """
    return _ablation(results, "learning_rate", "learning_rate", by_domain=by_domain)


def order_table(results: Results, *, by_domain: bool = False) -> Table:
    """Return chunks learned in order of choice and reversed; arguments as above."""
    return _ablation(results, "order", "order", by_domain=by_domain)


def batch_table(results: Results, *, by_domain: bool = False) -> Table:
    """Return one chunk a step against several (`chunks_per_step`); arguments as above."""
    return _ablation(results, "chunks_per_step", "batch", by_domain=by_domain)


def normalized_table(results: Results, *, by_domain: bool = False) -> Table:
    """Return embeddings of unit length against embeddings as they are; arguments as above."""
    return _ablation(results, "is_normalized", "normalized", by_domain=by_domain)


def candidates_table(results: Results, *, by_domain: bool = False) -> Table:
    """Return the numbers of candidates K that a selector chose from; arguments as above."""
    return _ablation(results, "n_candidates", "candidates", by_domain=by_domain)


def scope_table(results: Results, *, by_domain: bool = False) -> Table:
    """Return what is trained (LoRA on all layers, on the top k, the head, the whole model).

    Every scope has, of the learning rates that it was measured with, the one that is best on
    the prompts of the line, since full fine-tuning needs a smaller one than LoRA.

    Args:
        results: Of one experiment.
        by_domain: Whether every line is followed by one a domain, with the same learning rates.

    Raises:
        InvalidInputError: If no two fine-tuned arms differ in scope and learning rate alone.
    """
    note = (
        " Each scope has the best of its learning rates (after @; in brackets how many were "
        "tried), chosen on these prompts."
    )
    return _ablation(
        results, "scope", "scope", tuned="learning_rate", by_domain=by_domain, note=note
    )


def steps_table(results: Results) -> Table:
    """Return the selectors at the main settings after each measured number of chunks.

    One line a step. Rows that ended early keep their last value, see `Results.curve`.

    Args:
        results: Of one experiment.

    Raises:
        InvalidInputError: If nothing was fine-tuned or there is no base row.
    """
    curves = {selector_label(arm): results.curve(arm) for arm in main_by_selector(results).values()}
    common = sorted(set.intersection(*(set(curve.steps.tolist()) for curve in curves.values())))
    rows = []
    for step in common:
        columns: dict[str, Scores] = {}
        for label, curve in curves.items():
            at = int(np.searchsorted(curve.steps, step))
            columns[label] = dict(zip(curve.prompt_ids, curve.percent[:, at].tolist(), strict=True))
        paired = paired_columns(columns, list(results.prompts))
        n = len(next(iter(paired.values())))
        if not n:
            raise InvalidInputError(f"no prompt was measured under all of {', '.join(columns)}")
        rows.append((Cell(text=str(step), value=step), count(n), *percent_cells(paired)))
    return Table(
        title="Selectors by number of chunks learned",
        heads=("chunks", "n", *curves),
        rows=tuple(rows),
        note=f"{CELL_NOTE} {BOLD_NOTE}",
    )


def unique_table(
    results: Results, *, bins: Sequence[tuple[int, int | None]] = UNIQUE_BINS
) -> Table:
    """Return what SIFT gains over NN and NN-F by how many different chunks it chose.

    The paper's figure "advantage_over_nn", there in % of the baseline; here both in % of the
    baseline and in points of the base model.

    Args:
        results: Of one experiment.
        bins: Least and greatest number of unique chunks, both included; None for no end.

    Raises:
        InvalidInputError: If SIFT, or both NN and NN-F, were not measured at the main settings.
    """
    arms = main_by_selector(results)
    rivals = [arms[name] for name in ("NN", "NN-F") if name in arms]
    if "SIFT" not in arms or not rivals:
        raise not_measured(results, "SIFT beside NN or NN-F is needed")
    ours = results.percent_of_base(arms["SIFT"])
    columns = [results.percent_of_base(arm) for arm in rivals]
    n_unique = {key: row.n_unique for key, row in results.rows_of(arms["SIFT"]).items()}
    ids = common_prompts([ours, *columns])
    rows = [_unique_row(ALL, ids, ours, columns, n_total=len(ids))]
    for low, high in bins:
        own = [
            key for key in ids if low <= n_unique[key] and (high is None or n_unique[key] <= high)
        ]
        rows.append(_unique_row(_bin_label(low, high), own, ours, columns, n_total=len(ids)))
    heads = [
        head for arm in rivals for head in (f"% of {arm['selector']}", f"minus {arm['selector']}")
    ]
    return Table(
        title=f"{selector_label(arms['SIFT'])} by number of unique chunks chosen",
        heads=("unique", "n", "share", *heads),
        rows=tuple(rows),
        note="% of X: mean over prompts of 100 × SIFT's bits per byte / X's (below 100 SIFT is "
        "better), standard error in brackets. minus X: difference in points of % of the base "
        "model, 90 % bootstrap interval in square brackets. share: of the prompts.",
    )


def _unique_row(
    name: str, ids: Sequence[str], ours: Scores, columns: Sequence[Scores], *, n_total: int
) -> tuple[Cell, ...]:
    cells = [word(name), count(len(ids)), number(len(ids) / n_total if n_total else None, 2)]
    for theirs in columns:
        if not ids:
            cells += [missing(), missing()]
            continue
        ratios = [100 * ours[key] / theirs[key] for key in ids]
        gap = paired_difference(restrict(ours, ids), restrict(theirs, ids))
        cells += [with_error(mean(ratios)), difference(gap)]
    return tuple(cells)


def _bin_label(low: int, high: int | None) -> str:
    if high is None:
        return f"> {low - 1}"
    return str(low) if low == high else f"{low}–{high}"


def _ablation(
    results: Results,
    field: str,
    part: str,
    *,
    tuned: str | None = None,
    by_domain: bool,
    note: str = "",
) -> Table:
    fields = (field,) if tuned is None else (field, tuned)
    found = groups_varying(results, fields, mode="fine_tune")
    groups = [group for group in found if len({arm.get(field) for arm in group.arms}) > 1]
    name = SETTING_NAMES.get(field, field)
    if not groups:
        values = sorted({setting(arm.get(field)) for group in found for arm in group.arms})
        raise not_measured(
            results, f"no two fine-tuned arms differ in {name} alone (values: {values})", part
        )
    values = _sorted_values(arm.get(field) for group in groups for arm in group.arms)
    rows: list[tuple[Cell, ...]] = []
    for group, label in zip(groups, describe(groups), strict=True):
        rows += _group_rows(results, group, label, field, values, tuned, by_domain)
    if not rows:
        raise InvalidInputError(f"no prompt was measured with two values of {name}")
    heads = [setting(value) for value in values]
    last = "Δ: the second column minus the first, in points, paired." if len(values) == 2 else ""
    note += diverged_note(results, [arm for group in groups for arm in group.arms])
    return Table(
        title=f"By {name}",
        heads=("", "n", *heads, *(["Δ"] if last else [])),
        rows=tuple(rows),
        note=f"{CELL_NOTE} {BOLD_NOTE}{note} {last}".strip(),
    )


def _group_rows(
    results: Results,
    group: ArmGroup,
    label: str,
    field: str,
    values: Sequence[Any],
    tuned: str | None,
    by_domain: bool,
) -> list[tuple[Cell, ...]]:
    scores = [(arm, results.percent_of_base(arm)) for arm in group.arms]
    common = common_prompts([column for _, column in scores])
    columns: dict[str, Scores] = {}
    chosen: dict[str, str] = {}
    for value in values:
        own = [(arm, column) for arm, column in scores if arm.get(field) == value]
        columns[setting(value)] = {}
        if own and common:
            arm, column = min(own, key=lambda pair: mean_percent(restrict(pair[1], common)))
            columns[setting(value)] = restrict(column, common)
            chosen[setting(value)] = _tuned_text(arm, tuned, len(own))
    if not common:
        return []
    rows = [_ablation_row(label, columns, chosen)]
    for domain in results.domains if by_domain else ():
        ids = [key for key in common if results.prompts[key].domain == domain]
        line = paired_columns(columns, ids)
        rows += [_ablation_row(f"  {domain}", line, {})] if ids else []
    return rows


def _ablation_row(
    name: str, columns: Mapping[str, Scores], chosen: Mapping[str, str]
) -> tuple[Cell, ...]:
    n = len(next(scores for scores in columns.values() if scores))
    cells = [
        Cell(**{**vars(cell), "text": cell.text + chosen.get(head, "")})
        for head, cell in zip(columns, percent_cells(columns), strict=True)
    ]
    if len(columns) == 2:
        first, second = columns.values()
        cells.append(difference(paired_difference(second, first)))
    return (word(name), count(n), *cells)


def _tuned_text(arm: ArmRecord, tuned: str | None, n_tried: int) -> str:
    return "" if tuned is None else f" @{setting(arm.get(tuned))} [{n_tried}]"


def _sorted_values(values: Any) -> list[Any]:
    distinct = list(dict.fromkeys(values))
    if all(isinstance(value, (bool, int, float)) for value in distinct):
        return sorted(distinct)
    return distinct
