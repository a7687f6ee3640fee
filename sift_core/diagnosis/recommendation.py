"""What to do, in plain words, each with the number that it rests on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sift_core.diagnosis.diagnose import N_CANDIDATES, Diagnosis
from sift_core.diagnosis.pool_measures import N_SELECT, REDUNDANT_COSINE
from sift_core.diagnosis.trial import is_shown
from sift_core.diagnosis.verdict import (
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
from sift_core.selection.versions import FEWEST_TO_READ
from sift_core.types import AnswerMode

CHARACTERS_A_TOKEN = 4  # of English in usual tokenizers. Rule of thumb.
USUAL_WINDOWS = (2_048, 4_096, 8_192, 32_768, 131_072)  # tokens

# benchmarks/results/retrieval.json, in the README: recall@10 over five public question sets.
MEASURED_GAIN = (
    "on five public question sets SIFT found .4 points more of what answers a question where "
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
        reasons=(*_reasons(verdict, diagnosis), *_copies(diagnosis)),
        fine_tuning=_fine_tuning(diagnosis),
        caveats=_caveats(diagnosis),
    )


def with_interval(estimate: Estimate, unit: str = "places") -> str:
    """Return "3.4 of 10 places (90 % interval 2.9 to 3.9)"."""
    value = f"{estimate.value:.1f} of {N_SELECT} {unit}"
    if estimate.n < 2:
        return f"{value} (one question, so no interval)"
    ends = f"{estimate.low:.1f} to {estimate.high:.1f}"
    return f"{value} ({CONFIDENCE:.0%} interval {ends})".replace("%", " %")


def _headline(verdict: Verdict, diagnosis: Diagnosis) -> str:
    if verdict is Verdict.TOO_SMALL:
        chunks = "1 chunk" if diagnosis.n_stored == 1 else f"{diagnosis.n_stored} chunks"
        return (
            f"The collection is too small to need this: it has {chunks}, and a prompt takes "
            f"{N_SELECT} of them."
        )
    freed = with_interval(freed_places(diagnosis))
    repeated = with_interval(repeated_places(diagnosis))
    if verdict is Verdict.HELPS:
        return f"SIFT would help: it frees {freed}."
    if verdict is Verdict.NOT_NEEDED:
        return (
            f"You do not need this: nearest neighbours serve you. They repeat themselves in "
            f"{repeated}."
        )
    if verdict is Verdict.FEW_CONTENTS:
        return (
            f"Too little that is different is stored or fetched: nearest neighbours repeat "
            f"themselves in {repeated}, and SIFT frees {freed}, since the candidates have "
            f"nothing else."
        )
    if verdict is Verdict.LITTLE:
        return (
            f"SIFT would change little: nearest neighbours repeat themselves in {repeated}, "
            f"and it frees {freed}."
        )
    return (
        f"Unclear with so few questions: SIFT frees {freed}, and below "
        f"{PLACES_WORTH_FREEING:g} it would not be worth it. Ask more (--sample), or your own "
        f"(--queries)."
    )


def _reasons(verdict: Verdict, diagnosis: Diagnosis) -> list[str]:
    if not diagnosis.pools:
        return ["Nothing was asked: all chunks would be chosen, by whatever method."]
    shared = diagnosis.over_questions(lambda pool: pool.n_shared)
    n_contents = diagnosis.over_questions(lambda pool: pool.n_contents)
    poor = share_of_poor_pools(diagnosis)
    reasons = [
        f"SIFT would exchange {with_interval(_less_than_ten(diagnosis, shared), 'chunks')}.",
        f"The {_most_candidates(diagnosis)} nearest candidates of a question are "
        f"{n_contents.value:.0f} different contents in the mean: versions of one text count once.",
    ]
    if verdict in (Verdict.HELPS, Verdict.NOT_NEEDED, Verdict.LITTLE):
        reasons.append(f"What that is worth: {MEASURED_GAIN}")
    if verdict is Verdict.LITTLE and not counts_versions(diagnosis):
        versions = diagnosis.over_questions(lambda pool: pool.nearest.n_versions)
        reasons.append(
            f"Versions of one text fill {with_interval(versions)} of nearest "
            f"neighbours; what else is alike there is about one thing in different words, and "
            f"leaving it out might leave out the answer."
        )
    if poor >= SHARE_OF_POOR_POOLS and diagnosis.n_stored > N_CANDIDATES:
        reasons.append(
            f"Put an OversamplingSource around the store (`sift search --adaptive`): {poor:.0%} of "
            f"the questions have so few contents among their candidates that it fetches "
            f"more.".replace("%", " %")
        )
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


def _most_candidates(diagnosis: Diagnosis) -> int:
    return max(pool.n_candidates for pool in diagnosis.pools)


def _copies(diagnosis: Diagnosis) -> list[str]:
    found = diagnosis.duplicates
    if found is None:
        return []
    advice = []
    if found.exact.value >= SHARE_OF_COPIES:
        advice.append(
            f"Index each text once: of {found.exact.value:.0%} of the chunks the text stands in "
            f"the store more than once, word for word."
        )
    if found.near.value >= SHARE_OF_COPIES:
        advice.append(
            f"Look whether old versions need to be indexed: {found.near.value:.0%} of the chunks "
            f"have a near-copy with other words. If all of them are needed, leave the choice to "
            f"SIFT."
        )
    return [sentence.replace("%", " %") for sentence in advice]


def _fine_tuning(diagnosis: Diagnosis) -> tuple[str, ...]:
    sentences = _from_variances(diagnosis) if diagnosis.pools else []
    if diagnosis.trial is None:
        sentences.append(
            "Whether fine-tuning beats reading cannot be said from the data alone: run this again "
            "with --model, which tries a model on chunks that are held back."
        )
        return tuple(sentences)
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
    first = "Fine-tuning would pay with this model" if pays else "Not shown that fine-tuning pays"
    passages = "1 passage" if len(trial.passages) == 1 else f"{len(trial.passages)} passages"
    sentences.insert(
        0,
        f"{first}: {passages} held back, {tuned_s:.1f} s each to learn and {read_s:.1f} s to read.",
    )
    sentences += [f"{name}: {_judged(found)}." for name, found in differences.items()]
    return tuple(sentences)


def _judged(difference: Estimate) -> str:
    """Return what a difference of bits per byte shows."""
    if difference.n < 2:
        return f"{difference.value:+.3f} bits per byte of one passage, which shows nothing"
    numbers = (
        f"{difference.value:+.3f} bits per byte ({CONFIDENCE:.0%} interval "
        f"{difference.low:+.3f} to {difference.high:+.3f})"
    ).replace("%", " %")
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
    said = [
        f"Ten chunks explain {explained.value:.0%} of the variance at a question, and all "
        f"candidates together at most {floor.value:.0%}."
    ]
    if explained.high < MIN_EXPLAINED:
        said.append(
            f"Less than {MIN_EXPLAINED:.0%} counts as off the topic: neither reading nor learning "
            f"these chunks is likely to help."
        )
    fits = [window for window in USUAL_WINDOWS if 2 * tokens.value <= window]
    window = f"a window of {fits[0]:,} tokens has room for" if fits else "no usual window holds"
    said.append(
        f"Ten chunks are about {tokens.value:,.0f} tokens ({CHARACTERS_A_TOKEN} characters each): "
        f"{window} them beside question and answer"
        + (", so that reading them is possible." if fits else ": learning needs no window.")
    )
    return [sentence.replace("%", " %") for sentence in said]


def _caveats(diagnosis: Diagnosis) -> tuple[str, ...]:
    caveats: list[str] = []
    if diagnosis.are_stand_ins and diagnosis.pools:
        caveats.append(
            "No questions were given, so that headings and first sentences of random chunks stood "
            "in for them, and the chunk's own document did not count. They are worded like the "
            "collection and about one place in it; people ask in other words, about several "
            "things at once and about what is not there. Copies are met as often as they are "
            "stored, not as often as they are asked for, and those within one document are not "
            "met at all. Your own questions (--queries FILE, one "
            "a line) make this surer."
        )
        if diagnosis.share_with_document < 1:
            without = f"{1 - diagnosis.share_with_document:.0%}".replace("%", " %")
            caveats.append(
                f"The metadata of {without} of the sampled chunks does not name a document, so "
                f"that only the chunk itself was left out there."
            )
        if diagnosis.n_kept_own:
            caveats.append(
                f"For {diagnosis.n_kept_own} of {len(diagnosis.pools)} stand-ins other documents "
                f"had fewer than {FEWEST_TO_READ} chunks, so that only the chunk itself was left "
                f"out."
            )
    asked = diagnosis.questions
    if asked is not None and asked.origin is not None and asked.n_found > len(asked.questions):
        caveats.append(
            f"Of {asked.n_found:,} questions in {asked.origin}, {len(asked.questions)} were drawn "
            f"at random (--sample)."
        )
    if counts_versions(diagnosis):
        cosine = diagnosis.over_questions(lambda pool: pool.mean_cosine).value
        caveats.append(
            f"Any two candidates of a question have a high cosine ({cosine:.2f} in the mean), so "
            f"that {REDUNDANT_COSINE} means little; places were counted by versions, which are "
            f"read from the candidates."
        )
    if not diagnosis.is_seeded:
        caveats.append(
            "The store drew the chunks itself, so that another run draws others, whatever --seed."
        )
    return tuple(caveats)


def sentences_of(recommendation: Recommendation) -> Sequence[str]:
    """Return everything that is said, in order."""
    return (
        recommendation.headline,
        *recommendation.reasons,
        *recommendation.fine_tuning,
        *recommendation.caveats,
    )
