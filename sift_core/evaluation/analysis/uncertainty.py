"""Whether σ_n, the uncertainty at the prompt after n choices, predicts bits per byte.

Of one fine-tuned SIFT arm (paper, section 6): n is the number of chunks learned, σ_n the square
root of the variance that the selector computed (σ_0 = 1), σ̂_n = σ_n · bpb_0 with bpb_0 the base
model's bits per byte. σ_n knows nothing of the language model; σ̂_n needs the answer's bpb_0 and
cannot be had at test time. bpb_0 alone is shown as a control, since bpb_n is near to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from sift_core.errors import InvalidInputError
from sift_core.evaluation.analysis.bootstrap import Floats, Ints
from sift_core.evaluation.analysis.comparing import main_by_selector, not_measured
from sift_core.evaluation.analysis.result_row import ArmLike, arm_label, arm_record
from sift_core.evaluation.analysis.rows import ArmRecord, Results
from sift_core.evaluation.analysis.statistics import (
    OUTLIER_SHARE,
    Correlation,
    average_ranks,
    grouped_mean,
    pearson,
    spearman,
)
from sift_core.evaluation.analysis.table import (
    Cell,
    Table,
    coefficient,
    count,
    number,
    with_error,
    word,
)
from sift_core.evaluation.statistics import Estimate

_LEAST = 1e-9  # σ below this is rounding; it would have no logarithm


@dataclass(frozen=True, kw_only=True, eq=False)
class UncertaintyPoints:
    """One point a prompt and measured step; all arrays have shape (m,).

    Args:
        prompt_ids: The prompt of every point.
        domains: Its domain.
        steps: n, chunks learned.
        deviations: σ_n, at least 0.
        base_bits_per_byte: bpb_0, greater than 0.
        bits_per_byte: bpb_n.
        is_last: Whether it is the prompt's last measured step.
    """

    prompt_ids: tuple[str, ...]
    domains: tuple[str, ...]
    steps: Ints
    deviations: Floats
    base_bits_per_byte: Floats
    bits_per_byte: Floats
    is_last: np.typing.NDArray[np.bool_]

    @property
    def scaled_deviations(self) -> Floats:
        """σ̂_n = σ_n · bpb_0, in bits per byte."""
        return self.deviations * self.base_bits_per_byte

    @property
    def percent(self) -> Floats:
        """Bits per byte in % of the base model's; lower is a larger gain."""
        return 100 * self.bits_per_byte / self.base_bits_per_byte

    def last(self) -> UncertaintyPoints:
        """Return the last point of every prompt."""
        kept = np.flatnonzero(self.is_last)
        return UncertaintyPoints(
            prompt_ids=tuple(self.prompt_ids[i] for i in kept),
            domains=tuple(self.domains[i] for i in kept),
            steps=self.steps[kept],
            deviations=self.deviations[kept],
            base_bits_per_byte=self.base_bits_per_byte[kept],
            bits_per_byte=self.bits_per_byte[kept],
            is_last=self.is_last[kept],
        )


@dataclass(frozen=True, kw_only=True)
class ReliabilityBin:
    """Points of similar uncertainty.

    Args:
        low: Least uncertainty in the bin.
        high: Greatest.
        uncertainty: Mean uncertainty.
        n_points: How many points, of all prompts and steps.
        bits_per_byte: Their mean; its interval is over prompts.
    """

    low: float
    high: float
    uncertainty: float
    n_points: int
    bits_per_byte: Estimate


def sift_arm(results: Results) -> ArmRecord:
    """Return the fine-tuned SIFT arm at the main settings.

    Raises:
        InvalidInputError: If there is none.
    """
    arm = main_by_selector(results).get("SIFT")
    if arm is None:
        raise not_measured(results, "no fine-tuned SIFT arm at the main settings")
    return arm


