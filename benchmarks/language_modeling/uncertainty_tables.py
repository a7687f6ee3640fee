"""Whether σ_n, the uncertainty at the prompt after n choices, predicts bits per byte.

Of one fine-tuned SIFT arm (paper, section 6): n is the number of chunks learned, σ_n the square
root of the variance that the selector computed (σ_0 = 1), σ̂_n = σ_n · bpb_0 with bpb_0 the base
model's bits per byte. σ_n knows nothing of the language model; σ̂_n needs the answer's bpb_0 and
cannot be had at test time. bpb_0 alone is shown as a control, since bpb_n is near to it.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from benchmarks.language_modeling.results import Results
from benchmarks.language_modeling.statistics import (
    OUTLIER_SHARE,
    grouped_mean,
    pearson,
    spearman,
    without_ends,
)
from benchmarks.language_modeling.tables import count, with_error
from benchmarks.table import Cell, Table, number, with_interval, word
from sift_core.errors import InvalidInputError

N_BINS = 10
_LEAST = 1e-9  # σ below this is rounding; it would have no logarithm


def sift_arm(results: Results) -> int:
    """Return the fine-tuned SIFT arm at the main settings."""
    main = results.main_arms()
    if "SIFT" not in main:
        raise InvalidInputError("no fine-tuned SIFT arm at the main settings")
    arm = main["SIFT"]
    if results.arms.loc[arm, "order"] != "chosen":
        raise InvalidInputError("σ_n belongs to fine-tuning in order of choice")
    return arm


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
        "per byte both fall with n; last: the last one. bpb_0 and n are controls. The domain "
        f"alone explains {_share_of_domains(last):.0%} of the variance of bits per byte at the "
        "last step (adjusted for their number).",
    )


def reliability_table(results: Results) -> Table:
    """Return mean bits per byte in bins of equal count over σ̂_n, lowest first."""
    points = uncertainty_points(results)
    kept = without_ends(points["σ̂_n"].to_numpy())
    ordered = points.iloc[kept].sort_values("σ̂_n", kind="stable")
    rows = []
    for those in np.array_split(np.arange(len(ordered)), N_BINS):
        own = ordered.iloc[those]
        if own.empty:
            continue
        bits = grouped_mean(own["bits"].to_numpy(), own["prompt"].to_numpy())
        sigma = own["σ̂_n"]
        rows.append(
            (
                word(f"{sigma.iloc[0]:.2f}–{sigma.iloc[-1]:.2f}"),
                count(len(own)),
                count(bits.n),
                number(sigma.mean(), 3),
                with_error(bits, digits=3),
            )
        )
    return Table(
        title=f"Reliability of σ̂_n, {results.arms.loc[sift_arm(results), 'label']}",
        heads=("σ̂_n", "points", "prompts", "mean σ̂_n", "bits per byte"),
        rows=tuple(rows),
        note="Bins of equal count over all prompts and measured steps; the standard error in "
        "brackets is over prompts.",
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


def _share_of_domains(points: pd.DataFrame) -> float:
    """Return the share of the variance of bits per byte between domains (ε²), at least 0.

    η², which does not count the domains, is .5 for pairs of prompts of domains that do not
    matter. 0 where every prompt has a domain of its own, or all bits are the same.
    """
    bits = points["bits"]
    inside = ((bits - points.groupby("domain")["bits"].transform("mean")) ** 2).sum()
    total = ((bits - bits.mean()) ** 2).sum()
    n_free = bits.size - points["domain"].nunique()
    if not total > 0 or not n_free:
        return 0.0
    return max(0.0, 1 - (inside / n_free) / (total / (bits.size - 1)))
