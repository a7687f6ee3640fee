"""Adaptive SIFT (paper, section 6): stop fine-tuning before step n if σ_n > 1 / (α n).

Computed from rows of runs that took all steps. Where a run was not scored at the stop, bits per
byte lie on the straight line between the measured steps around it.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sift_core.errors import InvalidInputError
from sift_core.evaluation.analysis.bootstrap import Floats, Ints
from sift_core.evaluation.analysis.result_row import ArmLike, ResultRow, arm_label
from sift_core.evaluation.analysis.rows import Results
from sift_core.evaluation.analysis.statistics import mean
from sift_core.evaluation.analysis.table import Table, count, difference, number, with_error
from sift_core.evaluation.analysis.uncertainty import learning_arm
from sift_core.evaluation.statistics import Estimate

# Guess: from "nearly all take 50 steps" to "most stop at once" for σ_50 between 0.2 and 0.9.
ALPHAS = (0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class AdaptiveRun:
    """What stopping at one α gives, beside as many steps for every prompt.

    Args:
        alpha: α, greater than 0; the larger, the earlier it stops.
        prompt_ids: The n prompts.
        stops: Steps taken, shape (n,).
        bits_per_byte: At the stop, shape (n,).
        percent: The same in % of the base model.
        fixed_percent: In % of the base model after the mean of `stops` for every prompt,
            shape (n,). That mean is seldom whole; on the straight line as well.
        n_forced: How many took all the steps that there were, not stopped by α.
    """

    alpha: float
    prompt_ids: tuple[str, ...]
    stops: Ints
    bits_per_byte: Floats
    percent: Floats
    fixed_percent: Floats
    n_forced: int

    @property
    def mean_steps(self) -> Estimate:
        """Steps taken, the compute."""
        return mean(self.stops)


def stop_step(variances: Floats, alpha: float) -> int:
    """Return how many steps are taken before σ_n > 1 / (α n) holds for the next.

    Args:
        variances: σ² after 0, 1, … choices, shape (N + 1,).
        alpha: Greater than 0.

    Returns:
        From 0 to N; N where it never holds.

    Raises:
        InvalidInputError: If `alpha` is not greater than 0 or there is no variance.
    """
    if not alpha > 0:
        raise InvalidInputError(f"`alpha` must be > 0, got {alpha}")
    if len(variances) == 0:
        raise InvalidInputError("`variances` must have at least the prior, got none")
    n = np.arange(1, len(variances))
    stopped = np.sqrt(np.maximum(variances[1:], 0.0)) * alpha * n > 1
    return int(np.argmax(stopped)) if stopped.any() else len(n)


def adaptive_runs(
    results: Results, arm: ArmLike | None = None, *, alphas: Sequence[float] = ALPHAS
) -> list[AdaptiveRun]:
    """Return what stopping early gives at each α.

    Args:
        results: Of one experiment.
        arm: A fine-tuned arm that learns in order of choice; None for the main SIFT arm.
        alphas: Each greater than 0.

    Raises:
        InvalidInputError: If nobody measured the arm, it cannot be used (`learning_arm`), no
            row has variances and a base row, or an α is out of range.
    """
    arm = learning_arm(results, arm)
    percents = results.percent_of_base(arm)
    rows = {
        key: row
        for key, row in results.rows_of(arm).items()
        if key in percents and row.variances.size
    }
    if not rows:
        raise InvalidInputError(
            f"no row of {arm_label(arm)} has `variances` and a base row; `sift eval` writes both"
        )
    bases = np.array([rows[key].last_bits_per_byte * 100 / percents[key] for key in rows])
    return [_run(rows, bases, alpha) for alpha in alphas]


def stop_histogram(run: AdaptiveRun, edges: Sequence[int]) -> Ints:
    """Return how many prompts stopped in each interval [edge, next edge), shape (len - 1,).

    Args:
        run: One α.
        edges: Increasing numbers of steps, at least 2; the last interval has its end too.

    Raises:
        InvalidInputError: If there are fewer than 2 edges or they do not increase.
    """
    _pairs(edges)
    return np.histogram(run.stops, bins=np.asarray(edges))[0].astype(np.int64)


def adaptive_table(
    results: Results, arm: ArmLike | None = None, *, alphas: Sequence[float] = ALPHAS
) -> Table:
    """Return bits per byte against compute for each α, beside a fixed number of steps.

    The paper's figure "early_stopping_details", left. Arguments and errors as `adaptive_runs`.
    The interval of the difference takes the fixed number of steps as given.
    """
    runs = adaptive_runs(results, arm, alphas=alphas)
    rows = tuple(
        (
            number(run.alpha, 3),
            with_error(run.mean_steps),
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
        title=f"Adaptive SIFT, {arm_label(learning_arm(results, arm))}",
        heads=("α", "steps", "bits per byte", "% of base", "% fixed", "Δ", "at once", "forced"),
        rows=rows,
        note=f"{len(runs[0].prompt_ids) if runs else 0} prompts; mean over them, standard error "
        "in round brackets. Stops before step n if σ_n > 1/(α n). % fixed: as many steps for "
        "every prompt as were taken in the mean. Δ: adaptive minus fixed, in points, paired, 90 % "
        "bootstrap interval; below 0 adapting helps. Between measured steps bits per byte are on "
        "a straight line. at once: prompts without a step. forced: prompts that took all steps "
        "there were.",
    )


def stop_table(
    results: Results,
    arm: ArmLike | None = None,
    *,
    alphas: Sequence[float] = ALPHAS,
    edges: Sequence[int] | None = None,
) -> Table:
    """Return how many prompts stopped in which range of steps, a line an α.

    The paper's figure "early_stopping_details", right.

    Args:
        results: As in `adaptive_runs`.
        arm: As in `adaptive_runs`.
        alphas: As in `adaptive_runs`.
        edges: As in `stop_histogram`; None for six ranges of about equal length.

    Raises:
        InvalidInputError: As `adaptive_runs` and `stop_histogram`.
    """
    runs = adaptive_runs(results, arm, alphas=alphas)
    if edges is None:
        longest = max((int(run.stops.max()) for run in runs), default=1)
        edges = sorted({round(longest * i / 6) for i in range(7)} | {0, 1})
    heads = [f"{low}–{high - 1}" if high - low > 1 else str(low) for low, high in _pairs(edges)]
    heads[-1] = f"{edges[-2]}–{edges[-1]}"
    return Table(
        title=f"Where Adaptive SIFT stops, {arm_label(learning_arm(results, arm))}",
        heads=("α", *heads),
        rows=tuple(
            (number(run.alpha, 3), *(count(int(n)) for n in stop_histogram(run, edges)))
            for run in runs
        ),
        note="Number of prompts by steps taken.",
    )


def _pairs(edges: Sequence[int]) -> list[tuple[int, int]]:
    pairs = list(itertools.pairwise(edges))
    if not pairs or any(high <= low for low, high in pairs):
        raise InvalidInputError(f"`edges` must be 2 or more and increase, got {list(edges)}")
    return pairs


def _run(rows: Mapping[str, ResultRow], bases: Floats, alpha: float) -> AdaptiveRun:
    last = np.array([int(row.steps[-1]) for row in rows.values()])
    wanted = np.array([stop_step(row.variances, alpha) for row in rows.values()])
    stops = np.minimum(wanted, last)
    n_steps = np.array([row.variances.size - 1 for row in rows.values()])
    bits = _bits_at(rows, stops)
    compute = float(stops.mean())
    return AdaptiveRun(
        alpha=alpha,
        prompt_ids=tuple(rows),
        stops=stops,
        bits_per_byte=bits,
        percent=100 * bits / bases,
        fixed_percent=100 * _bits_at(rows, np.full(len(rows), compute)) / bases,
        n_forced=int((wanted >= np.minimum(n_steps, last)).sum()),
    )


def _bits_at(rows: Mapping[str, ResultRow], steps: Ints | Floats) -> Floats:
    pairs = zip(rows.values(), steps.tolist(), strict=True)
    return np.array([row.bits_per_byte_at(step) for row, step in pairs])
