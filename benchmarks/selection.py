"""How fast is selection, against the paper's Algorithm 1, pyversity and a Faiss search?

    python -m benchmarks.selection [--quick] [--json FILE]

One thread. Each row is the median over repetitions of one query; ratios are of that run.
Data: unit vectors from a seeded mixture of 200 clusters, so that neighbours are similar as in text.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy loads its BLAS
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import time
from collections.abc import Callable
from pathlib import Path

import faiss
import numpy as np
from pyversity import diversify

from benchmarks.records import write_record
from sift_core import LinearKernel, SIFTSelector

N_SELECT = 50  # the paper's number of steps
PACKAGES = ["numpy", "faiss-cpu", "pyversity", "sift-rerank"]


def algorithm_1(query: np.ndarray, candidates: np.ndarray, n_select: int) -> list[int]:
    """Return the paper's Algorithm 1 as printed: the K × K matrix, updated at each step."""
    noise = 0.01
    points = np.vstack([candidates, query])
    covariance = points @ points.T
    chosen = []
    for _ in range(n_select):
        gains = covariance[-1, :-1] ** 2 / (covariance.diagonal()[:-1] + noise)
        best = int(np.argmax(gains))
        column = covariance[:, best].copy()
        covariance -= np.outer(column, column) / (column[best] + noise)
        chosen.append(best)
    return chosen


def median_ms(function: Callable[[], object], repetitions: int) -> float:
    times = []
    for _ in range(repetitions):
        started = time.perf_counter()
        function()
        times.append(time.perf_counter() - started)
    return float(np.median(times)) * 1000


def collection(n: int, d: int, generator: np.random.Generator) -> np.ndarray:
    centres = generator.normal(size=(200, d))
    rows = centres[generator.integers(0, 200, n)] + generator.normal(size=(n, d))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def measure(*, quick: bool) -> list[dict[str, object]]:
    generator = np.random.default_rng(0)
    faiss.omp_set_num_threads(1)
    repetitions = 5 if quick else 21
    rows: list[dict[str, object]] = []
    for d, n_total in ((384, 20_000 if quick else 100_000), (1024, 20_000)):
        vectors = collection(n_total, d, generator)
        query = vectors[0] + 0.5 * vectors[1]
        query /= np.linalg.norm(query)
        for n_candidates in (200, 1000):
            rows += measure_case(vectors, query, n_candidates, N_SELECT, repetitions)
    return rows


def measure_case(
    vectors: np.ndarray, query: np.ndarray, n_candidates: int, n_select: int, repetitions: int
) -> list[dict[str, object]]:
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    _, ids = index.search(query[None], n_candidates)
    pool = vectors[ids[0]]
    scores = pool @ query
    exact = query.astype(np.float64), pool.astype(np.float64)
    sift = SIFTSelector(kernel=LinearKernel(), noise_variance=0.01, allow_repeats=True)
    calls: dict[str, Callable[[], object]] = {
        "Algorithm 1 of the paper in NumPy": lambda: algorithm_1(*exact, n_select),
        "pyversity MMR": lambda: diversify(pool, scores, n_select, strategy="mmr", diversity=0.5),
        "pyversity DPP": lambda: diversify(pool, scores, n_select, strategy="dpp", diversity=0.5),
        f"Faiss IndexFlatIP search in {len(vectors):,}": lambda: index.search(
            query[None], n_candidates
        ),
    }
    ours = median_ms(lambda: sift.select(query, pool, n_select), repetitions)
    chosen = sift.select(query, pool, n_select).positions.tolist()
    peers = {name: median_ms(call, repetitions) for name, call in calls.items()}
    return [
        {
            "d": vectors.shape[1],
            "n_candidates": n_candidates,
            "n_select": n_select,
            "peer": name,
            "ours_ms": round(ours, 3),
            "peer_ms": round(peer, 3),
            "peer_over_ours": round(peer / ours, 2),
            "same_positions_as_algorithm_1": chosen == algorithm_1(*exact, n_select),
        }
        for name, peer in peers.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="smaller index, fewer repetitions")
    parser.add_argument("--json", type=Path, help="where to write the record")
    arguments = parser.parse_args()
    rows = measure(quick=arguments.quick)
    print(f"{'d':>5} {'K':>5} {'N':>3} {'ours ms':>8} {'peer ms':>8} {'peer/ours':>9}  peer")
    for row in rows:
        print(
            f"{row['d']:>5} {row['n_candidates']:>5} {row['n_select']:>3} {row['ours_ms']:>8.2f} "
            f"{row['peer_ms']:>8.2f} {row['peer_over_ours']:>9.2f}  {row['peer']}"
        )
    agrees = all(row["same_positions_as_algorithm_1"] for row in rows)
    print(f"positions equal to Algorithm 1 in every case: {agrees}")
    if arguments.json:
        write_record(arguments.json, rows=rows, bars=[], packages=PACKAGES)


if __name__ == "__main__":
    main()