def uncertainty_points(results: Results, arm: ArmLike | None = None) -> UncertaintyPoints:
    """Return σ_n and bits per byte of every prompt and measured step of a fine-tuned arm.

    Args:
        results: Of one experiment.
        arm: A fine-tuned arm that learns in order of choice; None for `sift_arm`.

    Raises:
        InvalidInputError: If nobody measured the arm, it learns in another order or is not
            fine-tuned, its rows have no variances, or there is no base row.
    """
    arm = learning_arm(results, arm)
    base = results.base()
    prompt_ids: list[str] = []
    parts = []
    for key, row in results.rows_of(arm).items():
        measured = row.steps < row.variances.size
        if key not in base or not measured.any():
            continue
        n = row.steps[measured]
        origin = base[key].last_bits_per_byte
        if not origin > 0:
            raise InvalidInputError(f"0 bits per byte of the base model for the prompt {key}")
        sigma = np.sqrt(np.maximum(row.variances[n], 0.0))
        bits = row.bits_per_byte[measured]
        parts.append(np.stack([n, sigma, np.full(n.size, origin), bits, n == n[-1]]))
        prompt_ids += [key] * n.size
    if not parts:
        raise InvalidInputError(
            f"no row of {arm_label(arm)} has `variances` and a base row; `sift eval` writes both"
        )
    steps, deviations, origins, bits, is_last = np.concatenate(parts, axis=1)
    return UncertaintyPoints(
        prompt_ids=tuple(prompt_ids),
        domains=tuple(results.prompts[key].domain for key in prompt_ids),
        steps=steps.astype(np.int64),
        deviations=deviations,
        base_bits_per_byte=origins,
        bits_per_byte=bits,
        is_last=is_last.astype(np.bool_),
    )


def learning_arm(results: Results, arm: ArmLike | None) -> ArmRecord:
    """Return the arm's mapping; None stands for `sift_arm`.

    Raises:
        InvalidInputError: If it is not fine-tuned in order of choice, so that σ_n does not
            belong to the first n chunks learned.
    """
    record = sift_arm(results) if arm is None else arm_record(arm)
    if record.get("mode") != "fine_tune" or record.get("order") not in (None, "chosen"):
        raise InvalidInputError(
            f"σ_n belongs to fine-tuning in order of choice, got mode {record.get('mode')!r} and "
            f"order {record.get('order')!r}"
        )
    return record


def correlation_table(
    results: Results, arm: ArmLike | None = None, *, n_resamples: int = 1_000
) -> Table:
    """Return how σ_n and σ̂_n, and their logarithms, go with bits per byte.

    The paper's table "uncertainty_estimation", and beside it the same within domains and with
    the gain.

    Args:
        results: Of one experiment.
        arm: As in `uncertainty_points`.
        n_resamples: Of the bootstrap over prompts; 0 leaves the intervals out.

    Raises:
        InvalidInputError: As `uncertainty_points`, or for fewer than 3 prompts.
    """
    points = uncertainty_points(results, arm)
    last = points.last()
    if len(last.prompt_ids) < 3:
        raise InvalidInputError(
            f"a correlation over prompts needs at least 3, got {len(last.prompt_ids)}"
        )
    rows = [
        row
        for name in _MEASURES
        for when, those in (("all", points), ("last", last))
        if (name, when) != ("n", "last")  # all prompts end at about the same n
        for row in _correlation_rows(name, when, those, n_resamples)
    ]
    return Table(
        title=f"Uncertainty and bits per byte, {arm_label(learning_arm(results, arm))}",
        heads=("", "points", "Spearman", "Pearson", "within domain", "with % of base"),
        rows=tuple(rows),
        note=f"{len(last.prompt_ids)} prompts; 90 % bootstrap intervals over prompts. Spearman, "
        f"Pearson: with bits per byte; Pearson without the {OUTLIER_SHARE:.2%} lowest and highest "
        "of the first column. within domain: correlation of ranks taken inside each domain. with "
        "% of base: Spearman with bits per byte in % of the base model's; positive where less "
        "uncertainty goes with a larger gain. all: all measured steps, over which σ_n and bits "
        "per byte both fall with n; last: the last one. bpb_0 and n are controls. The domain "
        "alone explains "
        f"{_share_of_domains(last):.0%} of the variance of bits per byte at the last step "
        "(adjusted for their number).",
    )


def reliability_bins(
    uncertainties: Floats,
    bits_per_byte: Floats,
    prompt_ids: Sequence[str],
    *,
    n_bins: int = 10,
    leave_out: float = OUTLIER_SHARE,
) -> list[ReliabilityBin]:
    """Return bins of equal count over the uncertainty, lowest first.

    Args:
        uncertainties: Shape (m,), σ_n or σ̂_n, for instance `points.scaled_deviations`.
        bits_per_byte: Shape (m,).
        prompt_ids: The prompt of every point.
        n_bins: At least 1; fewer come back where there are fewer points.
        leave_out: Share of points left out at each end, as in the paper; in [0, 0.5).

    Raises:
        InvalidInputError: If a setting is out of range or there is no point.
    """
    if n_bins < 1 or not 0 <= leave_out < 0.5 or uncertainties.size == 0:
        raise InvalidInputError(
            "`n_bins` must be at least 1, `leave_out` in [0, 0.5) and there must be points, got "
            f"{n_bins}, {leave_out} and {uncertainties.size} points"
        )
    cut = int(leave_out * uncertainties.size)
    order = np.argsort(uncertainties, kind="stable")[cut : uncertainties.size - cut]
    return [
        ReliabilityBin(
            low=float(uncertainties[those[0]]),
            high=float(uncertainties[those[-1]]),
            uncertainty=float(uncertainties[those].mean()),
            n_points=those.size,
            bits_per_byte=grouped_mean(bits_per_byte[those], [prompt_ids[i] for i in those]),
        )
        for those in np.array_split(order, n_bins)
        if those.size
    ]


