"""Figures of a diagnosis: what repeats, what there is to choose from, what a model gained."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sift_core.errors import MissingDependencyError

try:
    from matplotlib.ticker import MaxNLocator
except ImportError as error:
    raise MissingDependencyError("matplotlib", extra="eval") from error

from sift_core.diagnosis.duplicates import NEAR_DUPLICATE_COSINE, Duplicates
from sift_core.diagnosis.measuring import Diagnosis
from sift_core.diagnosis.pool_measures import N_SELECT, REDUNDANT_COSINE
from sift_core.diagnosis.trial import Trial
from sift_core.diagnosis.verdict import counts_versions, wasted_places
from sift_core.evaluation.analysis.statistics import CONFIDENCE, Estimate
from sift_core.evaluation.figures.marks import error_lengths
from sift_core.evaluation.figures.style import (
    INK,
    MUTED,
    CaptionedFigure,
    drawing,
    legend_outside,
    styles_for,
)
from sift_core.types import AnswerMode

_HEIGHT = 2.6  # inches
_BAR_ALPHA = 0.85
_N_BINS = 40


def places_bars(diagnosis: Diagnosis) -> CaptionedFigure:
    """Return for how many questions so many of ten places repeat another one.

    Args:
        diagnosis: With at least one question.
    """
    by_versions = counts_versions(diagnosis)
    wasted = {
        f"nearest {N_SELECT}": [
            wasted_places(p.nearest, by_versions=by_versions) for p in diagnosis.pools
        ],
        "SIFT": [wasted_places(p.sift, by_versions=by_versions) for p in diagnosis.pools],
    }
    what = "a version of a more relevant one"
    if not by_versions:
        what = f"a repeat: its cosine to an earlier one of the ten is {REDUNDANT_COSINE} or more"
    means = ", ".join(f"{name} {np.mean(counts):.1f}" for name, counts in wasted.items())
    with drawing():
        figure = CaptionedFigure(
            _HEIGHT,
            caption=f"For how many questions so many of {N_SELECT} places are wasted. A place is "
            f"wasted where its chunk is {what}.",
            alt=f"Bar chart of questions by number of wasted places of {N_SELECT}. Means: {means}.",
        )
        axes = figure.subplots()
        for i, (style, (name, counts)) in enumerate(
            zip(styles_for(["nn", "sift"]), wasted.items(), strict=True)
        ):
            heights = np.bincount(counts, minlength=N_SELECT)
            axes.bar(
                np.arange(len(heights)) + 0.4 * (i - 0.5),
                heights,
                width=0.38,
                color=style.color,
                alpha=_BAR_ALPHA,
                hatch="//" if i == 0 else None,
                edgecolor="white",
                linewidth=0,
                label=name,
            )
        axes.set_xticks(range(N_SELECT))
        axes.set_xlabel(f"wasted places of {N_SELECT}")
        axes.set_ylabel("questions")
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(axis="x", visible=False)
        legend_outside(figure, axes)
    return figure


def pools_dots(diagnosis: Diagnosis) -> CaptionedFigure:
    """Return the questions by how many different texts their candidates are.

    Args:
        diagnosis: With at least one question.
    """
    pools = sorted(diagnosis.pools, key=lambda pool: pool.n_contents)
    n_most = max(pool.n_candidates for pool in pools)
    contents = [pool.n_contents for pool in pools]
    numbers = [pool.effective_number for pool in pools]
    with drawing():
        figure = CaptionedFigure(
            _HEIGHT,
            caption="Each mark is a question, from the one with the fewest different texts among "
            "its candidates to the one with the most. Versions of one text count once. Effective "
            "number: to how many chunks with nothing in common the candidates amount.",
            alt=f"Dot plot of different texts and effective number for {len(pools)} questions. "
            f"The texts range from {contents[0]} to {contents[-1]}, {np.mean(contents):.0f} on "
            f"average; the effective number is {np.mean(numbers):.0f} on average.",
        )
        axes = figure.subplots()
        places = np.arange(1, len(pools) + 1)
        axes.axhline(n_most, color=MUTED, linewidth=1, linestyle=(0, (4, 3)), label="candidates")
        axes.plot(places, contents, "o", color="#D55E00", label="different texts")
        axes.plot(
            places, numbers, "s", color="#0072B2", markerfacecolor="white", label="effective number"
        )
        axes.set_ylim(0, 1.08 * n_most)
        axes.set_xlabel("question, poorest first")
        axes.set_ylabel("chunks")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        legend_outside(figure, axes)
    return figure


def copies_histogram(duplicates: Duplicates) -> CaptionedFigure:
    """Return the distribution of each sampled chunk's cosine to the chunk nearest to it."""
    cosines = np.clip(duplicates.cosines, -1.0, 1.0)
    low = min(0.5, float(np.floor(10 * cosines.min()) / 10))
    share = float(np.mean(cosines >= NEAR_DUPLICATE_COSINE))
    with drawing():
        figure = CaptionedFigure(
            _HEIGHT,
            caption=f"Cosine of each of {len(cosines):,} sampled chunks to the other chunk that is "
            f"nearest to it. To the right of the dashed line they are near-copies, or exact ones.",
            alt=f"Histogram of cosines between {cosines.min():.2f} and {cosines.max():.2f}, median "
            f"{np.median(cosines):.2f}; {100 * share:.0f} % are {NEAR_DUPLICATE_COSINE} or more.",
        )
        axes = figure.subplots()
        axes.hist(cosines, bins=_N_BINS, range=(low, 1.0), color="#0072B2", alpha=_BAR_ALPHA)
        axes.axvline(NEAR_DUPLICATE_COSINE, color=INK, linewidth=1, linestyle=(0, (4, 3)))
        axes.set_xlim(low, 1.0)
        axes.set_xlabel("cosine to the nearest other chunk")
        axes.set_ylabel("chunks")
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def trial_differences(trial: Trial) -> CaptionedFigure:
    """Return how many bits per byte reading and fine-tuning save, and one less the other."""
    pairs = (
        ("reading, less the model alone", AnswerMode.CONTEXT, AnswerMode.BASE),
        ("fine-tuning, less the model alone", AnswerMode.FINE_TUNE, AnswerMode.BASE),
        ("fine-tuning, less reading", AnswerMode.FINE_TUNE, AnswerMode.CONTEXT),
    )
    found = [(name, trial.difference(mode, other)) for name, mode, other in pairs]
    with drawing():
        figure = CaptionedFigure(
            1.9,
            caption=f"Differences of bits per byte on the same {len(trial.passages)} held-back "
            f"passages with {CONFIDENCE:.0%} bootstrap intervals; left of 0 the first is better. "
            f"Where the bar crosses 0, a difference is not shown.".replace("%", " %"),
            alt="Dot plot of differences of bits per byte. " + _spoken(found),
        )
        axes = figure.subplots()
        lines = np.arange(len(found))
        axes.axvline(0, color=INK, linewidth=1)
        axes.errorbar(
            [estimate.value for _, estimate in found],
            lines,
            xerr=error_lengths([estimate for _, estimate in found]),
            fmt="o",
            color="#D55E00",
            capsize=3,
        )
        axes.set_yticks(lines, [name for name, _ in found])
        axes.set_ylim(len(found) - 0.5, -0.5)
        axes.set_xlabel("bits per byte")
        axes.grid(axis="y", visible=False)
    return figure


def _spoken(found: Sequence[tuple[str, Estimate]]) -> str:
    said = [
        f"{name}: {estimate.value:+.3f}, from {estimate.low:+.3f} to {estimate.high:+.3f}"
        for name, estimate in found
    ]
    return "; ".join(said) + "."
