"""Whether a collection needs SIFT, by stated rules, in plain words and for JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any, TypeAlias

from sift_core.evaluation.diagnosis import FEW_CONTENTS, N_CANDIDATES, N_SELECT, Diagnosis
from sift_core.evaluation.statistics import CONFIDENCE, Estimate
from sift_core.explanation import number_or_none
from sift_core.repeats import COPY_COSINE, REDUNDANT_COSINE
from sift_core.selection.near_duplicates import FEWEST_TO_READ
from sift_core.sources.oversampling import LARGEST_SHARE

# SIFT is worth its few milliseconds if this many of ten places come free. Guess.
PLACES_WORTH_FREEING = 1.0

SHARE_OF_POOR_POOLS = 0.1  # of the questions, from which on fetching more is advised. Guess.
SHARE_OF_COPIES = 0.1  # of the chunks, from which on indexing fewer of them is advised. Guess.


class Verdict(str, Enum):
    """Whether SIFT would help the collection; `RULES` says when each holds."""

    HELPS = "helps"
    NOT_NEEDED = "not_needed"
    FEW_CONTENTS = "few_contents"
    LITTLE = "little"
    UNCLEAR = "unclear"
    TOO_SMALL = "too_small"


Rule: TypeAlias = tuple[str, Callable[[Diagnosis], bool]]
"""What must hold of a diagnosis, in words and as a function."""

RULES: dict[Verdict, Rule] = {
    Verdict.TOO_SMALL: (
        f"the store has fewer than {FEWEST_TO_READ} chunks",
        lambda found: found.n_stored < FEWEST_TO_READ,
    ),
    Verdict.HELPS: (
        f"the whole interval of the places that SIFT frees is at or above "
        f"{PLACES_WORTH_FREEING:g} of {N_SELECT}",
        lambda found: found.freed_places.low >= PLACES_WORTH_FREEING,
    ),
    Verdict.NOT_NEEDED: (
        f"the whole interval of the places that nearest neighbours waste is below "
        f"{PLACES_WORTH_FREEING:g} of {N_SELECT}",
        lambda found: found.repeated_places.high < PLACES_WORTH_FREEING,
    ),
    Verdict.FEW_CONTENTS: (
        f"{100 * SHARE_OF_POOR_POOLS:.0f} % of the questions or more have fewer than "
        f"{FEW_CONTENTS} different texts among their candidates, or less than "
        f"{100 * LARGEST_SHARE:.0f} % of these",
        lambda found: found.share_of_poor_pools >= SHARE_OF_POOR_POOLS,
    ),
    Verdict.LITTLE: (
        f"the whole interval of the places that SIFT frees is below "
        f"{PLACES_WORTH_FREEING:g} of {N_SELECT}",
        lambda found: found.freed_places.high < PLACES_WORTH_FREEING,
    ),
    Verdict.UNCLEAR: ("no other rule holds", lambda found: True),
}
"""By verdict, in the order in which they are tried; the first one that holds counts."""


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """A verdict and the advice that goes with it.

    Args:
        verdict: By the first of `RULES` that holds.
        headline: The verdict in one sentence, with the numbers.
        rule: The rule that holds.
        reasons: Other measures, and the advice that follows from each.
        caveats: Limits of the measures.
    """

    verdict: Verdict
    headline: str
    rule: str
    reasons: tuple[str, ...]
    caveats: tuple[str, ...]


def recommend(diagnosis: Diagnosis) -> Recommendation:
    """Return the recommendation that the rules give for a diagnosis.

    Example:
        >>> recommend(diagnose(source, embedder)).verdict.value
        'too_small'
    """
    verdict, rule = next((one, text) for one, (text, holds) in RULES.items() if holds(diagnosis))
    return Recommendation(
        verdict=verdict,
        headline=_headline(verdict, diagnosis),
        rule=rule,
        reasons=tuple(_reasons(diagnosis)),
        caveats=tuple(_caveats(diagnosis)),
    )


def as_record(diagnosis: Diagnosis, recommendation: Recommendation) -> dict[str, Any]:
    """Return everything as plain values that JSON can hold, as `sift diagnose --json` prints it."""
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
        found["places_repeated"] = _plain(diagnosis.repeated_places)
        found["places_freed"] = _plain(diagnosis.freed_places)
        found["questions"] = [asdict(pool) for pool in diagnosis.pools]
    return found


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _headline(verdict: Verdict, diagnosis: Diagnosis) -> str:
    if verdict is Verdict.TOO_SMALL:
        chunks = "1 chunk" if diagnosis.n_stored == 1 else f"{diagnosis.n_stored} chunks"
        return (
            f"You do not need this: the collection has {chunks}, too few to choose from for a "
            f"prompt that takes {N_SELECT}."
        )
    before = diagnosis.repeated_places.value
    after = before - diagnosis.freed_places.value
    repeat, do = "repeat an earlier one", "do"
    if diagnosis.counts_versions:
        repeat, do = "are versions of a more relevant one", "are"
    nearest = f"of the {N_SELECT} chunks nearest to a question {before:.1f} on average {repeat}"
    both = f"{nearest}; of the {N_SELECT} that SIFT chooses {after:.1f} {do}"
    return {
        Verdict.HELPS: f"Use SIFT here: {both}.",
        Verdict.NOT_NEEDED: f"You do not need SIFT here: {nearest}.",
        Verdict.FEW_CONTENTS: f"First store or fetch more that is different: {both}, for there is "
        f"little else among the candidates.",
        Verdict.LITTLE: f"SIFT would change little here: {both}.",
        # Intervals are half as wide with four times as many questions.
        Verdict.UNCLEAR: f"No clear answer: {both}. About {4 * len(diagnosis.pools)} questions "
        f"would tell.",
    }[verdict]


def _reasons(diagnosis: Diagnosis) -> Iterator[str]:
    if diagnosis.pools:
        yield from _of_questions(diagnosis)
    copies = diagnosis.duplicates
    if copies is None:
        return
    yield (
        f"Of {copies.near.n:,} random chunks {_percent(copies.exact.value)} have an exact copy in "
        f"the store, and {_percent(copies.near.value)} a near-copy (cosine {COPY_COSINE} or more, "
        f"but not the same text)."
    )
    if copies.exact.value >= SHARE_OF_COPIES:
        yield "Index each text once: so many exact copies only take up places."
    if copies.near.value >= SHARE_OF_COPIES:
        yield (
            "Look whether all of these near-copies need to be indexed, such as old versions. If "
            "they do, leave the choice to SIFT."
        )


def _of_questions(diagnosis: Diagnosis) -> Iterator[str]:
    freed = diagnosis.freed_places
    interval = "one question, so no interval"
    if freed.n > 1:
        interval = f"{_percent(CONFIDENCE)} interval {freed.low:.1f} to {freed.high:.1f}"
    exchanged = diagnosis.over_questions(lambda pool: len(pool.sift.document_ids) - pool.n_shared)
    yield (
        f"SIFT would free {freed.value:.1f} of {N_SELECT} places ({interval}), and exchange "
        f"{exchanged.value:.1f} chunks for that."
    )
    n_most = max(pool.n_candidates for pool in diagnosis.pools)
    contents = diagnosis.over_questions(lambda pool: pool.n_distinct)
    yield (
        f"The {n_most} chunks nearest to a question are {contents.value:.0f} different texts on "
        f"average, versions of one text counted once."
    )
    explained = diagnosis.over_questions(lambda pool: 1 - pool.sift.variance)
    yield f"The chunks that SIFT chooses explain {_percent(explained.value)} of σ² at a question."
    if not diagnosis.are_stand_ins:
        refused = sum(pool.is_off_topic for pool in diagnosis.pools)
        yield (
            f"Mode auto would refuse {refused} of the {len(diagnosis.pools)} questions, since no "
            f"chunk is near to them."
        )
    poor = diagnosis.share_of_poor_pools
    if poor >= SHARE_OF_POOR_POOLS and diagnosis.n_stored > N_CANDIDATES:
        yield (
            f"{_percent(poor)} of the questions have fewer than {FEW_CONTENTS} different texts "
            f"among their candidates, or nearly none: fetch more (`sift search --adaptive`, or an "
            f"OversamplingSource around the store)."
        )


def _caveats(diagnosis: Diagnosis) -> Iterator[str]:
    if diagnosis.are_stand_ins:
        yield (
            "No questions were given, so openings of random chunks stood in for them, without the "
            "chunks of the documents that their metadata names. People ask in other words and "
            "about other things; your own questions (--queries FILE) make the answer surer."
        )
    if diagnosis.counts_versions:
        yield (
            f"Any two candidates of a question have a high cosine, so that {REDUNDANT_COSINE} "
            f"means little; places were counted by versions, which are read from the candidates."
        )
    if not diagnosis.is_seeded:
        yield "The store drew the chunks itself: another run draws others, whatever --seed."
    if diagnosis.pools:
        yield (
            f"These limits are guesses: {PLACES_WORTH_FREEING:g} freed place as worth it, a cosine "
            f"of {REDUNDANT_COSINE} as a repeat and {COPY_COSINE} as a near-copy."
        )


def _plain(estimate: Estimate) -> Mapping[str, float | int | None]:
    """Return an estimate for JSON, which has no NaN."""
    low, high = number_or_none(estimate.low), number_or_none(estimate.high)
    return {"mean": estimate.value, "low": low, "high": high, "n": estimate.n}
