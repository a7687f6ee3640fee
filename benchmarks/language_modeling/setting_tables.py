"""Tables of one setting varied at a time, and of reading, learning and both by size of context.

A line has arms that are equal in all else, compared on the prompts that all of its columns
have; it says how many these are.
"""

from __future__ import annotations

import pandas as pd

from benchmarks import table
from benchmarks.language_modeling.results import OF_THE_SELECTOR, Results, settings_without
from benchmarks.language_modeling.statistics import difference
from benchmarks.language_modeling.tables import (
    BOLD_NOTE,
    CELL_NOTE,
    count,
    diverged_note,
    paired,
    percent_cells,
    setting,
)
from benchmarks.table import Cell, Table, missing, number, word
from sift_core.errors import InvalidInputError

OF_READING = ("mode", "scope", "learning_rate", "chunks_per_step", "order", "context_tokens")
CHOSEN_BY = ("SIFT", "NN", "SIFT context")  # the last is read alone
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


def context_table(results: Results) -> Table:
    """Return what is read, learned and both in % of the base model, a line a size of context.

    The paper's table "gpt2_ttft", by context.
    """
    by_room = _by_room(results)
    names = list(dict.fromkeys(name for columns in by_room.values() for name in columns))
    rows = []
    for room, columns in by_room.items():
        line = paired(columns.reindex(columns=names))
        rows.append((_size(room), count(len(line)), *percent_cells(line)))
    return Table(
        title="Reading the chunks, learning them, or both",
        heads=("tokens to read", "n", *names),
        rows=tuple(rows),
        note=f"{CELL_NOTE} {BOLD_NOTE} Whole chunks are read, in order of choice, as many as fit; "
        "what is learned is the same in every line.",
    )


def best_mode_table(results: Results) -> Table:
    """Return for each size of context the share of prompts on which each mode is the best.

    The chunks are SIFT's.
    """
    modes = ("base", "context", "fine_tune", "both")
    rows = []
    for room, columns in _by_room(results).items():
        own = columns[[name for name in columns if name.endswith(" SIFT")]].dropna()
        own.columns = [name.removesuffix(" SIFT") for name in own]
        if own.empty:
            continue
        own = own.assign(base=100.0)
        winners = own.idxmin(axis=1)
        oracle = own.min(axis=1).mean()
        shares = [
            number(100 * float((winners == mode).mean()), 0) if mode in own else missing()
            for mode in modes
        ]
        rows.append((_size(room), count(len(own)), *shares, number(float(oracle), 1)))
    if not rows:
        raise InvalidInputError("no prompt has SIFT's chunks both read and learned")
    return Table(
        title="The best mode for each prompt, SIFT's chunks",
        heads=("tokens to read", "n", *(f"{mode}, %" for mode in modes), "the best of all"),
        rows=tuple(rows),
        note="Share of the prompts on which the mode has the fewest bits per byte. the best of "
        "all: % of the base model if the best mode were known beforehand.",
    )


def _by_room(results: Results) -> dict[int | None, pd.DataFrame]:
    """Return by size of context the columns "context SIFT", "fine_tune SIFT", "both SIFT", ….

    Raises:
        InvalidInputError: If nothing was read.
    """
    main = results.main_arms()
    rest = settings_without(results.arms, OF_READING)
    tuned = {name: main[name] for name in CHOSEN_BY if name in main}
    found: dict[int | None, pd.DataFrame] = {}
    readers = results.where(mode="context")
    for room in sorted(set(readers["context_tokens"]), key=lambda one: one or 10**9):
        columns: dict[str, pd.Series] = {}
        for name in CHOSEN_BY:
            for mode in ("context", "both"):
                arms = results.where(mode=mode, selector=name, context_tokens=room)
                if name in tuned:
                    arms = arms[rest[arms.index] == rest[tuned[name]]]
                if len(arms):
                    columns[f"{mode} {_label(name)}"] = results.percent[arms.index[0]]
            if name in tuned:
                columns[f"fine_tune {_label(name)}"] = results.percent[tuned[name]]
        found[room] = pd.DataFrame(columns, index=results.prompts.index)
    if not found:
        raise InvalidInputError("no arm of mode 'context' beside fine-tuning")
    return found


def _label(selector: str) -> str:
    return "default" if selector == "SIFT context" else selector


def _size(room: int | None) -> Cell:
    return word("as many as fit") if room is None else Cell(text=f"{room:,}", value=room)
