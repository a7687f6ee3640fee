"""The tables of each part of the experiment, as far as there are rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from benchmarks.language_modeling.ablation_tables import ABLATIONS
from benchmarks.language_modeling.adaptive_tables import adaptive_table, stop_table
from benchmarks.language_modeling.context_tables import best_mode_table, context_table
from benchmarks.language_modeling.results import Results
from benchmarks.language_modeling.tables import (
    main_table,
    noise_variance_table,
    only_near_duplicates,
    steps_table,
    unique_table,
    without_near_duplicates,
)
from benchmarks.language_modeling.uncertainty_tables import correlation_table, reliability_table
from benchmarks.table import Table
from sift_core.errors import InvalidInputError

MakeTable = Callable[[Results], Table]
MAIN: tuple[MakeTable, ...] = (
    main_table,
    without_near_duplicates,
    only_near_duplicates,
    steps_table,
    unique_table,
    correlation_table,
    reliability_table,
    adaptive_table,
    stop_table,
)
TABLES: dict[str, tuple[MakeTable, ...]] = {
    "main": MAIN,
    "pair": MAIN,
    "context": (context_table, best_mode_table),
    "noise_variance": (noise_variance_table,),
    **{part: (make,) for part, make in ABLATIONS.items()},
}


def tables_of(results: Results, parts: Iterable[str]) -> dict[str, list[Table]]:
    """Return the tables by part; one for which there are no rows is left out and said to be."""
    tables: dict[str, list[Table]] = {}
    for part in parts:
        made = []
        for make in TABLES[part]:
            try:
                made.append(make(results))
            except InvalidInputError as error:
                print(f"{part}: {error}")
        tables |= {part: made} if made else {}
    return tables
