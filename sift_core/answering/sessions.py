"""One fine-tuning, many questions: a prepared model that answers in every way an engine does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sift_core.answering.prepared import PreparedModel
from sift_core.answering.request import Choice
from sift_core.answering.streams import AnswerStream, AsyncAnswerStream
from sift_core.checks import check_question
from sift_core.errors import InvalidInputError
from sift_core.types import Answer, FineTuningReport, Message, Query


@dataclass(frozen=True, kw_only=True, eq=False)
class Session:
    """Answers follow-up questions from what was chosen, read and learned once.

    Made by `AnswerEngine.session`. Any number of threads and asyncio tasks may ask at once;
    each answer is the one that it would be alone. Questions do not see one another unless
    `history` says what was said. What every prompt begins with (the chunks, where they are
    read, no other history precedes them, and all fit) is computed once. An answer's
    `standard_deviation` is that at the question which the session was opened with, and its
    `timings` are its own.

    Args:
        model: What was chosen and learned.
        timings: Seconds by stage, of choosing and learning.
    """

    model: PreparedModel
    timings: Mapping[str, float]

    @property
    def choice(self) -> Choice:
        """Return mode, reasons and documents."""
        return self.model.choice

    @property
    def report(self) -> FineTuningReport | None:
        """Return how the model learned; None if it did not."""
        return None if self.model.tuned is None else self.model.tuned.report

    def answer(
        self,
        question: str,
        *,
        history: Sequence[Message] | None = None,
        on_text: Callable[[str], object] | None = None,
        **generation: Any,
    ) -> Answer:
        """Return the answer to a question.

        Args:
            question: In words, not empty.
            history: What was said before, oldest first; the session's own if None.
            on_text: Called with each piece of the answer's text as it comes.
            **generation: How to generate, for this answer alone.

        Raises:
            InvalidInputError: If the question is empty or too long for the window.
            AnswerError: If the model fails.
        """
        query = self._query(question, history)
        return self.model.answer(query, on_text=on_text, **generation)

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
        return self.model.answers([self._query(one) for one in questions], **generation)

    def stream(
        self, question: str, *, history: Sequence[Message] | None = None, **generation: Any
    ) -> AnswerStream:
        """Return the answer in pieces of text, as the model writes it, in another thread."""
        produce = self.model.streamed(self._query(question, history), **generation)
        return AnswerStream(produce, self.model.answerer.language_model.submit)

    def astream(
        self, question: str, *, history: Sequence[Message] | None = None, **generation: Any
    ) -> AsyncAnswerStream:
        """Return the answer in pieces of text, as the model writes it."""
        produce = self.model.streamed(self._query(question, history), **generation)
        return AsyncAnswerStream(produce, self.model.answerer.language_model.submit)

    def bits_per_byte(self, text: str) -> float:
        """Return the code length of `text` after all that was read and learned, in bits per byte.

        Raises:
            InvalidInputError: If `text` is empty.
        """
        return self.model.bits_per_byte(text)

    def close(self) -> None:
        """End the session; its memory is free when nobody refers to it any more."""

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(self, *error: object) -> None:
        self.close()

    def _query(self, question: str, history: Sequence[Message] | None = None) -> Query:
        check_question(question)
        query = self.choice.query
        return replace(query, text=question, history=query.history if history is None else history)
