"""The rows of `evaluate_retrieval` as tables, in points (hundredths)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from sift_core.errors import InvalidInputError
from sift_core.evaluation.retrieval import OURS, Row
from sift_core.evaluation.statistics import Estimate
from sift_core.evaluation.table import Table, difference, missing, number, with_interval, word

INTERVALS = "In square brackets: 90 % bootstrap interval over the questions."


def retrieval_tables(rows: Sequence[Row], metric: str = "recall@10") -> list[Table]:
    """Return one table a condition, and one of the differences of "sift" to its rivals.

    Args:
        rows: At least one, of any number of sets, conditions and methods.
        metric: One that every row has.

    Raises:
        InvalidInputError: If there is no row, or one lacks the metric.
    """
    if not rows:
        raise InvalidInputError("there are no rows of retrieval to show")
    lacking = next((row for row in rows if metric not in row), None)
    if lacking is not None:
        raise InvalidInputError(f"a row lacks `{metric}`; it has {', '.join(lacking)}")
    conditions = dict.fromkeys(row["condition"] for row in rows)
    tables = [
        _condition_table([row for row in rows if row["condition"] == condition], condition, metric)
        for condition in conditions
    ]
    differences = _difference_table(rows, metric)
    return [*tables, *([differences] if differences else [])]


def _condition_table(rows: Sequence[Row], condition: str, metric: str) -> Table:
    """Return a line a method and a column a set; the best of a column is bold."""
    sets = list(dict.fromkeys(row["set"] for row in rows))
    methods = list(dict.fromkeys(row["method"] for row in rows))
    by_cell = {(row["method"], row["set"]): row for row in rows}
    best = {name: max(row[metric] for row in rows if row["set"] == name) for name in sets}
    lines = []
    for method in methods:
        found = [by_cell.get((method, name)) for name in sets]
        cells = [
            missing()
            if row is None
            else with_interval(
                _points(row[metric], row.get("ci", {}).get(metric), row["n_queries"]),
                is_bold=row[metric] == best[name],
            )
            for name, row in zip(sets, found, strict=True)
        ]
        if len(sets) > 1:
            values = [row[metric] for row in found if row is not None]
            cells.append(
                number(100 * float(np.mean(values)), 1) if len(values) == len(sets) else missing()
            )
        lines.append((word(method), *cells))
    n_queries = {row["set"]: row["n_queries"] for row in rows}
    questions = ", ".join(f"{name} {n_queries[name]:,}" for name in sets)
    return Table(
        title=f"{metric} in points, {condition}",
        heads=("method", *sets, *(["mean"] if len(sets) > 1 else [])),
        rows=tuple(lines),
        note=f"{INTERVALS} Questions: {questions}. Bold (or *): the largest of its column.",
    )


def _difference_table(rows: Sequence[Row], metric: str) -> Table | None:
    """Return a line a set and condition and a column a rival; None where nothing was compared."""
    ours = [row for row in rows if row["method"] == OURS and row.get("differences")]
    rivals = list(dict.fromkeys(rival for row in ours for rival in row["differences"]))
    if not rivals:
        return None
    lines = []
    for row in ours:
        found = [row["differences"].get(rival, {}).get(metric) for rival in rivals]
        cells = [
            missing()
            if one is None
            else difference(_points(one["mean"], one.get("ci"), row["n_queries"]))
            for one in found
        ]
        lines.append((word(f"{row['set']}, {row['condition']}"), *cells))
    return Table(
        title=f"{OURS} minus its rivals on the same questions, {metric} in points",
        heads=("set, condition", *rivals),
        rows=tuple(lines),
        note=INTERVALS,
    )


def _points(value: float, interval: Sequence[float] | None, n: int) -> Estimate:
    """Return a fraction and its interval in points; the rows have no standard errors."""
    low, high = (math.nan, math.nan) if interval is None else interval
    return Estimate(value=100 * value, standard_error=math.nan, low=100 * low, high=100 * high, n=n)
