"""One document under every mode: bits per byte, seconds, and what a policy would have seen."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from benchmarks.policy_data import Document
from sift_core import AnswerMode, CandidatePool, Query
from sift_core.answering import AnswerEngine, Choice, InContextAnswerer, fine_tuned
from sift_core.answering.cost_model import CostModel
from sift_core.answering.policy import Decision, PolicyFeatures

Row = dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """What one way cost for one document."""

    bits_per_byte: float
    seconds: float


def measure(
    engine: AnswerEngine, document: Document, query: np.ndarray, pool: CandidatePool
) -> Row:
    """Return one document's row: `arms`, each with bits per byte and seconds, and `features`.

    Fine-tuning is measured after a quarter, a half and all of the steps, each from a fresh
    adapter. The seconds are those of learning and of an answer's first token; choosing and scoring
    are left out.
    """
    choice = engine.choose_from(
        Query(text=document.text, embedding=query), pool, mode=AnswerMode.BOTH.value
    )
    query = choice.query
    reading = InContextAnswerer(language_model=engine.language_model, max_new_tokens=1)
    read, nothing = choice.chunks(choice.read), pool.take([])
    arms = {
        "base": _outcome(reading, query, nothing),
        "context": _outcome(reading, query, read),
    }
    for n in step_counts(engine.n_steps):
        texts = choice.chunks(choice.learned).texts[:n]
        begin = time.perf_counter()
        with fine_tuned(engine.language_model, texts, engine.settings):
            learning_s = time.perf_counter() - begin
            arms[f"fine_tune {n}"] = _outcome(reading, query, nothing, learning_s)
            if n == engine.n_steps:
                arms["both"] = _outcome(reading, query, read, learning_s)
    return {
        "part": "documents",
        "id": document.document_id,
        "domain": document.domain,
        "arms": {name: asdict(outcome) for name, outcome in arms.items()},
        "features": asdict(known_of(engine, choice)),
    }


def known_of(engine: AnswerEngine, choice: Choice) -> PolicyFeatures:
    """Return what a policy would know of a document that is to be scored, but the seconds."""
    reading = _Scoring(language_model=engine.language_model, max_new_tokens=1)
    read, learned = choice.chunks(choice.read), choice.chunks(choice.learned)
    features = reading.features(choice.query, read, learned)
    return replace(features, question_tokens=reading.language_model.n_tokens(choice.query.text))


class _Scoring(InContextAnswerer):
    """Leaves chunks the room that they have beside a text that is scored."""

    def room(self, prompt: str) -> int:
        return self.room_for_chunks(prompt)


def known(row: Row, costs: CostModel) -> PolicyFeatures:
    """Return what is known of a row, with the cost model that predicts seconds."""
    lists = {name: tuple(row["features"][name]) for name in ("variances_learned", "learn_tokens")}
    features = PolicyFeatures(**{**row["features"], **lists})
    return replace(features, cost_model=costs)


def of_mode(row: Row, mode: AnswerMode) -> Outcome:
    """Return what a mode with all its steps cost."""
    return Outcome(**row["arms"][arm_of(row, mode)])


def arm_of(row: Row, mode: AnswerMode) -> str:
    """Return the name of a mode's arm with all its steps."""
    if mode is AnswerMode.FINE_TUNE:
        return f"fine_tune {len(row['features']['learn_tokens'])}"
    return mode.value


def of_decision(row: Row, decision: Decision) -> Outcome:
    """Return what a decision cost; between measured numbers of steps on a straight line.

    Raises:
        ValueError: For "both" with fewer steps, which is not measured.
    """
    if decision.n_steps is None:
        return of_mode(row, decision.mode)
    if decision.mode is not AnswerMode.FINE_TUNE:
        raise ValueError(f"{decision.mode} is measured with all steps alone")
    counts = [0, *step_counts(len(row["features"]["learn_tokens"]))]
    arms = [row["arms"]["base" if n == 0 else f"fine_tune {n}"] for n in counts]
    bits, seconds = (
        float(np.interp(decision.n_steps, counts, [arm[name] for arm in arms]))
        for name in ("bits_per_byte", "seconds")
    )
    return Outcome(bits, seconds)


def step_counts(n_steps: int) -> list[int]:
    """Return the numbers of steps after which fine-tuning is measured."""
    return sorted({max(1, n_steps // 4), max(1, n_steps // 2), n_steps})


def _outcome(
    reading: InContextAnswerer, query: Query, read: CandidatePool, learning_s: float = 0.0
) -> Outcome:
    """Return the score of the query's text, and the seconds to the first token after it."""
    begin = time.perf_counter()
    reading.answer(query, read)
    seconds = learning_s + time.perf_counter() - begin
    return Outcome(reading.bits_per_byte(query.text, read), seconds)
