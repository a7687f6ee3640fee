"""A model that is ready for questions: it has learned what was chosen, and knows what to read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

import numpy as np

from sift_core.answering.in_context import InContextAnswerer
from sift_core.answering.learning.fine_tuning import FineTuned
from sift_core.answering.policy_features import READING
from sift_core.answering.request import Choice
from sift_core.answering.streams import Produce, followed
from sift_core.selection import posterior_variances
from sift_core.types import Answer, AnswerMode, CandidatePool, Query


@dataclass(frozen=True, kw_only=True, eq=False)
class PreparedModel:
    """A model that has learned what was chosen, and reads what was chosen before it answers.

    Made by `AnswerEngine.prepared`. Any thread may use it, also several at once. Its memory is
    free when nobody refers to it any more.

    Args:
        choice: What is read and what was learned from.
        answerer: How questions are put and answers generated.
        tuned: What was learned; None if nothing was.
        timings: Seconds by stage, so far.
    """

    choice: Choice
    answerer: InContextAnswerer
    tuned: FineTuned | None
    timings: Mapping[str, float]

    def answer(
        self,
        query: Query,
        chunks: CandidatePool | None = None,
        *,
        on_text: Callable[[str], object] | None = None,
        **generation: Any,
    ) -> Answer:
        """Return the answer to a question, usually the one that the choice was made for.

        Args:
            query: The question.
            chunks: What to read, in order of choice; what was chosen if None.
            on_text: Called with each piece of the text as it comes.
            **generation: How to generate, over what the engine says.

        Raises:
            InvalidInputError: If the question is too long for the window.
            AnswerError: If the model fails.
        """
        answerer = self.answerer.generating(**generation)
        with self._adapted():
            read = self._read if chunks is None else chunks
            answer = answerer.answer(query, read, on_text=on_text)
        return self._completed(answer)

    def answers(self, queries: Sequence[Query], **generation: Any) -> list[Answer]:
        """Return the answers to several questions, computed as one batch.

        Raises:
            InvalidInputError: If a question is too long for the window.
            AnswerError: If the model fails.
        """
        answerer = self.answerer.generating(**generation)
        with self._adapted():
            answers = answerer.answers(queries, self._read)
        return [self._completed(answer) for answer in answers]

    def streamed(self, query: Query, **generation: Any) -> Produce:
        """Return the computation of `answer` that a stream reads and may end at any token.

        Raises:
            InvalidInputError: If the question is too long for the window.
        """
        self.answerer.generating(**generation).check(query)
        settings = {**self.answerer.generation, **generation}
        return followed(lambda _, **options: self.answer(query, **options), settings)

    def bits_per_byte(self, text: str) -> float:
        """Return the code length of `text` in bits per byte; lower is better.

        Args:
            text: What the chosen documents should help to predict. It must not be among
                them, or the figure says how well the model copies.

        Raises:
            InvalidInputError: If `text` is empty.
        """
        with self._adapted():
            return self.answerer.bits_per_byte(text, self._read)

    def with_prefix_read(self) -> PreparedModel:
        """Return this model with what all of its prompts begin with read once and for all.

        Raises:
            AnswerError: If the model fails.
        """
        if not len(self._read):
            return self
        answerer, query = self.answerer, self.choice.query
        others = [replace(query, text=text) for text in (query.text, "0", "A")]
        prompts = [
            answerer.language_model.prompt_ids(answerer.prompt(o, answerer.used(o, self._read)))
            for o in others
        ]
        with self._adapted():
            prefix = answerer.language_model.read(_common_beginning(prompts))
        return replace(self, answerer=replace(answerer, prefix=prefix))

    @property
    def _read(self) -> CandidatePool:
        return self.choice.chunks(self.choice.read)

    def _adapted(self) -> AbstractContextManager[None]:
        learned = None if self.tuned is None else self.tuned.adapter
        return self.answerer.language_model.adapted(learned)

    def _completed(self, answer: Answer) -> Answer:
        """Return an answer with what is known of the choice."""
        choice, read, report = self.choice, answer.chunks, None
        reasons = choice.reasons
        learned = choice.pool.take([])
        if self.tuned is not None:
            report = self.tuned.report
            learned = choice.chunks(choice.learned).take(report.learned)
            reasons += report.warnings
        if read is None or not len(read):
            read = choice.pool.take([])
            if choice.mode in READING:
                reasons += ("none of the chosen chunks fits into the window",)
        used = _joined(read, learned)
        return replace(
            answer,
            mode=_mode(reads=len(read) > 0, learns=len(learned) > 0),
            chunks=used,
            n_read=len(read),
            standard_deviation=_standard_deviation(choice.query, used),
            reasons=reasons,
            timings={**self.timings, **answer.timings},
            fine_tuning=report,
        )


def _mode(*, reads: bool, learns: bool) -> AnswerMode:
    """Return the mode that an answer came to be in."""
    if learns:
        return AnswerMode.BOTH if reads else AnswerMode.FINE_TUNE
    return AnswerMode.CONTEXT if reads else AnswerMode.BASE


def _standard_deviation(query: Query, used: CandidatePool) -> float:
    """Return σ at the query given these documents; NaN without any."""
    if not len(used):
        return float("nan")
    return float(posterior_variances(query.vector, used.embeddings)[-1] ** 0.5)


def _common_beginning(rows: Sequence[Sequence[int]]) -> list[int]:
    """Return what all rows begin with."""
    return [column[0] for column in takewhile(lambda c: len(set(c)) == 1, zip(*rows, strict=False))]


def _joined(first: CandidatePool, second: CandidatePool) -> CandidatePool:
    """Return the rows of both pools, repeats kept."""
    if not len(first) or not len(second):
        return second if len(second) else first
    return CandidatePool(
        document_ids=[*first.document_ids, *second.document_ids],
        texts=[*first.texts, *second.texts],
        embeddings=np.concatenate([first.embeddings, second.embeddings]),
        similarities=np.concatenate([first.similarities, second.similarities]),
        metadata=[*first.metadata, *second.metadata],
    )
