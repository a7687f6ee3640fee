"""The rows of the retrieval benchmark as text, in points."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.retrieval_bars import METRICS, Row, points


def print_sets(rows: Sequence[Row]) -> None:
    """Print one table a condition: a line a method, recall@10 / all_gold@10 of every set."""
    for condition in dict.fromkeys(row["condition"] for row in rows):
        those = [row for row in rows if row["condition"] == condition]
        sets = list(dict.fromkeys(row["set"] for row in those))
        print(f"\n{condition} ({' / '.join(METRICS)}, in points)")
        print(f"{'':<18}" + "".join(f"{name:>17}" for name in [*sets, "mean"]))
        for method in dict.fromkeys(row["method"] for row in those):
            print(_line(method, [row for row in those if row["method"] == method]))


def _line(method: str, rows: Sequence[Row]) -> str:
    pairs = [[points(row, metric) for metric in METRICS] for row in rows]
    pairs.append(list(np.mean(pairs, axis=0)))
    cells = "".join(f"{f'{recall:.1f} / {all_gold:.1f}':>17}" for recall, all_gold in pairs)
    return f"{method:<18}{cells}"
