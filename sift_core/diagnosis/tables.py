"""The numbers of a diagnosis as tables, for a terminal and a web page, and as a JSON record."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from sift_core.diagnosis import pool_measures, trial
from sift_core.diagnosis.duplicates import NEAR_DUPLICATE_COSINE
from sift_core.diagnosis.measuring import Diagnosis
from sift_core.diagnosis.pool_measures import N_SELECT, REDUNDANT_COSINE, PoolMeasures, TopTen
from sift_core.diagnosis.recommendation import Recommendation
from sift_core.diagnosis.verdict import freed_places, repeated_places
from sift_core.evaluation.analysis.statistics import CONFIDENCE, Estimate
from sift_core.evaluation.analysis.table import Cell, Table, missing, number, word
from sift_core.types import AnswerMode

_INTERVALS = f"In brackets: {CONFIDENCE:.0%} bootstrap intervals over".replace("%", " %")

_OF_TEN: tuple[tuple[str, Callable[[TopTen], float], int], ...] = (
    ("repeats", lambda ten: ten.n_redundant, 1),
    ("versions of one text", lambda ten: ten.n_versions, 1),
    ("σ² left", lambda ten: ten.variance, 2),
)
_OF_POOL: tuple[tuple[str, str, Callable[[PoolMeasures], float], int], ...] = (
    ("candidates", "candidates", lambda pool: pool.n_candidates, 0),
    ("contents", "different texts among them", lambda pool: pool.n_contents, 0),
    ("effective_number", "effective number", lambda pool: pool.effective_number, 0),
    ("mean_cosine", "cosine of two different texts", lambda pool: pool.mean_cosine, 2),
    ("variance_floor", "σ² that no choice removes", lambda pool: pool.floor, 2),
)


_NAMES = {
    AnswerMode.BASE: "model alone",
    AnswerMode.CONTEXT: "reading",
    AnswerMode.FINE_TUNE: "fine-tuning",
}


def tables_of(diagnosis: Diagnosis) -> dict[str, Table]:
    """Return the tables by subject: "places", "pools", "copies" and "trial", as far as measured.

    A table has `as_text`, `as_markdown`, `as_html` and `as_records`.
    """
    found: dict[str, Table] = {}
    if diagnosis.pools:
        found["places"] = _places(diagnosis)
        found["pools"] = _pools(diagnosis)
    if diagnosis.duplicates is not None:
        found["copies"] = _copies(diagnosis)
    if diagnosis.trial is not None:
        found["trial"] = _trial(diagnosis.trial)
    return found


def as_record(diagnosis: Diagnosis, recommendation: Recommendation) -> dict[str, Any]:
    """Return everything as plain values that JSON can hold: what `sift diagnose --json` prints.

    Args:
        diagnosis: What was measured; chunks of the questions are listed by id.
        recommendation: What it means.
    """
    found: dict[str, Any] = {
        "verdict": recommendation.verdict.value,
        "headline": recommendation.headline,
        "reasons": list(recommendation.reasons),
        "fine_tuning": list(recommendation.fine_tuning),
        "caveats": list(recommendation.caveats),
        "n_stored": diagnosis.n_stored,
        "n_sampled": diagnosis.n_sampled,
        "stand_ins": diagnosis.are_stand_ins,
        "seed": diagnosis.seed,
    }
    if diagnosis.duplicates is not None:
        found["near_duplicates"] = _estimate(diagnosis.duplicates.near)
        found["exact_copies"] = _estimate(diagnosis.duplicates.exact)
    if diagnosis.pools:
        found["places_repeated"] = _estimate(repeated_places(diagnosis))
        found["places_freed"] = _estimate(freed_places(diagnosis))
        for name, _, measure, _ in _OF_POOL:
            found[name] = _estimate(diagnosis.over_questions(measure))
        found["questions"] = [pool_measures.as_record(pool) for pool in diagnosis.pools]
    if diagnosis.trial is not None:
        found["trial"] = trial.as_records(diagnosis.trial)
    return found


def _places(diagnosis: Diagnosis) -> Table:
    rows = [_place_row(diagnosis, *line) for line in _OF_TEN]
    return Table(
        title=f"The {N_SELECT} chosen chunks, {_averaged(diagnosis)}; lower is better",
        heads=("", f"nearest {N_SELECT}", "SIFT", "difference"),
        rows=tuple(rows),
        note=f"Repeat: cosine of {REDUNDANT_COSINE} or more to an earlier chunk. Version: nearly "
        f"the same text as a more relevant candidate. σ²: how much of the question stays "
        f"unexplained, 0 to 1. {_INTERVALS} questions.",
    )


def _averaged(diagnosis: Diagnosis) -> str:
    n = len(diagnosis.pools)
    return "one question" if n == 1 else f"average of {n} questions"


def _place_row(
    diagnosis: Diagnosis, name: str, measure: Callable[[TopTen], float], digits: int
) -> tuple[Cell, ...]:
    nearest = diagnosis.over_questions(lambda pool: measure(pool.nearest))
    sift = diagnosis.over_questions(lambda pool: measure(pool.sift))
    difference = diagnosis.over_questions(lambda pool: measure(pool.sift) - measure(pool.nearest))
    return word(name), _cell(nearest, digits), _cell(sift, digits), _cell(difference, digits, "+")


def _pools(diagnosis: Diagnosis) -> Table:
    rows = []
    for _, name, measure, digits in _OF_POOL:
        values = [measure(pool) for pool in diagnosis.pools]
        mean = _cell(diagnosis.over_questions(measure), digits)
        rows.append((word(name), mean, number(min(values), digits), number(max(values), digits)))
    return Table(
        title="What a question has to choose from",
        heads=("", "average", "lowest", "highest"),
        rows=tuple(rows),
        note=f"Candidates: the chunks nearest to the question. Effective number: to how many "
        f"chunks with nothing in common they amount. {_INTERVALS} questions.",
    )


def _copies(diagnosis: Diagnosis) -> Table:
    found = diagnosis.duplicates
    assert found is not None
    lines = (
        ("with an exact copy", found.exact),
        (f"with a near-copy (cosine ≥ {NEAR_DUPLICATE_COSINE})", found.near),
    )
    return Table(
        title=f"Copies: {found.near.n:,} random chunks of {diagnosis.n_stored:,}",
        heads=("", "% of chunks"),
        rows=tuple((word(name), _percent(share)) for name, share in lines),
        note=f"{_INTERVALS} chunks.",
    )


def _trial(found: trial.Trial) -> Table:
    rows = []
    for mode in trial.MODES:
        is_base = mode is AnswerMode.BASE
        against = missing() if is_base else _cell(found.difference(mode, AnswerMode.BASE), 3, "+")
        cells = (_cell(found.bits_per_byte(mode), 3), against, number(found.seconds(mode), 1))
        rows.append((word(_NAMES[mode]), *cells))
    return Table(
        title=f"{len(found.passages)} held-back passages, fewer bits per byte are better",
        heads=("", "bits per byte", "difference to alone", "seconds, median"),
        rows=tuple(rows),
        note=f"{_INTERVALS} passages; where that of a difference holds 0, there may be none. At "
        f"most {found.n_steps} training steps.",
    )


def _cell(estimate: Estimate, digits: int, sign: str = "") -> Cell:
    def shown(value: float) -> str:
        return f"{round(value, digits) + 0.0:{sign}.{digits}f}"

    text = shown(estimate.value)
    if math.isfinite(estimate.low):
        text += f" [{shown(estimate.low)}, {shown(estimate.high)}]"
    return Cell(text=text, value=estimate.value)


def _percent(share: Estimate) -> Cell:
    scaled = {name: 100 * getattr(share, name) for name in ("value", "low", "high")}
    return _cell(Estimate(**scaled, standard_error=math.nan, n=share.n), 1)


def _estimate(estimate: Estimate) -> Mapping[str, float | int | None]:
    """Return an estimate for JSON, which has no NaN."""
    return {
        "mean": estimate.value,
        "low": None if math.isnan(estimate.low) else estimate.low,
        "high": None if math.isnan(estimate.high) else estimate.high,
        "n": estimate.n,
    }
