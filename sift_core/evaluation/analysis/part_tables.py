"""The tables of each part of the language modelling experiment, as far as there are rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from sift_core.errors import InvalidInputError
from sift_core.evaluation.analysis.ablation_tables import (
    batch_table,
    candidates_table,
    learning_rate_table,
    normalized_table,
    order_table,
    scope_table,
    steps_table,
    unique_table,
)
from sift_core.evaluation.analysis.adaptive import adaptive_table, stop_table
from sift_core.evaluation.analysis.rows import Results
from sift_core.evaluation.analysis.table import Table
from sift_core.evaluation.analysis.tables import context_table, main_table, noise_variance_table
from sift_core.evaluation.analysis.uncertainty import correlation_table, reliability_table
from sift_core.evaluation.language_modeling.arms import BASE, Arm

MakeTable: TypeAlias = Callable[[Results], Table]

TABLES: Mapping[str, tuple[MakeTable, ...]] = {
    "main": (
        main_table,
        steps_table,
        unique_table,
        correlation_table,
        reliability_table,
        adaptive_table,
        stop_table,
    ),
    "context": (context_table,),
    "noise_variance": (noise_variance_table,),
    "learning_rate": (learning_rate_table,),
    "order": (order_table,),
    "batch": (batch_table,),
    "scope": (scope_table,),
    "normalized": (normalized_table,),
    "candidates": (candidates_table,),
}
_OF_NEAR_DUPLICATES: tuple[MakeTable, ...] = (
    partial(main_table, near_duplicates="without"),
    partial(main_table, near_duplicates="only"),
)


@dataclass(frozen=True, kw_only=True)
class PartTables:
    """What could be made of the rows.

    Args:
        tables: By part, in order; a part without any is left out.
        missing: By part, why some or all of its tables are not there.
    """

    tables: Mapping[str, tuple[Table, ...]]
    missing: Mapping[str, tuple[str, ...]]

    @property
    def all_tables(self) -> list[Table]:
        """The tables of all parts, one after the other."""
        return [table for tables in self.tables.values() for table in tables]

    @property
    def not_measured(self) -> list[str]:
        """The parts of which there is no table."""
        return [part for part in self.missing if part not in self.tables]


def tables_of(results: Results, parts: Iterable[str]) -> PartTables:
    """Return the tables of parts; prompts with and without near-duplicates where that is known.

    Takes some seconds for a thousand prompts: intervals are resampled.

    Args:
        results: Of one experiment.
        parts: Of `TABLES`.

    Raises:
        InvalidInputError: If there is no such part.
    """
    tables: dict[str, tuple[Table, ...]] = {}
    missing: dict[str, tuple[str, ...]] = {}
    for part in parts:
        if part not in TABLES:
            raise InvalidInputError(f"no part {part!r}; there are {', '.join(TABLES)}")
        makers = TABLES[part]
        if part == "main" and results.has_near_duplicates:
            makers = (makers[0], *_OF_NEAR_DUPLICATES, *makers[1:])
        made, why = _made(makers, results)
        tables |= {part: made} if made else {}
        missing |= {part: why} if why else {}
    return PartTables(tables=tables, missing=missing)


def results_of_arms(rows: Iterable[Mapping[str, Any]], arms: Sequence[Arm]) -> Results:
    """Return the results of some arms and the base model alone, so that tables are of these.

    Args:
        rows: Of one experiment; its file may have other settings, too.
        arms: Those that were asked for.

    Raises:
        InvalidInputError: As `Results.from_rows`.
    """
    records = [arm.as_record() for arm in [BASE, *arms]]
    return Results.from_rows(
        row for row in rows if row.get("kind") != "result" or row.get("arm") in records
    )


def _made(
    makers: Sequence[MakeTable], results: Results
) -> tuple[tuple[Table, ...], tuple[str, ...]]:
    """Return the tables that could be made, and why the others could not."""
    made: list[Table] = []
    why: list[str] = []
    for make in makers:
        try:
            made.append(make(results))
        except InvalidInputError as error:
            why.append(str(error))
    return tuple(made), tuple(dict.fromkeys(why))
