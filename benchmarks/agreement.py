"""Does activeft, the paper's library, choose what we choose? Every exception with its cause.

    python -m benchmarks.agreement [--pools N] [--embeddings TEXTS.npy QUERIES.npy] [--json FILE]

Both get the same float32 unit vectors, linear kernel, λ and repeats. activeft runs as its
Retriever runs it (`VTL.select`, float32, candidates shuffled) without the worker process.
Where the lists differ, the cause is found by experiment.
"""

from __future__ import annotations

import argparse
import os

os.environ["OMP_NUM_THREADS"] = "1"  # before NumPy and torch load their libraries
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.agreement_pools import Pool, pools, real_pools
from benchmarks.bars import bar, in_words, load_bars
from benchmarks.records import write_record
from benchmarks.selection_rivals import algorithm_1
from sift_core import SIFTSelector, load_compiled

PACKAGES = ["numpy", "numba", "activeft", "torch", "sift-rerank"]
ACTIVEFT_MINI_BATCH = 1000  # its default; above it, VTL.select chooses from random halves
TIE = 1e-12  # relative difference of exact gains below which float64 cannot tell them apart

SAME = "same"
COPIES = "copies: activeft takes any of equal vectors"
HALVES = "K > 1000: activeft chooses from random halves"
FLOAT32 = "float32: activeft chooses the same in float64"
TIED = "tie: exact gains equal to 1e-12"
THEIRS = "unexplained: activeft's choice gains less"
OURS = "unexplained: our choice gains less"

Select = Callable[..., list[int]]  # (pool, *, in_halves, in_float64) → positions


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


def choose_with_activeft(
    pool: Pool, *, in_halves: bool = True, in_float64: bool = False
) -> list[int]:
    """Return what activeft chooses, or would without its approximation or its rounding.

    `VTL.select` as its Retriever calls it, candidates shuffled, but without the worker process.

    Args:
        pool: What to choose from.
        in_halves: Whether it may choose from random halves, as it does above 1000 candidates.
        in_float64: Whether it computes in float64 on vectors made unit length again.
    """
    import torch
    from activeft.acquisition_functions.vtl import VTL
    from activeft.sift import Dataset

    dtype = torch.float64 if in_float64 else torch.float32
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    torch.manual_seed(0)  # it shuffles
    everything = len(pool.rows) + pool.n_select + 1
    try:
        vtl = VTL(
            target=_rows(pool.query[None], torch, dtype),
            noise_std=pool.noise_variance**0.5,
            num_workers=0,
            mini_batch_size=ACTIVEFT_MINI_BATCH if in_halves else everything,
        )
        with warnings.catch_warnings(), torch.inference_mode():
            warnings.simplefilter("ignore", UserWarning)  # "may be slow"
            data = Dataset(_rows(pool.rows, torch, dtype))
            positions, _ = vtl.select(pool.n_select, None, data, torch.device("cpu"))
    finally:
        torch.set_default_dtype(before)
    return positions.tolist()


def _rows(rows: np.ndarray, torch: Any, dtype: Any) -> Any:
    """Return a tensor; in float64 of unit length again, as float32 had rounded it."""
    tensor = torch.from_numpy(rows.copy()).to(dtype)
    return tensor / tensor.norm(dim=1, keepdim=True) if dtype == torch.float64 else tensor


def first_difference(ours: Sequence[int], theirs: Sequence[int]) -> int | None:
    """Return the first step at which two lists differ, also in length; None if nowhere."""
    for step, (a, b) in enumerate(zip(ours, theirs, strict=False)):
        if a != b:
            return step
    return None if len(ours) == len(theirs) else min(len(ours), len(theirs))


def without_copies(positions: Sequence[int], rows: np.ndarray) -> list[int]:
    """Return the positions with each replaced by the first equal row's."""
    first: dict[bytes, int] = {}
    originals = [first.setdefault(row.tobytes(), i) for i, row in enumerate(rows + 0.0)]
    return [originals[position] for position in positions]


def exact_gain(pool: Pool, chosen: Sequence[int], position: int) -> float:
    """Return the dense float64 gain of one choice after others: k_n(q,x)² / (k_n(x,x) + λ)."""
    rows = pool.rows.astype(np.float64)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    query = pool.query.astype(np.float64)
    query /= np.linalg.norm(query)
    before, x = rows[list(chosen)], rows[position]
    prior = before @ before.T + pool.noise_variance * np.eye(len(before))
    weights = np.linalg.solve(prior, before @ x)
    covariance = query @ x - (before @ query) @ weights
    variance = x @ x - (before @ x) @ weights
    return float(covariance**2 / (variance + pool.noise_variance))


def cause(pool: Pool, ours: Sequence[int], theirs: Sequence[int], activeft: Select) -> str:
    """Return why two lists differ, or `SAME`.

    Copies count as one vector; then activeft is asked again without its random halves, then in
    float64; what remains is decided by the exact gains at the first difference.
    """
    if list(ours) == list(theirs):
        return SAME
    mine = without_copies(ours, pool.rows)
    if mine == without_copies(theirs, pool.rows):
        return COPIES
    if len(pool.rows) > ACTIVEFT_MINI_BATCH and mine == _again(pool, activeft, in_float64=False):
        return HALVES
    if mine == _again(pool, activeft, in_float64=True):
        return FLOAT32
    gap = gap_at_first_difference(pool, ours, theirs)
    if abs(gap) <= TIE:
        return TIED
    return THEIRS if gap > 0 else OURS


def _again(pool: Pool, activeft: Select, *, in_float64: bool) -> list[int]:
    positions = activeft(pool, in_halves=False, in_float64=in_float64)
    return without_copies(positions, pool.rows)


def gap_at_first_difference(pool: Pool, ours: Sequence[int], theirs: Sequence[int]) -> float:
    """Return how much more our choice gains, relative to the larger, where lists part; else 0."""
    mine, others = (without_copies(positions, pool.rows) for positions in (ours, theirs))
    step = first_difference(mine, others)
    if step is None or step >= min(len(mine), len(others)):
        return 0.0
    a, b = (exact_gain(pool, mine[:step], positions[step]) for positions in (mine, others))
    return (a - b) / max(a, b)


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
    load_compiled()  # what a process that selects a lot runs
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