def reliability_table(results: Results, arm: ArmLike | None = None, *, n_bins: int = 10) -> Table:
    """Return the reliability diagram of σ̂_n as a table; arguments as above."""
    points = uncertainty_points(results, arm)
    bins = reliability_bins(
        points.scaled_deviations, points.bits_per_byte, points.prompt_ids, n_bins=n_bins
    )
    rows = tuple(
        (
            word(f"{one.low:.2f}–{one.high:.2f}"),
            count(one.n_points),
            count(one.bits_per_byte.n),
            number(one.uncertainty, 3),
            with_error(one.bits_per_byte, digits=3),
        )
        for one in bins
    )
    return Table(
        title=f"Reliability of σ̂_n, {arm_label(learning_arm(results, arm))}",
        heads=("σ̂_n", "points", "prompts", "mean σ̂_n", "bits per byte"),
        rows=rows,
        note="Bins of equal count over all prompts and measured steps; the standard error in "
        "brackets is over prompts.",
    )


_MEASURES: dict[str, Callable[[UncertaintyPoints], Floats]] = {
    "σ_n": lambda points: points.deviations,
    "σ̂_n": lambda points: points.scaled_deviations,
    "bpb_0": lambda points: points.base_bits_per_byte,
    "n": lambda points: points.steps.astype(np.float64),
}
_LOGARITHMS = ("σ_n", "σ̂_n")


def _correlation_rows(
    name: str, when: str, points: UncertaintyPoints, n_resamples: int
) -> list[tuple[Cell, ...]]:
    """The line of a measure and, where it has one, of its logarithm, which has the same ranks."""
    x = _MEASURES[name](points)
    overall, inside, gain = _rank_correlations(x, points, n_resamples)
    rows = []
    for label, side in ((name, x), *([(f"log {name}", _log(x))] if name in _LOGARITHMS else [])):
        linear = pearson(
            side,
            points.bits_per_byte,
            prompts=points.prompt_ids,
            leave_out=OUTLIER_SHARE,
            n_resamples=n_resamples,
        )
        cells = (coefficient(correlation) for correlation in (overall, linear, inside, gain))
        rows.append((word(f"{label}, {when}"), count(x.size), *cells))
    return rows


def _log(values: Floats) -> Floats:
    return np.log(np.maximum(values, _LEAST))


def _rank_correlations(x: Floats, points: UncertaintyPoints, n_resamples: int) -> list[Correlation]:
    """With bits per byte, the same inside domains, and with bits per byte in % of base."""
    ids, bits = points.prompt_ids, points.bits_per_byte
    ranks = [_centred_ranks(side, points.domains) for side in (x, bits)]
    return [
        spearman(x, bits, prompts=ids, n_resamples=n_resamples),
        pearson(ranks[0], ranks[1], prompts=ids, n_resamples=n_resamples),
        spearman(x, points.percent, prompts=ids, n_resamples=n_resamples),
    ]


def _centred_ranks(values: Floats, domains: Sequence[str]) -> Floats:
    """Ranks inside each domain, from -1/2 to 1/2 around 0."""
    ranks = np.empty(values.size)
    of = np.array(domains)
    for domain in dict.fromkeys(domains):
        own = np.flatnonzero(of == domain)
        ranks[own] = (average_ranks(values[own]) - (own.size + 1) / 2) / own.size
    return ranks


def _share_of_domains(points: UncertaintyPoints) -> float:
    """Share of the variance of bits per byte between domains (ε²), at least 0.

    η², which does not count the domains, is .5 for pairs of prompts of domains that do not matter.
    0 where it cannot be told: every prompt has a domain of its own, or all bits are the same.
    """
    bits, of = points.bits_per_byte, np.array(points.domains)
    means = {domain: bits[of == domain].mean() for domain in set(points.domains)}
    expected = np.array([means[domain] for domain in points.domains])
    total = float(((bits - bits.mean()) ** 2).sum())
    n_free = bits.size - len(means)
    if not total > 0 or not n_free:
        return 0.0
    inside = float(((bits - expected) ** 2).sum())
    return max(0.0, 1 - (inside / n_free) / (total / (bits.size - 1)))
