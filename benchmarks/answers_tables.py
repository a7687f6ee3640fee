"""The tables of the benchmark of answers, over the questions that have all of their rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd

from benchmarks.answers_data import BOUNDS, COMPARED, FORMS, SIZES
from benchmarks.language_modeling.running import Row
from benchmarks.language_modeling.statistics import difference as gap
from benchmarks.table import Cell, Table, difference, missing, number, word
from sift_core.errors import InvalidInputError

NEAREST = COMPARED[0]
SETTINGS = tuple(f"{form}, {n}" for form in FORMS for n in SIZES)
ARMS = (*BOUNDS, *(f"{setting}: {name}" for setting in SETTINGS for name in COMPARED))
DIGITS = {"gold": 1, "bits": 2, "bits_per_byte": 3, "exact": 1, "holds": 1, "f1": 1}
POINTS = ["gold", "exact", "holds", "f1"]  # the others are bits
NOTE = (
    "Bits of the first gold answer: fewer are better. Gold passages found, exact match, answers "
    "that hold a gold answer and F1 in points. Δ: paired difference from nn with as many chunks, "
    "in brackets its 90 % bootstrap interval over questions."
)


def by_question(rows: Sequence[Row]) -> pd.DataFrame:
    """Return a line a set and question, a column a measure and arm.

    Raises:
        InvalidInputError: If no question has all of its rows.
    """
    records = []
    for row in rows:
        if "key" in row:
            name, question, form, method, n = row["key"].split("|")
            arm = f"{form}, {n}: {method}" if form else method
            records.append({"set": name, "question": question, "arm": arm, **row})
    if records:
        long = pd.DataFrame(records)
        long["bits_per_byte"] = long["bits"] / long["bytes"]
        long[POINTS] *= 100
        wide = long.pivot(index=["set", "question"], columns="arm", values=list(DIGITS))
        whole = wide.reindex(columns=pd.MultiIndex.from_product([DIGITS, ARMS])).dropna()
        if len(whole):
            return whole.astype(float)
    raise InvalidInputError("no question has all of its rows yet; measure with --data")


def tables(rows: Sequence[Row]) -> list[Table]:
    """Return what all questions say together, and bits and F1 set by set."""
    found = by_question(rows)
    counts = found.groupby(level="set").size()
    sets = {name: found.xs(name, level="set") for name in counts.index}
    heads = ("gold", "bits", "Δ bits", "bits per byte", "exact", "holds", "F1", "Δ F1")

    def together(arm: str) -> list[Cell]:
        cells = {one: number(found[one, arm].mean(), digits) for one, digits in DIGITS.items()}
        bits, f1 = _over_nearest(found, arm, "bits"), _over_nearest(found, arm, "f1")
        return [
            *(cells["gold"], cells["bits"], bits, cells["bits_per_byte"]),
            *(cells["exact"], cells["holds"], cells["f1"], f1),
        ]

    def apart(measure: str) -> Callable[[str], list[Cell]]:
        def cells(arm: str) -> list[Cell]:
            own = [number(one[measure, arm].mean(), DIGITS[measure]) for one in sets.values()]
            gaps = [_over_nearest(one, arm, measure) for one in sets.values()]
            return own if _is_reference(arm) else gaps

        return cells

    of = ", ".join(f"{n} of {name}" for name, n in counts.items())
    note = "Differences from nn but for nn and the bounds themselves."
    return [
        _table(f"Answers from chosen contexts, questions: {of}", heads, together, NOTE),
        _table("Bits of the gold answer, set by set", tuple(sets), apart("bits"), note),
        _table("F1 in points, set by set", tuple(sets), apart("f1"), note),
    ]


def summary(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return a record a set and arm, each measure's mean in it."""
    means = by_question(rows).groupby(level="set").mean().stack(future_stack=True)
    return means.round(4).rename_axis(["set", "arm"]).reset_index().to_dict("records")


def _table(
    title: str, heads: tuple[str, ...], cells: Callable[[str], list[Cell]], note: str
) -> Table:
    lines = tuple((word(arm), *cells(arm)) for arm in ARMS)
    return Table(title=title, heads=("context", *heads), rows=lines, note=note)


def _over_nearest(found: pd.DataFrame, arm: str, measure: str) -> Cell:
    if _is_reference(arm):
        return missing()
    nearest = f"{arm.split(': ')[0]}: {NEAREST}"
    return difference(gap(found[measure, arm], found[measure, nearest]), digits=DIGITS[measure])


def _is_reference(arm: str) -> bool:
    return arm in BOUNDS or arm.endswith(f": {NEAREST}")
