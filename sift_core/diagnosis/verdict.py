"""What SIFT would do for a collection, by stated rules.

Every threshold is a constant here that says where it comes from; `RULES` states them for a
reader of the report.
"""

from __future__ import annotations

from enum import Enum

from sift_core.diagnosis.measuring import Diagnosis
from sift_core.diagnosis.pool_measures import N_SELECT, PoolMeasures, TopTen
from sift_core.evaluation.analysis.statistics import Estimate
from sift_core.selection.near_duplicates import FEWEST_TO_READ
from sift_core.sources.oversampling import CONTENTS_A_CHOICE, LARGEST_SHARE

# Of ten places, so many must come free for SIFT to be worth its few milliseconds. Guess; what a
# free place is worth was measured, see `MEASURED_GAIN`.
PLACES_WORTH_FREEING = 1.0

# Candidates with fewer contents make `OversamplingSource` fetch again (decision 0008, measured), or
# with less than this share of them.
FEW_CONTENTS = CONTENTS_A_CHOICE * N_SELECT
FEW_OF_FEW = LARGEST_SHARE

SHARE_OF_POOR_POOLS = 0.1  # of the questions, from which on fetching more is advised. Guess.
SHARE_OF_COPIES = 0.1  # of the chunks, from which on indexing fewer of them is advised. Guess.

# Of two candidates of one question. From here on the cosine of 0.8 is nothing special for an
# embedding model: unrelated chunks have .1 for one and .7 for another (decision 0006). Guess
# between them; places are then counted by versions, which are read from the pool.
HIGH_MEAN_COSINE = 0.6

MIN_EXPLAINED = 0.25  # of σ² at a question, as in `VariancePolicy`: between off and on topic


class Verdict(str, Enum):
    """What SIFT would do for the collection."""

    HELPS = "helps"
    """It frees places that nearest neighbours waste."""
    NOT_NEEDED = "not_needed"
    """Nearest neighbours waste none."""
    FEW_CONTENTS = "few_contents"
    """Places are wasted, and too few different texts are stored or fetched to fill them."""
    LITTLE = "little"
    """Places are wasted, and it frees few of them."""
    UNCLEAR = "unclear"
    """Too few questions were asked to tell."""
    TOO_SMALL = "too_small"
    """The store has hardly more chunks than a prompt takes."""


RULES = (
    (Verdict.TOO_SMALL, "Too small", f"the store has fewer than {FEWEST_TO_READ} chunks"),
    (
        Verdict.HELPS,
        "Use SIFT",
        f"the whole interval of the places that SIFT frees is at or above "
        f"{PLACES_WORTH_FREEING:g} of {N_SELECT}",
    ),
    (
        Verdict.NOT_NEEDED,
        "Not needed",
        f"the whole interval of the places that nearest neighbours waste is below "
        f"{PLACES_WORTH_FREEING:g} of {N_SELECT}",
    ),
    (
        Verdict.FEW_CONTENTS,
        "Store or fetch more that is different",
        f"{SHARE_OF_POOR_POOLS:.0%} of the questions or more have fewer than {FEW_CONTENTS} "
        f"different texts among their candidates, or less than {FEW_OF_FEW:.0%} of these",
    ),
    (
        Verdict.LITTLE,
        "Changes little",
        f"the whole interval of the places that SIFT frees is below {PLACES_WORTH_FREEING:g} of "
        f"{N_SELECT}",
    ),
    (Verdict.UNCLEAR, "No clear answer", "none of these"),
)
"""Verdict, its name and its rule, in the order in which they are tried; the first one counts."""


def verdict_of(diagnosis: Diagnosis) -> Verdict:
    """Return the first of `RULES` that holds."""
    if diagnosis.n_stored < FEWEST_TO_READ:
        return Verdict.TOO_SMALL
    freed = freed_places(diagnosis)
    if freed.low >= PLACES_WORTH_FREEING:
        return Verdict.HELPS
    if repeated_places(diagnosis).high < PLACES_WORTH_FREEING:
        return Verdict.NOT_NEEDED
    if share_of_poor_pools(diagnosis) >= SHARE_OF_POOR_POOLS:
        return Verdict.FEW_CONTENTS
    if freed.high < PLACES_WORTH_FREEING:
        return Verdict.LITTLE
    return Verdict.UNCLEAR


def counts_versions(diagnosis: Diagnosis) -> bool:
    """Return whether places are counted by versions, since all cosines are high."""
    return bool(diagnosis.pools) and (
        diagnosis.over_questions(lambda pool: pool.mean_cosine).value >= HIGH_MEAN_COSINE
    )


def wasted_places(ten: TopTen, *, by_versions: bool) -> int:
    """Return how many of ten places repeat another one, counted as the verdict counts."""
    return ten.n_versions if by_versions else ten.n_redundant


def freed_places(diagnosis: Diagnosis) -> Estimate:
    """Return how many places of ten SIFT frees, over the questions."""
    by_versions = counts_versions(diagnosis)

    def freed(pool: PoolMeasures) -> float:
        before = wasted_places(pool.nearest, by_versions=by_versions)
        return before - wasted_places(pool.sift, by_versions=by_versions)

    return diagnosis.over_questions(freed)


def repeated_places(diagnosis: Diagnosis) -> Estimate:
    """Return in how many places of ten nearest neighbours repeat themselves."""
    by_versions = counts_versions(diagnosis)
    return diagnosis.over_questions(
        lambda pool: wasted_places(pool.nearest, by_versions=by_versions)
    )


def share_of_poor_pools(diagnosis: Diagnosis) -> float:
    """Return the share of questions with too few contents, as `OversamplingSource` counts."""
    return diagnosis.over_questions(
        lambda pool: pool.n_contents < min(FEW_CONTENTS, FEW_OF_FEW * pool.n_candidates)
    ).value
