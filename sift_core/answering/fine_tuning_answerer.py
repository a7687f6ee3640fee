"""Answering by query-time fine-tuning: learn from the chunks, answer the question alone."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

from sift_core.answering.in_context import InContextAnswerer
from sift_core.answering.learning.fine_tuning import fine_tuned
from sift_core.answering.learning.settings import FineTuningSettings
from sift_core.answering.model.language_model import LanguageModel
from sift_core.types import Answer, AnswerMode, CandidatePool, Query


@dataclass(frozen=True, kw_only=True)
class FineTuningAnswerer:
    """Learns from the chunks, answers the question alone, and forgets them.

    Concurrent answers of one model take turns and do not see each other's adapters.

    Args:
        language_model: The model that learns and answers.
        settings: How it learns; the paper's if left out.
        max_new_tokens: Length of an answer at most.
    """

    language_model: LanguageModel
    settings: FineTuningSettings = field(default_factory=FineTuningSettings)
    max_new_tokens: int = 64

    def answer(self, query: Query, chunks: CandidatePool) -> Answer:
        """Return the fine-tuned model's continuation of the question.

        Costs a forward and backward pass a chunk, repeats counted, and the generation.

        Raises:
            InvalidInputError: If question and answer do not fit into the window.
            AnswerError: If learning or generating fails; the model is as before.
        """
        answerer = InContextAnswerer(
            language_model=self.language_model, max_new_tokens=self.max_new_tokens
        )
        nothing = chunks.take([])
        # before the work
        self.language_model.check_prompt(answerer.prompt(query, nothing), self.max_new_tokens)
        started = time.perf_counter()
        with fine_tuned(self.language_model, chunks.texts, self.settings) as tuned:
            learned_s = time.perf_counter() - started
            answer = answerer.answer(query, nothing)
        learned = tuned.report.learned
        return replace(
            answer,
            mode=AnswerMode.FINE_TUNE if learned else AnswerMode.BASE,
            chunks=chunks.take(learned),
            reasons=tuned.report.warnings,
            timings={"fine_tune": learned_s, **answer.timings},
            fine_tuning=tuned.report,
        )

    def bits_per_byte(self, text: str, chunks: CandidatePool) -> float:
        """Return the code length of `text` under the fine-tuned model, in bits per byte."""
        with fine_tuned(self.language_model, chunks.texts, self.settings):
            return self.language_model.bits_per_byte(text)
