"""Whether σ_n, the uncertainty at the prompt after n choices, predicts bits per byte, and stops.

Of one fine-tuned SIFT arm (paper, section 6): n is the number of chunks learned, σ_n the square
root of the variance that the selector computed (σ_0 = 1), σ̂_n = σ_n · bpb_0 with bpb_0 the base
model's bits per byte. σ_n knows nothing of the language model; σ̂_n needs the answer's bpb_0 and
cannot be had at test time. bpb_0 alone is shown as a control, since bpb_n is near to it.

Adaptive SIFT stops fine-tuning before step n if σ_n > 1 / (α n). That is computed from runs that
took all steps. Where a run was not scored at the stop, bits per byte lie on the straight line
between the measured steps around it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from benchmarks.language_modeling.results import Results
from benchmarks.language_modeling.statistics import OUTLIER_SHARE, pearson, spearman
from benchmarks.language_modeling.tables import count, with_error
from benchmarks.table import Cell, Table, difference, number, with_interval, word
from sift_core.errors import InvalidInputError
from sift_core.evaluation.statistics import mean

_LEAST = 1e-9  # σ below this is rounding; it would have no logarithm
# Guess: from "nearly all take 50 steps" to "most stop at once" for σ_50 between 0.2 and 0.9.
ALPHAS = (0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0)


def sift_arm(results: Results) -> int:
    """Return the fine-tuned SIFT arm at the main settings."""
    main = results.main_arms()
    if "SIFT" not in main:
        raise InvalidInputError("no fine-tuned SIFT arm at the main settings")
    return main["SIFT"]


def uncertainty_points(results: Results) -> pd.DataFrame:
    """Return one row a prompt and measured step of the main SIFT arm.

    Columns: prompt, domain, n, σ_n, σ̂_n, bpb_0, bits (bpb_n), percent (of the base model), and
    is_last, whether it is the prompt's last measured step.
    """
    rows = results.rows_of(sift_arm(results))
    parts = []
    for prompt, row in rows.iterrows():
        measured = row["steps"] < row["variances"].size
        n = row["steps"][measured]
        sigma = np.sqrt(np.maximum(row["variances"][n], 0.0))
        bits = row["bits_per_byte"][measured]
        parts.append(
            pd.DataFrame({"prompt": prompt, "n": n, "σ_n": sigma, "bits": bits}).assign(
                is_last=n == n[-1] if n.size else False
            )
        )
    points = pd.concat(parts, ignore_index=True)
    if points.empty:
        raise InvalidInputError("no row of SIFT has variances and a base row")
    points["domain"] = points["prompt"].map(results.prompts["domain"])
    points["bpb_0"] = points["prompt"].map(results.base)
    points["σ̂_n"] = points["σ_n"] * points["bpb_0"]
    points["percent"] = 100 * points["bits"] / points["bpb_0"]
    return points


def correlation_table(results: Results) -> Table:
    """Return how σ_n and σ̂_n, and their logarithms, go with bits per byte.

    The paper's table "uncertainty_estimation", and beside it the same within domains and with
    the gain.
    """
    points = uncertainty_points(results)
    last = points[points["is_last"]]
    if len(last) < 3:
        raise InvalidInputError(f"a correlation over prompts needs at least 3, got {len(last)}")
    rows = [
        row
        for name in ("σ_n", "σ̂_n", "bpb_0", "n")
        for when, those in (("all", points), ("last", last))
        if (name, when) != ("n", "last")  # all prompts end at about the same n
        for row in _correlation_rows(name, when, those)
    ]
    return Table(
        title=f"Uncertainty and bits per byte, {results.arms.loc[sift_arm(results), 'label']}",
        heads=("", "points", "Spearman", "Pearson", "within domain", "with % of base"),
        rows=tuple(rows),
        note=f"{len(last)} prompts; 90 % bootstrap intervals over prompts. Spearman, "
        f"Pearson: with bits per byte; Pearson without the {OUTLIER_SHARE:.2%} lowest and highest "
        "of the first column. within domain: correlation of ranks taken inside each domain. with "
        "% of base: Spearman with bits per byte in % of the base model's; positive where less "
        "uncertainty goes with a larger gain. all: all measured steps, over which σ_n and bits "
        "per byte both fall with n; last: the last one. bpb_0 and n are controls.",
    )


def _correlation_rows(name: str, when: str, points: pd.DataFrame) -> list[tuple[Cell, ...]]:
    """Return the line of a measure and, where it has one, of its logarithm: the same ranks."""
    x, bits = points[name].to_numpy(dtype=float), points["bits"].to_numpy()
    prompts = points["prompt"].to_numpy()
    ranks = points.groupby("domain")[[name, "bits"]].transform(_centred_ranks)
    overall = spearman(x, bits, prompts)
    inside = pearson(ranks[name].to_numpy(), ranks["bits"].to_numpy(), prompts)
    gain = spearman(x, points["percent"].to_numpy(), prompts)
    sides = {name: x}
    if name in ("σ_n", "σ̂_n"):
        sides[f"log {name}"] = np.log(np.maximum(x, _LEAST))
    rows = []
    for label, side in sides.items():
        linear = pearson(side, bits, prompts, OUTLIER_SHARE)
        cells = (with_interval(one, digits=2) for one in (overall, linear, inside, gain))
        rows.append((word(f"{label}, {when}"), count(len(points)), *cells))
    return rows


def _centred_ranks(values: pd.Series) -> np.ndarray:
    """Return ranks from -1/2 to 1/2 around 0."""
    return (rankdata(values) - (values.size + 1) / 2) / values.size


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
