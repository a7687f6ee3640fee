"""The paper's tables of selectors per domain.

A cell is the mean over prompts of bits per byte in % of the base model's, with its standard
error; lower is better. A line compares its columns on the prompts that all of them have.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from benchmarks import table
from benchmarks.language_modeling.documents import NEAR_COPY
from benchmarks.language_modeling.results import (
    OF_THE_SELECTOR,
    Results,
    settings_without,
)
from benchmarks.language_modeling.statistics import best, difference, not_worse_than_best
from benchmarks.table import Cell, Table, missing, number, word
from sift_core.errors import InvalidInputError
from sift_core.evaluation.statistics import Estimate, mean

ALL = "All"
BASELINES = ("US", "NN", "NN-F", "HullFT")
ORDER = (*BASELINES, "SIFT", "other prompt")
CELL_NOTE = (
    "Bits per byte in % of the base model (lower is better): mean over prompts, standard error "
    "in round brackets, 90 % bootstrap interval in square ones."
)
BOLD_NOTE = (
    "Bold (or *): not worse than the best of the line by the 90 % interval of the paired "
    "difference."
)


def count(n: int) -> Cell:
    """Return a cell with a whole number."""
    return Cell(text=f"{n:,}", value=n)


def with_error(estimate: Estimate, *, is_bold: bool = False, digits: int = 1) -> Cell:
    """Return a cell "73.5 (0.6)": a mean and its standard error."""
    error = number(estimate.standard_error, digits).text
    text = f"{estimate.value:.{digits}f} ({error})"
    return Cell(text=text, is_bold=is_bold, value=estimate)


def main_table(results: Results) -> Table:
    """Return the selectors by domain after the last step, fine-tuned at the main settings.

    The paper's table "main_results_per_dataset". SIFT's λ is that of the main settings; others
    stand beside it where every prompt of the table was measured with them.
    """
    return _main_table(results, "all prompts")


def without_near_duplicates(results: Results) -> Table:
    """Return `main_table` of the prompts of which the data space has no near copy."""
    kept = results.of_prompts(results.prompts["near_duplicate"] < NEAR_COPY)
    return _main_table(kept, f"prompts with a near-duplicate share below {NEAR_COPY:g}")


def _main_table(results: Results, which: str) -> Table:
    main = results.main_arms()
    arms = _varying_noise_variance(results)
    shared = paired(results.percent[list(main.values())]).index
    is_complete = results.percent.loc[shared, arms.index].notna().all()
    is_main = arms.index.isin(main.values())
    arms = arms[is_main | ((arms["selector"] == "SIFT") & is_complete)]
    columns = results.percent[arms.index].set_axis(arms["label"], axis=1)
    sift = [arms.loc[main["SIFT"], "label"]] if "SIFT" in main else []
    rivals = [arm["label"] for arm in arms.to_dict("records") if arm["selector"] in BASELINES]
    return Table(
        title=f"Selectors, {which}",
        heads=("", "n", "base", *columns, "Δ"),
        rows=_domain_rows(results, columns, sift, rivals),
        note=f"{CELL_NOTE} {BOLD_NOTE} n: prompts. base: its bits per byte over all bytes. "
        f"Δ: {', '.join(sift)} minus the strongest of {', '.join(BASELINES)} of the line, in "
        f"points, paired; below 0 SIFT is better.",
    )


def paired(columns: pd.DataFrame) -> pd.DataFrame:
    """Return the columns on the prompts that all have; one without any stays, all NaN."""
    there = columns.dropna(axis=1, how="all").dropna()
    return there.reindex(columns=columns.columns)


def percent_cells(columns: pd.DataFrame) -> list[Cell]:
    """Return the cells of one line of `paired`: a mean a column, the best bold, "–" for none."""
    there = columns.dropna(axis=1, how="all")
    flags = not_worse_than_best(there)
    return [
        with_error(mean(there[name]), is_bold=flags[name] and len(flags) > 1)
        if name in there
        else missing()
        for name in columns
    ]


def _varying_noise_variance(results: Results) -> pd.DataFrame:
    """Return the fine-tuned arms that differ from the main ones in λ alone, in order."""
    tuned = results.where(mode="fine_tune")
    main = next(iter(results.main_arms().values()))
    rest = settings_without(tuned, OF_THE_SELECTOR)
    arms = tuned[rest == rest[main]]
    place = arms["selector"].map({name: i for i, name in enumerate(ORDER)})
    noise_variance = arms["noise_variance"].astype(float).fillna(0)
    order = np.lexsort([noise_variance, place.fillna(len(ORDER))])
    return arms.iloc[order]


def _domain_rows(
    results: Results, columns: pd.DataFrame, ours: Sequence[str], theirs: Sequence[str]
) -> tuple[tuple[Cell, ...], ...]:
    """Return one line a domain, the largest gain of ours over theirs first, and All below."""
    lines = []
    domains = results.prompts["domain"]
    for domain in domains.unique():
        line = paired(columns[domains == domain])
        if len(line):
            lines.append(_line(results, domain, line, ours, theirs))
    lines.sort(key=lambda pair: pair[0])
    everything = paired(columns)
    if everything.empty:
        raise InvalidInputError(f"no prompt was measured under all of {', '.join(columns)}")
    last = _line(results, ALL, everything, ours, theirs)
    return tuple(cells for _, cells in [*lines, last])


def _line(
    results: Results, name: str, columns: pd.DataFrame, ours: Sequence[str], theirs: Sequence[str]
) -> tuple[float, tuple[Cell, ...]]:
    """Return the difference between the best of ours and of theirs, and the cells."""
    n_bytes = results.prompts.loc[columns.index, "n_bytes"]
    base = float(results.base[columns.index] @ n_bytes / n_bytes.sum())
    cells = (word(name), count(len(columns)), number(base), *percent_cells(columns))
    there = columns.dropna(axis=1, how="all")
    sides = [there[[one for one in side if one in there]] for side in (ours, theirs)]
    if any(side.columns.empty for side in sides):
        return np.inf, (*cells, missing())
    gap = difference(*(side[best(side)] for side in sides))
    return gap.value, (*cells, table.difference(gap))
