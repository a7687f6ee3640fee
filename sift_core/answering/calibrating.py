"""Measures which way to answer is best for a collection, on passages of it or on questions.

A passage is held back: its first half is the question, its second the answer, and no candidate
repeats the second. More is not known of a collection without labels.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from sift_core.answering.calibration import Calibration, MeasuredExample, machine_of
from sift_core.answering.cost_model import CostModel
from sift_core.answering.engine import AnswerEngine
from sift_core.answering.learning.effort import EFFORTS, effort_for
from sift_core.answering.policy import READING, Way
from sift_core.answering.request import AnswerRequest, Choice
from sift_core.answering.sessions import Session
from sift_core.checks import as_count, as_number, check_question, check_text, short_repr
from sift_core.errors import InvalidInputError
from sift_core.protocols import SamplableSource
from sift_core.text_overlap import runs_in
from sift_core.types import AnswerMode, CandidatePool, Query

LEAST_EXAMPLES = 8  # guess: fewer say nothing
SHORTEST = 200  # characters of a passage, both halves together
# Of the answer's runs of words, what a candidate may have: a sentence is too much.
MOST_SHARED = 0.05
AIM_S = 40.0  # of measuring costs, so that long prompts are timed, too
N_SPARE = 20  # candidates beyond K, in place of those that are left out

OnExample: TypeAlias = Callable[[Calibration], object]


def calibrate(
    engine: AnswerEngine,
    *,
    n: int = 40,
    minutes: float = 10.0,
    questions: Sequence[tuple[str, str]] = (),
    seed: int = 0,
    on_example: OnExample | None = None,
) -> Calibration:
    """Return what every way to answer does for an engine's collection; mode "auto" can go by it.

    Holds passages back, with all that repeats them, and has each way predict their second
    half from the first: base, context, and learning and both with each effort up to the
    engine's. On a CPU an example takes some ten seconds with 135 M parameters.

    Args:
        engine: With `source` and `embedder`.
        n: How many examples at most, >= 8.
        minutes: After how many no other example begins, > 0.
        questions: Pairs of question and answer, in place of passages. Mode "merged" is
            measured on them alone: its adapters may have learned the passages.
        seed: Of the passages that are drawn.
        on_example: Called after each with the calibration so far. What it raises ends it.

    Raises:
        InvalidInputError: If the engine has no source or embedder, the source cannot draw
            documents, or fewer than eight examples could be measured.
        CandidateSourceError: If the store fails.
        AnswerError: If the model fails.
    """
    as_count("n", n, minimum=LEAST_EXAMPLES)
    as_number("minutes", minutes, above=0)
    if engine.source is None or engine.embedder is None:
        raise InvalidInputError("only an engine with `source` and `embedder` can be calibrated")
    end = time.monotonic() + 60 * minutes
    examples = _asked(questions, n) if questions else held_back(engine, n, seed)
    language_model = engine.language_model
    found = Calibration(
        ways=ways_of(engine, with_merged=bool(questions)),
        examples=(),
        cost_model=engine.cost_model
        or CostModel.measure(language_model, engine.settings, aim_s=AIM_S),
        model=language_model.name,
        fingerprint=language_model.fingerprint,
        machine=machine_of(language_model),
    )
    engine = replace(engine, adapter_cache=None)  # or what was learned before would take no time
    for example in examples:
        outcome = measured(engine, example, found.ways)
        if outcome is not None:
            found = replace(found, examples=(*found.examples, outcome))
            if on_example is not None:
                on_example(found)
        if len(found.examples) == n or time.monotonic() > end:
            break
    if (n_found := len(found.examples)) < LEAST_EXAMPLES:
        why = (
            f"{minutes:g} minutes were over"
            if time.monotonic() > end
            else f"no more {'questions' if questions else 'passages'} could be used"
        )
        raise InvalidInputError(
            f"a calibration needs {LEAST_EXAMPLES} examples; {why} after {n_found}. Give it more "
            f"time, documents of at least {SHORTEST} characters, or questions with answers"
        )
    return found


@dataclass(frozen=True, kw_only=True)
class Example:
    """What every way is measured on.

    Args:
        question: A question, or the first half of a text.
        answer: The answer, or the second half.
        is_text: Whether the two are halves of a text.
        held_back: Id of the passage of the collection that they are; None if it has none.
    """

    question: str
    answer: str
    is_text: bool = False
    held_back: str | None = None


def _asked(questions: Sequence[tuple[str, str]], n: int) -> Iterator[Example]:
    """Yield questions with answers, checked before any work."""
    if len(questions) < LEAST_EXAMPLES:
        raise InvalidInputError(
            f"`questions` must be at least {LEAST_EXAMPLES} pairs of question and answer, got "
            f"{len(questions)}"
        )
    examples = []
    for pair in questions:
        if not (isinstance(pair, tuple | list) and len(pair) == 2):
            raise InvalidInputError(
                f"`questions` must be pairs of question and answer, got {short_repr(pair)}"
            )
        check_question(pair[0])
        check_text("answer", pair[1])
        if not pair[1].strip():
            raise InvalidInputError(f"the answer to {short_repr(pair[0])} is empty")
        examples.append(Example(question=pair[0], answer=pair[1]))
    return iter(examples)


def held_back(engine: AnswerEngine, n: int, seed: int) -> Iterator[Example]:
    """Yield random passages of the store in two halves.

    Raises:
        InvalidInputError: If the store cannot draw documents.
    """
    if not isinstance(engine.source, SamplableSource):
        raise InvalidInputError(
            f"{type(engine.source).__name__} cannot draw documents (`sample`), which are held "
            f"back; pass `questions` with answers"
        )
    sample = engine.source.sample(4 * n, np.random.default_rng(seed))
    halves = []
    for passage_id, text in zip(sample.document_ids, sample.texts, strict=True):
        middle = text.find(" ", len(text) // 2)
        if len(text) >= SHORTEST and middle > 0 and text[:middle].strip() and text[middle:].strip():
            question, answer = text[:middle], text[middle:]
            halves.append(
                Example(question=question, answer=answer, is_text=True, held_back=passage_id)
            )
    return iter(halves)


def ways_of(engine: AnswerEngine, *, with_merged: bool) -> tuple[Way, ...]:
    """Return all ways that the engine can take.

    What was learned beforehand may hold a passage that is held back: it is measured on questions
    alone.
    """
    if engine.n_steps is not None:
        counts = [engine.n_steps]
    else:
        most = EFFORTS[engine.effort].n_steps
        counts = [one.n_steps for one in EFFORTS.values() if one.n_steps <= most]
    learning = [Way(mode, n) for n in counts for mode in (AnswerMode.FINE_TUNE, AnswerMode.BOTH)]
    merged = [Way(AnswerMode.MERGED)] if with_merged and engine.adapters is not None else []
    return (Way(AnswerMode.BASE), Way(AnswerMode.CONTEXT), *merged, *learning)


def measured(engine: AnswerEngine, example: Example, ways: Sequence[Way]) -> MeasuredExample | None:
    """Return an example in every way; None if nothing is left to choose from."""
    assert engine.source is not None  # checked, as the embedder
    assert engine.embedder is not None
    query = Query(text=example.question, embedding=engine.embedder.embed_query(example.question))
    pool = engine.source.fetch(query, engine.options.n_candidates + N_SPARE)
    if example.held_back is not None:
        pool = _without_passage(pool, example)
    pool = pool.take(range(min(len(pool), engine.options.n_candidates)))
    if not len(pool):
        return None
    choice = engine.choose_from(query, pool, mode=AnswerMode.BOTH)
    answerer = engine.answerer_for(AnswerRequest(question=example.question))
    features = answerer.features(query, choice.chunks(choice.read), choice.chunks(choice.learned))
    learned = {n: _learned(engine, choice, n) for n in {way.n_steps for way in ways}}
    bits, seconds = [], []
    for way in ways:
        session = learned[way.n_steps]
        if way.mode is AnswerMode.MERGED:
            session = engine.prepared(replace(choice, mode=way.mode, read=None, learned=None))
        read = choice.read if way.mode in READING else None
        session = replace(session, choice=replace(session.choice, mode=way.mode, read=read))
        begun = time.perf_counter()
        if example.is_text:
            bits.append(session.bits_per_byte(example.answer, opening=example.question))
        else:
            bits.append(session.answer_bits_per_byte(example.answer))
        seconds.append(session.timings.get("fine_tune", 0.0) + time.perf_counter() - begun)
    return MeasuredExample(bits_per_byte=tuple(bits), seconds=tuple(seconds), features=features)


def _learned(engine: AnswerEngine, choice: Choice, n_steps: int) -> Session:
    """Return the model after so many training steps."""
    learned = choice.learned.first(n_steps) if n_steps and choice.learned else None
    effort = effort_for(n_steps) if choice.effort else None
    return engine.prepared(replace(choice, learned=learned, effort=effort))


def _without_passage(pool: CandidatePool, example: Example) -> CandidatePool:
    """Return the candidates but the passage itself and what repeats its second half."""
    answer = runs_in(example.answer)
    kept = [
        row
        for row, text in enumerate(pool.texts)
        if pool.document_ids[row] != example.held_back
        and len(answer & runs_in(text)) <= MOST_SHARED * len(answer)
    ]
    return pool.take(kept)
