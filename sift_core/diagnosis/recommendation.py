"""What to do, in plain words, each with the number that it rests on."""

from __future__ import annotations

from dataclasses import dataclass

from sift_core.diagnosis.duplicates import NEAR_DUPLICATE_COSINE
from sift_core.diagnosis.measuring import N_CANDIDATES, Diagnosis
from sift_core.diagnosis.pool_measures import N_SELECT, REDUNDANT_COSINE
from sift_core.diagnosis.trial import is_shown
from sift_core.diagnosis.verdict import (
    FEW_CONTENTS,
    MIN_EXPLAINED,
    PLACES_WORTH_FREEING,
    SHARE_OF_COPIES,
    SHARE_OF_POOR_POOLS,
    Verdict,
    counts_versions,
    freed_places,
    repeated_places,
    share_of_poor_pools,
    verdict_of,
)
from sift_core.evaluation.analysis.statistics import CONFIDENCE, Estimate
from sift_core.selection.near_duplicates import FEWEST_TO_READ
from sift_core.types import AnswerMode

CHARACTERS_A_TOKEN = 4  # of English in usual tokenizers. Rule of thumb.
USUAL_WINDOWS = (2_048, 4_096, 8_192, 32_768, 131_072)  # tokens

# benchmarks/results/retrieval.json, in the README: recall@10 over five public question sets.
MEASURED_GAIN = (
    "What a freed place is worth was measured on five public question sets: with SIFT 0.4 "
    "percentage points more of the passages that answer a question were among the ten where "
    "nothing repeats, and 11.8 points more where every passage stood there in four noisy copies "
    "(recall@10, README)."
)


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """What to do.

    Args:
        verdict: By the first of `RULES` that holds.
        headline: The verdict in one sentence.
        reasons: What it rests on and what else to do, one sentence or two each.
        fine_tuning: Whether fine-tuning would pay, likewise.
        caveats: What limits all that.
    """

    verdict: Verdict
    headline: str
    reasons: tuple[str, ...]
    fine_tuning: tuple[str, ...]
    caveats: tuple[str, ...]


def recommend(diagnosis: Diagnosis) -> Recommendation:
    """Return the recommendation that the rules give for what was measured."""
    verdict = verdict_of(diagnosis)
    return Recommendation(
        verdict=verdict,
        headline=_headline(verdict, diagnosis),
        reasons=tuple(_reasons(verdict, diagnosis)),
        fine_tuning=_fine_tuning(diagnosis),
        caveats=_caveats(diagnosis),
    )


def with_interval(estimate: Estimate, unit: str = "places") -> str:
    """Return "3.4 of 10 places (90 % interval 2.9 to 3.9)"."""
    value = f"{estimate.value:.1f} of {N_SELECT} {unit}"
    if estimate.n < 2:
        return f"{value} (one question, so no interval)"
    ends = f"{estimate.low:.1f} to {estimate.high:.1f}"
    return f"{value} ({_percent(CONFIDENCE)} interval {ends})"


def _percent(share: float, digits: int = 0) -> str:
    return f"{100 * share:.{digits}f} %"


def _headline(verdict: Verdict, diagnosis: Diagnosis) -> str:
    if verdict is Verdict.TOO_SMALL:
        chunks = "1 chunk" if diagnosis.n_stored == 1 else f"{diagnosis.n_stored} chunks"
        return (
            f"You do not need this: the collection has {chunks}, too few to choose from for a "
            f"prompt that takes {N_SELECT}."
        )
    before = repeated_places(diagnosis).value
    after = before - freed_places(diagnosis).value
    repeat, do = "repeat an earlier one", "do"
    if counts_versions(diagnosis):
        repeat, do = "are versions of a more relevant one", "are"
    nearest = f"of the {N_SELECT} chunks nearest to a question {before:.1f} on average {repeat}"
    both = f"{nearest}; of the {N_SELECT} that SIFT chooses {after:.1f} {do}"
    if verdict is Verdict.HELPS:
        return f"Use SIFT here: {both}."
    if verdict is Verdict.NOT_NEEDED:
        return f"You do not need SIFT here: {nearest}, so that it has little to improve."
    if verdict is Verdict.FEW_CONTENTS:
        return (
            f"First store or fetch more that is different: {both}, for there is little else among "
            f"the candidates."
        )
    if verdict is Verdict.LITTLE:
        return f"SIFT would change little here: {both}."
    freed = freed_places(diagnosis)
    if freed.high - freed.low <= PLACES_WORTH_FREEING:  # not of one question, which has no interval
        return f"Borderline: {both}, about as many as make SIFT worth it. {_how_to_know(diagnosis)}"
    return f"No clear answer yet: {both}. {_how_to_know(diagnosis)}"


