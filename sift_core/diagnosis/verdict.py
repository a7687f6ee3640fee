"""What SIFT would do for a collection, by stated rules, in plain words and for JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

import numpy as np

from sift_core.diagnosis.measuring import N_CANDIDATES, NEAR_DUPLICATE_COSINE, Diagnosis
from sift_core.diagnosis.pools import N_SELECT, REDUNDANT_COSINE
from sift_core.evaluation.statistics import CONFIDENCE, Estimate, mean
from sift_core.selection.near_duplicates import FEWEST_TO_READ
from sift_core.sources.oversampling import DISTINCT_A_CHOICE, LARGEST_SHARE

# Of ten places, so many must come free for SIFT to be worth its few milliseconds. Guess.
PLACES_WORTH_FREEING = 1.0

# Candidates with fewer contents make `OversamplingSource` fetch again (decision 0008, measured), or
# with less than this share of them.
FEW_CONTENTS = DISTINCT_A_CHOICE * N_SELECT

SHARE_OF_POOR_POOLS = 0.1  # of the questions, from which on fetching more is advised. Guess.
SHARE_OF_COPIES = 0.1  # of the chunks, from which on indexing fewer of them is advised. Guess.
MIN_EXPLAINED = 0.25  # of σ² at a question, as in `VariancePolicy`: between off and on topic

# Of two candidates of one question. From here on the cosine of 0.8 is nothing special for an
# embedding model: unrelated chunks have .1 for one and .7 for another (decision 0006). Guess
# between them; places are then counted by versions, which are read from the pool.
HIGH_MEAN_COSINE = 0.6


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


RULES = {
    Verdict.TOO_SMALL: f"the store has fewer than {FEWEST_TO_READ} chunks",
    Verdict.HELPS: "the whole interval of the places that SIFT frees is at or above "
    f"{PLACES_WORTH_FREEING:g} of {N_SELECT}",
    Verdict.NOT_NEEDED: "the whole interval of the places that nearest neighbours waste is below "
    f"{PLACES_WORTH_FREEING:g} of {N_SELECT}",
    Verdict.FEW_CONTENTS: f"{100 * SHARE_OF_POOR_POOLS:.0f} % of the questions or more have fewer "
    f"than {FEW_CONTENTS} different texts among their candidates, or less than "
    f"{100 * LARGEST_SHARE:.0f} % of these",
    Verdict.LITTLE: "the whole interval of the places that SIFT frees is below "
    f"{PLACES_WORTH_FREEING:g} of {N_SELECT}",
    Verdict.UNCLEAR: "no other rule holds",
}
"""By verdict, in the order in which they are tried; the first one that holds counts."""


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """What to do.

    Args:
        verdict: By the first of `RULES` that holds.
        headline: The verdict in one sentence, with the numbers.
        rule: The rule that holds.
        reasons: What else was measured, and what to do about it.
        caveats: What limits all that.
    """

    verdict: Verdict
    headline: str
    rule: str
    reasons: tuple[str, ...]
    caveats: tuple[str, ...]


def recommend(diagnosis: Diagnosis) -> Recommendation:
    """Return the recommendation that the rules give for what was measured."""
    verdict = verdict_of(diagnosis)
    return Recommendation(
        verdict=verdict,
        headline=_headline(verdict, diagnosis),
        rule=RULES[verdict],
        reasons=(*_of_questions(diagnosis), *_of_copies(diagnosis)),
        caveats=tuple(_caveats(diagnosis)),
    )


def as_record(diagnosis: Diagnosis, recommendation: Recommendation) -> dict[str, Any]:
    """Return everything as plain values that JSON can hold: what `sift diagnose --json` prints."""
    found: dict[str, Any] = {
        **asdict(recommendation),
        "verdict": recommendation.verdict.value,
        "n_stored": diagnosis.n_stored,
        "n_sampled": diagnosis.n_sampled,
        "stand_ins": diagnosis.are_stand_ins,
        "seed": diagnosis.seed,
    }
    if diagnosis.duplicates is not None:
        found["near_duplicates"] = _plain(diagnosis.duplicates.near)
        found["exact_copies"] = _plain(diagnosis.duplicates.exact)
    if diagnosis.pools:
        found["places_repeated"] = _plain(repeated_places(diagnosis))
        found["places_freed"] = _plain(freed_places(diagnosis))
        found["questions"] = [asdict(pool) for pool in diagnosis.pools]
    return found


def verdict_of(diagnosis: Diagnosis) -> Verdict:
    """Return the first of `RULES` that holds."""
    if diagnosis.n_stored < FEWEST_TO_READ:
        return Verdict.TOO_SMALL
    freed = freed_places(diagnosis)
    if freed.low >= PLACES_WORTH_FREEING:
        return Verdict.HELPS
    if repeated_places(diagnosis).high < PLACES_WORTH_FREEING:
        return Verdict.NOT_NEEDED
    if _share_of_poor_pools(diagnosis) >= SHARE_OF_POOR_POOLS:
        return Verdict.FEW_CONTENTS
    if freed.high < PLACES_WORTH_FREEING:
        return Verdict.LITTLE
    return Verdict.UNCLEAR


def counts_versions(diagnosis: Diagnosis) -> bool:
    """Return whether places are counted by versions, since all cosines are high."""
    return bool(diagnosis.pools) and (
        diagnosis.over_questions(lambda pool: pool.mean_cosine).value >= HIGH_MEAN_COSINE
    )


def wasted_places(diagnosis: Diagnosis) -> tuple[list[int], list[int]]:
    """Return by question how many of ten places repeat another one, as the verdict counts them.

    Those of the nearest neighbours come first, then those of SIFT.
    """
    name = "n_versions" if counts_versions(diagnosis) else "n_redundant"
    nearest = [getattr(pool.nearest, name) for pool in diagnosis.pools]
    return nearest, [getattr(pool.sift, name) for pool in diagnosis.pools]


def repeated_places(diagnosis: Diagnosis) -> Estimate:
    """Return in how many places of ten nearest neighbours repeat themselves."""
    return mean(wasted_places(diagnosis)[0], seed=diagnosis.seed)


def freed_places(diagnosis: Diagnosis) -> Estimate:
    """Return how many places of ten SIFT frees, over the questions."""
    return mean(np.subtract(*wasted_places(diagnosis)), seed=diagnosis.seed)


def _share_of_poor_pools(diagnosis: Diagnosis) -> float:
    """Return the share of questions with too few contents, as `OversamplingSource` counts."""
    return diagnosis.over_questions(
        lambda pool: pool.n_distinct < min(FEW_CONTENTS, LARGEST_SHARE * pool.n_candidates)
    ).value


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _headline(verdict: Verdict, diagnosis: Diagnosis) -> str:
    if verdict is Verdict.TOO_SMALL:
        chunks = "1 chunk" if diagnosis.n_stored == 1 else f"{diagnosis.n_stored} chunks"
        return (
            f"You do not need this: the collection has {chunks}, too few to choose from for a "
            f"prompt that takes {N_SELECT}."
        )
    before = repeated_places(diagnosis).value
    freed = freed_places(diagnosis)
    repeat, do = "repeat an earlier one", "do"
    if counts_versions(diagnosis):
        repeat, do = "are versions of a more relevant one", "are"
    nearest = f"of the {N_SELECT} chunks nearest to a question {before:.1f} on average {repeat}"
    both = f"{nearest}; of the {N_SELECT} that SIFT chooses {before - freed.value:.1f} {do}"
    if verdict is Verdict.UNCLEAR:
        # Intervals are half as wide with four times as many questions.
        return f"No clear answer: {both}. About {4 * len(diagnosis.pools)} questions would tell."
    return {
        Verdict.HELPS: f"Use SIFT here: {both}.",
        Verdict.NOT_NEEDED: f"You do not need SIFT here: {nearest}.",
        Verdict.FEW_CONTENTS: f"First store or fetch more that is different: {both}, for there is "
        f"little else among the candidates.",
        Verdict.LITTLE: f"SIFT would change little here: {both}.",
    }[verdict]


def _of_questions(diagnosis: Diagnosis) -> list[str]:
    if not diagnosis.pools:
        return []
    freed = freed_places(diagnosis)
    interval = "one question, so no interval"
    if freed.n > 1:
        interval = f"{_percent(CONFIDENCE)} interval {freed.low:.1f} to {freed.high:.1f}"
    exchanged = diagnosis.over_questions(lambda pool: len(pool.sift.document_ids) - pool.n_shared)
    n_most = max(pool.n_candidates for pool in diagnosis.pools)
    contents = diagnosis.over_questions(lambda pool: pool.n_distinct).value
    explained = diagnosis.over_questions(lambda pool: 1 - pool.sift.variance)
    topic = ", less than on the topic of a collection" if explained.high < MIN_EXPLAINED else ""
    said = [
        f"SIFT would free {freed.value:.1f} of {N_SELECT} places ({interval}), and exchange "
        f"{exchanged.value:.1f} chunks for that.",
        f"The {n_most} chunks nearest to a question are {contents:.0f} different texts on average, "
        f"versions of one text counted once.",
        f"The chunks that SIFT chooses explain {_percent(explained.value)} of σ² at a "
        f"question{topic}.",
    ]
    poor = _share_of_poor_pools(diagnosis)
    if poor >= SHARE_OF_POOR_POOLS and diagnosis.n_stored > N_CANDIDATES:
        said.append(
            f"{_percent(poor)} of the questions have fewer than {FEW_CONTENTS} different texts "
            f"among their candidates, or nearly none: fetch more (`sift search --adaptive`, or an "
            f"OversamplingSource around the store)."
        )
    return said


def _of_copies(diagnosis: Diagnosis) -> list[str]:
    found = diagnosis.duplicates
    if found is None:
        return []
    said = [
        f"Of {found.near.n:,} random chunks {_percent(found.exact.value)} have an exact copy in "
        f"the store, and {_percent(found.near.value)} a near-copy (cosine "
        f"{NEAR_DUPLICATE_COSINE} or more, but not the same text)."
    ]
    if found.exact.value >= SHARE_OF_COPIES:
        said.append("Index each text once: so many exact copies only take up places.")
    if found.near.value >= SHARE_OF_COPIES:
        said.append(
            "Look whether all of these near-copies need to be indexed, such as old versions. If "
            "they do, leave the choice to SIFT."
        )
    return said


def _caveats(diagnosis: Diagnosis) -> list[str]:
    said = []
    if diagnosis.are_stand_ins:
        said.append(
            "No questions were given, so openings of random chunks stood in for them, without the "
            "chunks of the documents that their metadata names. People ask in other words and "
            "about other things; your own questions (--queries FILE) make the answer surer."
        )
    if counts_versions(diagnosis):
        said.append(
            f"Any two candidates of a question have a high cosine, so that {REDUNDANT_COSINE} "
            f"means little; places were counted by versions, which are read from the candidates."
        )
    if not diagnosis.is_seeded:
        said.append("The store drew the chunks itself: another run draws others, whatever --seed.")
    if diagnosis.pools:
        said.append(
            f"These limits are guesses: {PLACES_WORTH_FREEING:g} freed place as worth it, a cosine "
            f"of {REDUNDANT_COSINE} as a repeat and {NEAR_DUPLICATE_COSINE} as a near-copy."
        )
    return said


def _plain(estimate: Estimate) -> Mapping[str, float | int | None]:
    """Return an estimate for JSON, which has no NaN."""
    low, high = (None if math.isnan(end) else end for end in (estimate.low, estimate.high))
    return {"mean": estimate.value, "low": low, "high": high, "n": estimate.n}
