"""Adaptive SIFT (paper, section 6): stop fine-tuning before step n if σ_n > 1 / (α n).

Computed from rows of runs that took all steps. Where a run was not scored at the stop, bits per
byte lie on the straight line between the measured steps around it.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import pandas as pd

from benchmarks.language_modeling.results import Results
from benchmarks.language_modeling.tables import count, with_error
from benchmarks.language_modeling.uncertainty_tables import sift_arm
from benchmarks.table import Table, difference, number
from sift_core.errors import InvalidInputError
from sift_core.evaluation.statistics import mean

# Guess: from "nearly all take 50 steps" to "most stop at once" for σ_50 between 0.2 and 0.9.
ALPHAS = (0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class AdaptiveRun:
    """What stopping at one α gives, beside as many steps for every prompt.

    Args:
        alpha: α, greater than 0; the larger, the earlier it stops.
        stops: Steps taken, shape (n,), one a prompt.
        bits_per_byte: At the stop, shape (n,).
        percent: The same in % of the base model.
        fixed_percent: In % of the base model after the mean of `stops` for every prompt,
            shape (n,). That mean is seldom whole; on the straight line as well.
        n_forced: How many took all the steps that there were, not stopped by α.
    """

    alpha: float
    stops: np.ndarray
    bits_per_byte: np.ndarray
    percent: np.ndarray
    fixed_percent: np.ndarray
    n_forced: int


def stop_step(variances: np.ndarray, alpha: float) -> int:
    """Return how many steps are taken before σ_n > 1 / (α n) holds for the next.

    Args:
        variances: σ² after 0, 1, … choices, shape (N + 1,).
        alpha: Greater than 0.

    Returns:
        From 0 to N; N where it never holds.
    """
    n = np.arange(1, len(variances))
    stopped = np.sqrt(np.maximum(variances[1:], 0.0)) * alpha * n > 1
    return int(np.argmax(stopped)) if stopped.any() else len(n)


def adaptive_runs(results: Results) -> list[AdaptiveRun]:
    """Return what stopping the main SIFT arm early gives at each of `ALPHAS`."""
    rows = results.rows_of(sift_arm(results))
    rows = rows[rows["variances"].map(len) > 0]
    if rows.empty:
        raise InvalidInputError("no row of SIFT has variances and a base row")
    return [_run(rows, results.base[rows.index].to_numpy(), alpha) for alpha in ALPHAS]


def adaptive_table(results: Results) -> Table:
    """Return bits per byte against compute for each α, beside a fixed number of steps.

    The paper's figure "early_stopping_details", left. The interval of the difference takes the
    fixed number of steps as given.
    """
    runs = adaptive_runs(results)
    rows = tuple(
        (
            number(run.alpha, 3),
            with_error(mean(run.stops)),
            with_error(mean(run.bits_per_byte), digits=3),
            with_error(mean(run.percent)),
            with_error(mean(run.fixed_percent)),
            difference(mean(run.percent - run.fixed_percent), digits=2),
            count(int((run.stops == 0).sum())),
            count(run.n_forced),
        )
        for run in runs
    )
    return Table(
        title=f"Adaptive SIFT, {results.arms.loc[sift_arm(results), 'label']}",
        heads=("α", "steps", "bits per byte", "% of base", "% fixed", "Δ", "at once", "forced"),
        rows=rows,
        note=f"{runs[0].stops.size} prompts; mean over them, standard error "
        "in round brackets. Stops before step n if σ_n > 1/(α n). % fixed: as many steps for "
        "every prompt as were taken in the mean. Δ: adaptive minus fixed, in points, paired, 90 % "
        "bootstrap interval; below 0 adapting helps. Between measured steps bits per byte are on "
        "a straight line. at once: prompts without a step. forced: prompts that took all steps "
        "there were.",
    )


def stop_table(results: Results) -> Table:
    """Return how many prompts stopped in which range of steps, a line an α.

    The paper's figure "early_stopping_details", right.
    """
    runs = adaptive_runs(results)
    edges = stop_edges(runs)
    return Table(
        title=f"Where Adaptive SIFT stops, {results.arms.loc[sift_arm(results), 'label']}",
        heads=("α", *range_names(edges)),
        rows=tuple(
            (
                number(run.alpha, 3),
                *(count(int(n)) for n in np.histogram(run.stops, bins=edges)[0]),
            )
            for run in runs
        ),
        note="Number of prompts by steps taken.",
    )


def stop_edges(runs: list[AdaptiveRun]) -> list[int]:
    """Return the edges of six ranges of about equal length, and prompts without a step."""
    longest = max(1, max(int(run.stops.max()) for run in runs))
    return sorted({round(longest * i / 6) for i in range(7)} | {0, 1})


def range_names(edges: list[int]) -> list[str]:
    """Return "0", "1–7", … for ranges [edge, next edge); the last one has its end too."""
    lasts = [high - 1 for high in edges[1:-1]] + [edges[-1]]
    pairs = zip([low for low, _ in itertools.pairwise(edges)], lasts, strict=True)
    return [f"{low}–{last}" if last > low else str(low) for low, last in pairs]


def _run(rows: pd.DataFrame, bases: np.ndarray, alpha: float) -> AdaptiveRun:
    last = np.array([steps[-1] for steps in rows["steps"]])
    wanted = np.array([stop_step(variances, alpha) for variances in rows["variances"]])
    stops = np.minimum(wanted, last)
    n_steps = np.array([variances.size - 1 for variances in rows["variances"]])
    bits = _bits_at(rows, stops)
    fixed = _bits_at(rows, np.full(len(rows), stops.mean()))
    return AdaptiveRun(
        alpha=alpha,
        stops=stops,
        bits_per_byte=bits,
        percent=100 * bits / bases,
        fixed_percent=100 * fixed / bases,
        n_forced=int((wanted >= np.minimum(n_steps, last)).sum()),
    )


def _bits_at(rows: pd.DataFrame, steps: np.ndarray) -> np.ndarray:
    curves = zip(steps, rows["steps"], rows["bits_per_byte"], strict=True)
    return np.array([np.interp(step, *curve) for step, *curve in curves])