def _how_to_know(diagnosis: Diagnosis) -> str:
    """Return what would tell: intervals are half as wide with four times as many questions."""
    n = 4 * len(diagnosis.pools)
    asked = diagnosis.questions
    if asked is None or asked.origin is None:
        return f"Ask more questions (--sample {n}), or better your own (--queries FILE)."
    if asked.n_found >= n:
        return f"Ask more of your questions (--sample {n})."
    return f"About {n} questions in {asked.origin} would tell."


def _reasons(verdict: Verdict, diagnosis: Diagnosis) -> list[str]:
    if not diagnosis.pools:
        return [
            "Nothing was asked: all chunks would be chosen, by whatever method.",
            *_copies(diagnosis),
        ]
    shared = diagnosis.over_questions(lambda pool: pool.n_shared)
    wasted = f"it has a cosine of {REDUNDANT_COSINE} or more to an earlier one of the ten"
    if counts_versions(diagnosis):
        wasted = "it is nearly the same text as a more relevant candidate"
    reasons = [
        f"SIFT would free {with_interval(freed_places(diagnosis))}, and for that exchange "
        f"{with_interval(_less_than_ten(diagnosis, shared), 'chunks')}. A chunk wastes its place "
        f"where {wasted}. SIFT counts as worth it from {PLACES_WORTH_FREEING:g} freed place on.",
        *_candidates(diagnosis),
        *_copies(diagnosis),
    ]
    if verdict is Verdict.LITTLE and not counts_versions(diagnosis):
        versions = diagnosis.over_questions(lambda pool: pool.nearest.n_versions)
        reasons.append(
            f"Versions of one text take {with_interval(versions)}. The other repeats "
            f"are about one thing in different words, and leaving them out might leave out the "
            f"answer."
        )
    if verdict in (Verdict.HELPS, Verdict.NOT_NEEDED, Verdict.LITTLE):
        reasons.append(MEASURED_GAIN)
    return reasons


def _less_than_ten(diagnosis: Diagnosis, shared: Estimate) -> Estimate:
    """Return how many of the ten are not shared, where there are ten."""
    n_chosen = diagnosis.over_questions(lambda pool: len(pool.nearest.chunks)).value
    return Estimate(
        value=n_chosen - shared.value,
        standard_error=shared.standard_error,
        low=n_chosen - shared.high,
        high=n_chosen - shared.low,
        n=shared.n,
    )


def _candidates(diagnosis: Diagnosis) -> list[str]:
    """Return how different the candidates are, and whether to fetch more."""
    n_most = max(pool.n_candidates for pool in diagnosis.pools)
    n_texts = diagnosis.over_questions(lambda pool: pool.n_contents).value
    effective = diagnosis.over_questions(lambda pool: pool.effective_number).value
    said = [
        f"The {n_most} chunks nearest to a question are {n_texts:.0f} different texts on average, "
        f"versions of one text counted once. Counted by degrees of likeness (effective number) "
        f"they amount to {effective:.0f} chunks with nothing in common."
    ]
    poor = share_of_poor_pools(diagnosis)
    if poor >= SHARE_OF_POOR_POOLS and diagnosis.n_stored > N_CANDIDATES:
        said.append(
            f"Fetch more candidates where they are few texts: `sift search --adaptive`, or an "
            f"OversamplingSource around the store. {_percent(poor)} of the questions have fewer "
            f"than {FEW_CONTENTS} different texts among their {n_most} chunks."
        )
    return said


def _copies(diagnosis: Diagnosis) -> list[str]:
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


def _fine_tuning(diagnosis: Diagnosis) -> tuple[str, ...]:
    from_data = _from_variances(diagnosis) if diagnosis.pools else []
    if diagnosis.trial is None:
        return (
            "Not known: the data alone cannot say whether fine-tuning a model on the chosen chunks "
            "beats putting them into its prompt. Run this again with --model, which tries both on "
            "chunks that are held back.",
            *from_data,
        )
    trial = diagnosis.trial
    pairs = (
        ("Fine-tuning against the model alone", AnswerMode.FINE_TUNE, AnswerMode.BASE),
        ("Reading against the model alone", AnswerMode.CONTEXT, AnswerMode.BASE),
        ("Fine-tuning against reading", AnswerMode.FINE_TUNE, AnswerMode.CONTEXT),
    )
    differences = {name: trial.difference(mode, other) for name, mode, other in pairs}
    pays = differences["Fine-tuning against reading"].high < 0 and (
        differences["Fine-tuning against the model alone"].high < 0
    )
    tuned_s, read_s = (trial.seconds(m) for m in (AnswerMode.FINE_TUNE, AnswerMode.CONTEXT))
    first = "Yes, with this model" if pays else "Not shown with this model"
    passages = (
        "1 passage was" if len(trial.passages) == 1 else f"{len(trial.passages)} passages were"
    )
    return (
        f"{first}: {passages} held back, and the model had to predict them after fine-tuning on "
        f"chunks from other documents ({tuned_s:.1f} s each), after reading these in its prompt "
        f"({read_s:.1f} s), and without them. Fewer bits per byte are better.",
        *(f"{name}: {_judged(found)}." for name, found in differences.items()),
        *from_data,
    )


