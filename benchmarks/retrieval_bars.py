"""What the default must reach against plain search and the rivals tuned on the same questions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks.bars import bar, load_bars
from benchmarks.retrieval_methods import is_tuned_rival

Row = dict[str, Any]  # of one set, condition and method

METRICS = ("recall@10", "all_gold@10")
WITHOUT_REDUNDANCY = ("as is", "duplicates 1", "variants 1")


def bars_of(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the bars that can be held against the rows; values and bars are in points."""
    numbers = load_bars("retrieval")
    return [
        bar(name, value, round(other + margin, 6), "higher")
        for metric in METRICS
        for name, value, other, margin in _comparisons(rows, metric, numbers)
    ]


def points(row: Row, metric: str) -> float:
    """Return a fraction in points, rounded so that equal averages stay equal."""
    return round(100 * row[metric], 6)


def _comparisons(
    rows: Sequence[Row], metric: str, numbers: dict[str, Any]
) -> Iterator[tuple[str, float, float, float]]:
    """Yield name, our value, the other's value and the margin between them, in points."""
    plain = []
    for (name, condition), methods in _by_case(rows).items():
        sift, nn = (points(methods[method], metric) for method in ("sift", "nn"))
        case = f"{name}, {condition}: {metric} in points against"
        if condition == "as is":
            plain.append((sift, nn))
            yield f"{case} nn", sift, nn, numbers["as_is_over_nn"]
        if condition in WITHOUT_REDUNDANCY:
            continue
        rivals = {method: points(row, metric) for method, row in methods.items()}
        best = max(filter(is_tuned_rival, rivals), key=lambda method: rivals[method])
        yield f"{case} {best}", sift, rivals[best], numbers["redundant_over_best_mmr_or_dpp"]
        if metric == "recall@10" and name in numbers["redundant_recall_over_nn_sets"]:
            yield f"{case} nn", sift, nn, numbers["redundant_recall_over_nn"]
    if len(plain) > 1:
        sift, nn = (round(float(value), 6) for value in np.mean(plain, axis=0))
        case = f"mean of {len(plain)} sets, as is: {metric} in points against nn"
        yield case, sift, nn, numbers["as_is_mean_over_nn"]


def _by_case(rows: Sequence[Row]) -> dict[tuple[str, str], dict[str, Row]]:
    """Return method → row for every set and condition."""
    cases: dict[tuple[str, str], dict[str, Row]] = {}
    for row in rows:
        cases.setdefault((row["set"], row["condition"]), {})[row["method"]] = row
    return cases


def print_sets(rows: Sequence[Row]) -> None:
    """Print one table a condition: a line a method, recall@10 / all_gold@10 of every set."""
    for condition in dict.fromkeys(row["condition"] for row in rows):
        those = [row for row in rows if row["condition"] == condition]
        sets = list(dict.fromkeys(row["set"] for row in those))
        print(f"\n{condition} ({' / '.join(METRICS)}, in points)")
        print(f"{'':<18}" + "".join(f"{name:>17}" for name in [*sets, "mean"]))
        for method in dict.fromkeys(row["method"] for row in those):
            own = [row for row in those if row["method"] == method]
            pairs = [[points(row, metric) for metric in METRICS] for row in own]
            pairs.append(list(np.mean(pairs, axis=0)))
            cells = (f"{recall:.1f} / {all_gold:.1f}" for recall, all_gold in pairs)
            print(f"{method:<18}" + "".join(f"{cell:>17}" for cell in cells))
