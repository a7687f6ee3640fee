"""A model that has learned what was chosen: one fine-tuning, many questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import numpy as np

from sift_core.answering.answer import Answer
from sift_core.answering.answer_spans import learn_span, learned, read_span
from sift_core.answering.choosing import Choice, LearningOptions, check_mode
from sift_core.answering.cost_model import BEFOREHAND, READING
from sift_core.answering.in_context import InContextAnswerer
from sift_core.answering.model.fair_lock import Submit
from sift_core.answering.model.text_model import RefusalWriter
from sift_core.answering.report import FineTuningReport
from sift_core.answering.streams import (
    AnswerStream,
    AsyncAnswerStream,
    OnStep,
    OnText,
    Produce,
    cancellable,
)
from sift_core.checks import check_question
from sift_core.errors import InvalidInputError
from sift_core.explanation import Pick
from sift_core.progress import timed
from sift_core.types import AnswerMode, CandidatePool, Message, Query

if TYPE_CHECKING:  # a server's model needs no torch
    from sift_core.answering.fine_tuning import FineTuned
    from sift_core.answering.model.adapters import Adapter
    from sift_core.answering.model.prefix_cache import Prefix

N_NEAREST = 3  # candidates that a refusal shows

# Whether something was read, and learned → the mode that an answer came to be in.
_MODES = {
    (False, False): AnswerMode.BASE,
    (True, False): AnswerMode.CONTEXT,
    (False, True): AnswerMode.FINE_TUNE,
    (True, True): AnswerMode.BOTH,
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Session:
    """Answers questions from what was chosen, read and learned once.

    Made by `AnswerEngine.session` and `AnswerEngine.prepare`. Any number of threads and asyncio
    tasks may ask at once; each answer is the one that it would be alone. Questions do not see one
    another unless `history` says what was said. An answer's `standard_deviation` is that at the
    question which the session was opened with, and its `timings` are its own. The session's
    memory is free when nobody refers to it any more.

    Args:
        choice: Mode, reasons and documents.
        answerer: How questions are put and answers generated.
        tuned: What was learned; None if nothing was.
        adapter: What was learned from the collection beforehand, in the modes that use it.
        timings: Seconds by stage, of choosing and learning.

    Example:
        >>> session = engine.session("When does the ferry sail?", mode="context")
        >>> [session.answer(one).mode.value for one in ("When does it sail?", "From where?")]
        ['context', 'context']
    """

    choice: Choice
    answerer: InContextAnswerer
    tuned: FineTuned | None
    timings: Mapping[str, float]
    adapter: Adapter | None = None

    @property
    def report(self) -> FineTuningReport | None:
        """Return how the model learned; None if it did not."""
        return None if self.tuned is None else self.tuned.report

    def answer(
        self,
        question: str | Query,
        *,
        history: Sequence[Message] | None = None,
        on_text: OnText | None = None,
        **generation: Any,
    ) -> Answer:
        """Return the answer to a question.

        Args:
            question: In words, not empty; a `Query` brings its own history.
            history: What was said before, oldest first; the session's own if None.
            on_text: Called with each piece of the answer's text as it comes.
            **generation: How to generate, for this answer alone.

        Raises:
            InvalidInputError: If the question is empty or too long for the window.
            AnswerError: If the model fails.
        """
        query = self._query(question, history)
        answerer = self.answerer.with_generation(**generation)
        with self._adapted():
            answer = answerer.answer(query, self._read, on_text=on_text)
        return self._complete(answer)

    async def aanswer(
        self, question: str, *, history: Sequence[Message] | None = None, **generation: Any
    ) -> Answer:
        """Return what `answer` returns, without blocking the event loop."""
        async with self.astream(question, history=history, **generation) as stream:
            return await stream.answer()

    def answers(self, questions: Sequence[str], **generation: Any) -> list[Answer]:
        """Return the answers to several questions, computed as one batch.

        Faster than one after another where the machine has memory for all of them. Greedy texts
        are the same but for ties within rounding.

        Raises:
            InvalidInputError: If a question is empty or too long for the window.
            AnswerError: If the model fails.
        """
        if isinstance(questions, str):
            raise InvalidInputError("`questions` must be a sequence of questions, got one text")
        try:
            questions = list(questions)
        except TypeError as error:
            raise InvalidInputError(
                f"`questions` must be a sequence of questions: {error}"
            ) from error
        queries = [self._query(question) for question in questions]
        answerer = self.answerer.with_generation(**generation)
        with self._adapted():
            answers = answerer.answers(queries, self._read)
        return [self._complete(answer) for answer in answers]

    def stream(
        self, question: str, *, history: Sequence[Message] | None = None, **generation: Any
    ) -> AnswerStream:
        """Return the answer in pieces of text, as the model writes it, in another thread."""
        return AnswerStream(*self._produce(question, history, generation))

    def astream(
        self, question: str, *, history: Sequence[Message] | None = None, **generation: Any
    ) -> AsyncAnswerStream:
        """Return the answer in pieces of text, as the model writes it."""
        return AsyncAnswerStream(*self._produce(question, history, generation))

    def bits_per_byte(self, text: str, *, opening: str = "") -> float:
        """Return the code length of `text` after all that was read and learned, in bits per byte.

        Args:
            text: What the chosen documents should help to predict; lower is better. It must not
                be among them, or the figure says how well the model copies.
            opening: What stands right before it and does not count.

        Raises:
            InvalidInputError: If `text` is empty.
        """
        with self._adapted():
            return self.answerer.bits_per_byte(text, self._read, opening=opening)

    def answer_bits_per_byte(self, answer: str) -> float:
        """Return the code length of an answer to the question that the session was opened with.

        In bits per byte, after the prompt that the model would write behind.

        Raises:
            InvalidInputError: If `answer` is empty, or the question does not fit into the window.
        """
        with self._adapted():
            return self.answerer.answer_bits_per_byte(self.choice.query, self._read, answer)

    def with_prefix_read(self) -> Session:
        """Return this session with what all of its prompts begin with read once and for all.

        The chunks, where they are read, no other history precedes them, and all fit; and where
        the model itself writes.

        Raises:
            AnswerError: If the model fails.
        """
        timings = dict(self.timings)
        with timed(timings, "read"), read_span(self.answerer.language_model.name):
            answerer = replace(self.answerer, prefix=self._prefix())
        return replace(self, answerer=answerer, timings=timings)

    def _prefix(self) -> Prefix | None:
        answerer, query = self.answerer, self.choice.query
        if not len(self._read) or answerer.generator is not None:
            return None
        # Questions that begin unlike one another: what their prompts share is what precedes them.
        others = [replace(query, text=text) for text in (query.text, "0", "A")]
        prompts = [
            answerer.prompt_ids(answerer.prompt_for(o, answerer.used(o, self._read)))
            for o in others
        ]
        with self._adapted():
            return answerer.local_model.read(_common_beginning(prompts))

    @property
    def _read(self) -> CandidatePool:
        return self.choice.chunks(self.choice.read)

    def _adapted(self) -> AbstractContextManager[None]:
        learned = self.adapter if self.tuned is None else self.tuned.adapter
        return self.answerer.language_model.adapted(learned)

    def _query(self, question: str | Query, history: Sequence[Message] | None = None) -> Query:
        if isinstance(question, Query):
            return question
        check_question(question)
        query = self.choice.query
        return replace(query, text=question, history=query.history if history is None else history)

    def _produce(
        self, question: str, history: Sequence[Message] | None, generation: Mapping[str, Any]
    ) -> tuple[Produce, Submit]:
        """Return the computation of an answer, checked before it, and what runs it."""
        query, answerer = self._query(question, history), self.answerer
        answerer.with_generation(**generation).check(query)
        settings = {**answerer.generation, **generation}
        produce = cancellable(lambda _, **options: self.answer(query, **options), settings)
        return produce, answerer.language_model.submit

    def _complete(self, answer: Answer) -> Answer:
        """Return an answer with what the choice says of it."""
        choice, read, report = self.choice, answer.chunks, self.report
        reasons = choice.reasons
        learned = choice.pool.take([])
        if report is not None:
            learned = choice.chunks(choice.learned).take(report.learned)
            reasons += report.warnings
        if read is None or not len(read):
            read = choice.pool.take([])
            if choice.mode in READING:
                reasons += ("none of the chosen chunks fits into the window",)
        used = CandidatePool.concatenate([read, learned])
        return replace(
            answer,
            mode=_MODES[len(read) > 0, len(learned) > 0] if self.adapter is None else choice.mode,
            chunks=used,
            n_read=len(read),
            standard_deviation=choice.standard_deviation(used),
            reasons=reasons,
            fine_tuning=report,
            effort=choice.effort,
            is_refusal=choice.refuses,
            searched_for=choice.searched_for,
            picks=_picks(choice, used),
            stop_reason=None if choice.read is None else choice.read.stop_reason,
            missing_names=() if choice.read is None else choice.read.missing_names,
            nearest=_nearest(choice.pool) if choice.refuses else None,
            unrelated_cosine=choice.unrelated_cosine,
            left_out=() if choice.read is None else choice.read.left_out,
        )


def prepare_session(
    choice: Choice,
    answerer: InContextAnswerer,
    learning: LearningOptions,
    *,
    on_step: OnStep | None = None,
) -> Session:
    """Return a session whose model has learned what was chosen, now or before.

    Args:
        choice: From `make_choice`, in any mode.
        answerer: Puts questions and generates.
        learning: How the model learns, its cache, and what it learned beforehand.
        on_step: Called after each training step with the loss before it.

    Raises:
        InvalidInputError: If the choice has to learn, and whoever writes does not take it.
        AnswerError: If fine-tuning fails; the model is as before.
    """
    check_mode(choice.mode, answerer, learning.adapter)
    tuned = None
    timings = dict(choice.timings)
    lessons = choice.chunks(choice.learned)
    if len(lessons):
        from sift_core.answering.adapter_cache import fine_tune_cached

        language_model = answerer.local_model
        settings = learning.settings_of(choice.effort).within(choice.seconds_to_learn())
        name = language_model.name
        with timed(timings, "fine_tune"), learn_span(name, len(lessons)) as span:
            tuned = fine_tune_cached(
                language_model, lessons, settings, learning.cache, on_step=on_step
            )
            language_model.verify_base()
            learned(span, tuned.report)
    if choice.refuses:
        answerer = replace(answerer, generator=RefusalWriter())
    return Session(
        choice=choice,
        answerer=answerer,
        tuned=tuned,
        adapter=learning.adapter if choice.mode in BEFOREHAND else None,
        timings=timings,
    )


def _nearest(pool: CandidatePool) -> CandidatePool:
    return pool.take(np.argsort(-pool.similarities, kind="stable")[:N_NEAREST])


def _picks(choice: Choice, used: CandidatePool) -> tuple[Pick, ...]:
    """Return why each used chunk was chosen: to be read, else to be learned from."""
    picks: dict[tuple[str, str], Pick] = {}
    for chosen in (choice.read, choice.learned):
        if chosen is not None:
            for key, pick in zip(chosen.chunks.chunk_keys, chosen.picks, strict=True):
                picks.setdefault(key, pick)
    return tuple(picks[key] for key in used.chunk_keys)


def _common_beginning(rows: Sequence[Sequence[int]]) -> list[int]:
    """Return what all rows begin with."""
    return [column[0] for column in takewhile(lambda c: len(set(c)) == 1, zip(*rows, strict=False))]