def _judged(difference: Estimate) -> str:
    """Return what a difference of bits per byte shows."""
    if difference.n < 2:
        return f"{difference.value:+.3f} bits per byte of one passage, which shows nothing"
    numbers = (
        f"{difference.value:+.3f} bits per byte ({_percent(CONFIDENCE)} interval "
        f"{difference.low:+.3f} to {difference.high:+.3f})"
    )
    if not is_shown(difference):
        return f"{numbers}, a difference is not shown"
    return f"{numbers}, {'better' if difference.value < 0 else 'worse'}"


def _from_variances(diagnosis: Diagnosis) -> list[str]:
    """Return what σ² and lengths say without a model."""
    explained = diagnosis.over_questions(
        lambda pool: 1 - pool.sift.variance / pool.variance_before if pool.variance_before else 0.0
    )
    floor = diagnosis.over_questions(
        lambda pool: 1 - pool.floor / pool.variance_before if pool.variance_before else 0.0
    )
    tokens = diagnosis.over_questions(lambda pool: pool.sift.n_characters / CHARACTERS_A_TOKEN)
    topic = f"Below {_percent(MIN_EXPLAINED)} a collection counts as off the topic"
    if explained.high < MIN_EXPLAINED:
        topic += ", as this one does: neither reading nor learning its chunks is likely to help"
    said = [
        f"The ten chunks that SIFT chooses explain {_percent(explained.value)} of a question (of "
        f"the variance σ² of its vector); no choice from the candidates could explain more than "
        f"{_percent(floor.value)}. {topic}."
    ]
    fits = [window for window in USUAL_WINDOWS if 2 * tokens.value <= window]
    size = f"ten chunks are about {tokens.value:,.0f} tokens ({CHARACTERS_A_TOKEN} characters each)"
    if fits:
        said.append(
            f"Reading is possible: {size}, for which a window of {fits[0]:,} tokens has room "
            f"beside question and answer."
        )
    else:
        said.append(f"No usual window has room: {size}. Learning needs none.")
    return said


def _caveats(diagnosis: Diagnosis) -> tuple[str, ...]:
    caveats = _about_stand_ins(diagnosis) if diagnosis.are_stand_ins and diagnosis.pools else []
    asked = diagnosis.questions
    if asked is not None and asked.origin and asked.n_found > len(asked.questions):
        caveats.append(
            f"Of {asked.n_found:,} questions in {asked.origin}, {len(asked.questions)} were drawn "
            f"at random (--sample)."
        )
    if counts_versions(diagnosis):
        cosine = diagnosis.over_questions(lambda pool: pool.mean_cosine).value
        caveats.append(
            f"Any two candidates of a question have a high cosine ({cosine:.2f} on average), so "
            f"that {REDUNDANT_COSINE} means little; places were counted by versions, which are "
            f"read from the candidates."
        )
    if not diagnosis.is_seeded:
        caveats.append(
            "The store drew the chunks itself, so that another run draws others, whatever --seed."
        )
    if diagnosis.pools:
        caveats.append(
            f"A {_percent(CONFIDENCE)} interval says how far the draw of questions or chunks may "
            f"move a number. The limits are guesses: {PLACES_WORTH_FREEING:g} freed place as worth "
            f"it, a cosine of {REDUNDANT_COSINE} as a repeat and {NEAR_DUPLICATE_COSINE} as a "
            f"near-copy, {_percent(SHARE_OF_COPIES)} of the chunks or questions as many, "
            f"{_percent(MIN_EXPLAINED)} explained as on the topic."
        )
    return tuple(caveats)


def _about_stand_ins(diagnosis: Diagnosis) -> list[str]:
    """Return what it means that nobody's questions were asked."""
    said = [
        "No questions were given, so headings and first sentences of random chunks stood in for "
        "them, and chunks of the same document were left out. People ask in other words, about "
        "several things at once and about what is not there; and they may ask about what is copied "
        "more or less often than it is stored. Your own questions (--queries FILE, one a line) "
        "make the answer surer."
    ]
    if diagnosis.share_with_document < 1:
        said.append(
            f"The metadata of {_percent(1 - diagnosis.share_with_document)} of the sampled chunks "
            f"does not name a document; for these only the chunk itself was left out."
        )
    if diagnosis.n_kept_own:
        said.append(
            f"For {diagnosis.n_kept_own} of {len(diagnosis.pools)} stand-ins other documents "
            f"had fewer than {FEWEST_TO_READ} chunks, so that only the chunk itself was left "
            f"out."
        )
    return said
