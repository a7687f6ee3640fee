"""What is settled about a question before the model runs, and the model that is ready for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sift_core.answering.in_context import InContextAnswerer
from sift_core.selection import posterior_variances
from sift_core.types import Answer, AnswerMode, CandidatePool, Query, Selection

READING = (AnswerMode.CONTEXT, AnswerMode.BOTH)
LEARNING = (AnswerMode.FINE_TUNE, AnswerMode.BOTH)


@dataclass(frozen=True, kw_only=True, eq=False)
class Choice:
    """Everything that is settled about a question before the model runs.

    Args:
        query: The question.
        mode: Never AUTO.
        reasons: Why this mode, one sentence each.
        pool: The candidates; empty in base mode.
        read: What goes into the prompt; None if nothing does.
        learned: What is learned from, in order, repeats included; None if nothing is.
        timings: Seconds by stage.
    """

    query: Query
    mode: AnswerMode
    reasons: tuple[str, ...]
    pool: CandidatePool
    read: Selection | None
    learned: Selection | None
    timings: Mapping[str, float]

    def chunks(self, selection: Selection | None) -> CandidatePool:
        """Return the documents of `read` or `learned` in order of choice."""
        return self.pool.take([] if selection is None else selection.positions)


@dataclass(frozen=True, kw_only=True, eq=False)
class PreparedModel:
    """A model that has learned what was chosen, and reads what was chosen before it answers.

    Made by `AnswerEngine.prepared` and of use only inside its `with` block.
    """

    choice: Choice
    answerer: InContextAnswerer
    timings: Mapping[str, float]

    def answer(
        self,
        query: Query,
        *,
        on_text: Callable[[str], object] | None = None,
        **generation: Any,
    ) -> Answer:
        """Return the answer to a question, usually the one that the choice was made for.

        Args:
            query: The question.
            on_text: Called with each piece of the text as it comes.
            **generation: How to generate, over what the engine says.

        Raises:
            InvalidInputError: If the question is too long for the window.
            AnswerError: If the model fails.
        """
        choice = self.choice
        answerer = self.answerer.generating(**generation)
        answer = answerer.answer(query, choice.chunks(choice.read), on_text=on_text)
        read = choice.pool.take([]) if answer.chunks is None else answer.chunks
        used = _joined(read, choice.chunks(choice.learned))
        mode, reasons = choice.mode, choice.reasons
        if mode in READING and not len(read):
            mode = AnswerMode.BASE if choice.learned is None else AnswerMode.FINE_TUNE
            reasons = (*reasons, "none of the chosen chunks fits into the window")
        variances = posterior_variances(choice.query.embedding, used.embeddings)
        return replace(
            answer,
            mode=mode,
            chunks=used,
            standard_deviation=float(variances[-1] ** 0.5) if len(used) else float("nan"),
            reasons=reasons,
            timings={**self.timings, **answer.timings},
        )

    def bits_per_byte(self, text: str) -> float:
        """Return the code length of `text` in bits per byte; lower is better.

        Args:
            text: What the chosen documents should help to predict. It must not be among
                them, or the figure says how well the model copies.

        Raises:
            InvalidInputError: If `text` is empty.
        """
        return self.answerer.bits_per_byte(text, self.choice.chunks(self.choice.read))


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
