"""Tables of one setting varied at a time.

A line has arms that are equal in all else, compared on the prompts that all of its columns
have; it says how many these are.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pandas as pd

from benchmarks import table
from benchmarks.language_modeling.results import OF_THE_SELECTOR, Results, settings_without
from benchmarks.language_modeling.statistics import difference
from benchmarks.language_modeling.tables import (
    BOLD_NOTE,
    CELL_NOTE,
    count,
    diverged_note,
    percent_cells,
    setting,
)
from benchmarks.table import Cell, Table, word
from sift_core.errors import InvalidInputError

SETTING_NAMES = {
    "n_candidates": "K",
    "n_steps": "N",
    "is_normalized": "normalized",
    "learning_rate": "learning rate",
    "chunks_per_step": "chunks a step",
}


def ablation_table(results: Results, field: str, *, tuned: str | None = None) -> Table:
    """Return one line for all fine-tuned arms that are equal but for `field`, a column a value.

    Args:
        results: Of one experiment.
        field: Name of a setting.
        tuned: A setting of which every column has the value that is best on the prompts of the
            line: full fine-tuning needs a smaller learning rate than LoRA.

    Raises:
        InvalidInputError: If no two arms differ in nothing else.
    """
    arms = results.where(mode="fine_tune")
    varied = [field, *([tuned] if tuned else [])]
    rest = settings_without(arms, varied)
    groups = [own for _, own in arms.groupby(rest, sort=False) if own[field].nunique() > 1]
    name = SETTING_NAMES.get(field, field)
    if not groups:
        raise InvalidInputError(f"no two fine-tuned arms differ in {name} alone")
    groups.sort(key=lambda own: (-len(own), -int(results.last[own.index].count().sum())))
    values = list(dict.fromkeys(value for own in groups for value in own[field]))
    if not any(isinstance(value, str) for value in values):
        values.sort()
    labels = _described(pd.DataFrame([own.iloc[0] for own in groups]).drop(columns=varied))
    rows = [
        _row(results, own, label, field, values, tuned)
        for own, label in zip(groups, labels, strict=True)
    ]
    last = "Δ: the second column minus the first, in points, paired." if len(values) == 2 else ""
    note = (
        " Each scope has the best of its learning rates (after @; in brackets how many were "
        "tried), chosen on these prompts."
        if tuned
        else ""
    )
    note += diverged_note(results, pd.concat(groups))
    return Table(
        title=f"By {name}",
        heads=("", "n", *map(setting, values), *(["Δ"] if last else [])),
        rows=tuple(rows),
        note=f"{CELL_NOTE} {BOLD_NOTE}{note} {last}".strip(),
    )


def _row(
    results: Results,
    arms: pd.DataFrame,
    label: str,
    field: str,
    values: list[object],
    tuned: str | None,
) -> tuple[Cell, ...]:
    percent = results.percent[arms.index].dropna()
    if percent.empty:
        raise InvalidInputError(f"no prompt was measured with two values of {field}")
    columns = pd.DataFrame(index=percent.index)
    suffixes = []
    for value in values:
        own = arms.index[[one == value for one in arms[field]]]
        suffix = ""
        columns[setting(value)] = float("nan")
        if len(own):
            arm = percent[own].mean().idxmin()
            columns[setting(value)] = percent[arm]
            suffix = f" @{setting(arms.loc[arm, tuned])} [{len(own)}]" if tuned else ""
        suffixes.append(suffix)
    cells = [
        Cell(**{**vars(cell), "text": cell.text + suffix})
        for cell, suffix in zip(percent_cells(columns), suffixes, strict=True)
    ]
    if len(values) == 2:
        first, second = (columns[name] for name in columns)
        cells.append(table.difference(difference(second, first)))
    return (word(label), count(len(percent)), *cells)


def _described(shared: pd.DataFrame) -> list[str]:
    """Return of every group its selector and the settings in which the groups differ."""
    labels = shared["label"].tolist()
    differing = [
        name
        for name in shared.columns
        if name not in ("label", *OF_THE_SELECTOR) and shared[name].map(repr).nunique() > 1
    ]
    return [
        ", ".join(
            [label, *(f"{SETTING_NAMES.get(k, k)} {setting(settings[k])}" for k in differing)]
        )
        for label, settings in zip(labels, shared.to_dict("records"), strict=True)
    ]


ABLATIONS: dict[str, Callable[[Results], Table]] = {
    "learning_rate": partial(ablation_table, field="learning_rate"),
    "order": partial(ablation_table, field="order"),
    "scope": partial(ablation_table, field="scope", tuned="learning_rate"),
    "normalized": partial(ablation_table, field="is_normalized"),
    "candidates": partial(ablation_table, field="n_candidates"),
}
