"""Does activeft, the paper's library, choose what we choose? Every exception with its cause.

    python -m benchmarks.agreement [--pools N] [--embeddings TEXTS.npy QUERIES.npy] [--json FILE]

Both get the same float32 unit vectors, linear kernel, λ and repeats. activeft runs as its
Retriever runs it (`VTL.select`, float32, candidates shuffled) without the worker process.
Where the lists differ, the cause is found by experiment (agreement_causes.py).
"""

from __future__ import annotations

import argparse
import os

os.environ["OMP_NUM_THREADS"] = "1"  # before NumPy and torch load their libraries
os.environ["OPENBLAS_NUM_THREADS"] = "1"

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.agreement_causes import (
    OURS,
    SAME,
    THEIRS,
    cause,
    first_difference,
    gap_at_first_difference,
    without_copies,
)
from benchmarks.agreement_pools import Pool, pools, real_pools
from benchmarks.bars import bar, in_words, load_bars
from benchmarks.records import write_record
from benchmarks.selection_rivals import algorithm_1, choose_with_activeft
from sift_core import SIFTSelector

PACKAGES = ["numpy", "numba", "activeft", "torch", "sift-rerank"]


def compare(pool: Pool) -> dict[str, Any]:
    """Return what is to be said about one pool."""
    selector = SIFTSelector.for_fine_tuning(noise_variance=pool.noise_variance)
    ours = selector.select(pool.query, pool.rows, pool.n_select).positions.tolist()
    theirs = choose_with_activeft(pool)
    exact = algorithm_1(pool.query, pool.rows, pool.n_select, pool.noise_variance)
    return {
        "kind": pool.kind,
        "d": pool.rows.shape[1],
        "n_candidates": len(pool.rows),
        "n_select": pool.n_select,
        "noise_variance": pool.noise_variance,
        "cause": cause(pool, ours, theirs, choose_with_activeft),
        "first_difference": first_difference(ours, theirs),
        "gap": gap_at_first_difference(pool, ours, theirs),
        "same_as_algorithm_1": without_copies(ours, pool.rows) == without_copies(exact, pool.rows),
        "gap_to_algorithm_1": gap_at_first_difference(pool, ours, exact),
    }


def table(found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one row a kind of pool: how many lists are equal, and why the others are not."""
    rows = []
    for kind in dict.fromkeys(one["kind"] for one in found):
        those = [one for one in found if one["kind"] == kind]
        causes = Counter(one["cause"] for one in those)
        rows.append(
            {
                "kind": kind,
                "pools": len(those),
                "same_as_algorithm_1": sum(one["same_as_algorithm_1"] for one in those),
                "same": causes.pop(SAME, 0),
                "exceptions": dict(causes.most_common()),
                "largest_gap": max((abs(one["gap"]) for one in those), default=0.0),
            }
        )
    return rows


def print_table(rows: Sequence[dict[str, Any]]) -> None:
    print(f"{'pools':>18} {'number':>6} {'= float64':>9} {'= activeft':>10}  exceptions")
    for row in rows:
        causes = "; ".join(f"{n} {why}" for why, n in row["exceptions"].items())
        gap = f" (gains differ by up to {row['largest_gap']:.1g})" if row["largest_gap"] else ""
        print(
            f"{row['kind']:>18} {row['pools']:>6} {row['same_as_algorithm_1']:>9} "
            f"{row['same']:>10}  {causes}{gap}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pools", type=int, default=50, help="of each kind")
    parser.add_argument("--embeddings", type=Path, nargs=2, metavar=("TEXTS", "QUERIES"))
    parser.add_argument("--json", type=Path, help="where to write the record")
    arguments = parser.parse_args()
    wanted = list(pools(arguments.pools))
    if arguments.embeddings:
        texts, points = (np.load(path) for path in arguments.embeddings)
        wanted += real_pools(texts, points, arguments.pools)
    found = [compare(pool) for pool in wanted]
    rows = table(found)
    print_table(rows)
    unexplained = sum(one["cause"] in (THEIRS, OURS) for one in found)
    key = "unexplained_disagreements"
    bars = [bar("unexplained disagreements", unexplained, load_bars("selection")[key], "lower")]
    print(in_words(bars[0]))
    if arguments.json:
        rows += [one for one in found if one["cause"] != SAME or not one["same_as_algorithm_1"]]
        write_record(arguments.json, rows=rows, bars=bars, packages=PACKAGES)


if __name__ == "__main__":
    main()
