"""Answering by query-time fine-tuning: learn from the chunks, answer the question alone."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from sift_core.answering.in_context import InContextAnswerer
from sift_core.answering.learning.adapter_cache import AdapterCache, adapter_key
from sift_core.answering.learning.fine_tuning import FineTuned, fine_tune
from sift_core.answering.learning.settings import FineTuningSettings
from sift_core.answering.model.language_model import LanguageModel
from sift_core.types import Answer, AnswerMode, CandidatePool, Query


@dataclass(frozen=True, kw_only=True, eq=False)
class FineTuningAnswerer:
    """Learns from the chunks, answers the question alone, and forgets them.

    Concurrent answers of one model take turns and do not see each other's adapters.

    Args:
        language_model: The model that learns and answers.
        settings: How it learns; the paper's if left out.
        max_new_tokens: Length of an answer at most.
        adapter_cache: Keeps what was learned, for the next time that the same chunks are; None
            for none.
    """

    language_model: LanguageModel
    settings: FineTuningSettings = field(default_factory=FineTuningSettings)
    max_new_tokens: int = 64
    adapter_cache: AdapterCache | None = None

    def learn(
        self,
        chunks: CandidatePool,
        *,
        max_seconds: float | None = None,
        on_step: Callable[[float], object] | None = None,
    ) -> FineTuned:
        """Return what the model learns from the chunks, or learned from them before.

        Costs a forward and backward pass a chunk, repeats counted. The model is as before.

        Args:
            chunks: What to learn, in order.
            max_seconds: Time after which no further step begins, beside that of the settings.
            on_step: Called after each step with the loss before it.

        Raises:
            AnswerError: If fine-tuning fails.
        """
        settings, cache = self.settings, self.adapter_cache
        if max_seconds is not None:
            seconds = min(max_seconds, settings.max_seconds or math.inf)
            settings = replace(settings, max_seconds=seconds)
        if cache is None or settings.kind == "full":
            return fine_tune(self.language_model, chunks.texts, settings, on_step=on_step)
        model = self.language_model
        key = adapter_key(
            base=model.fingerprint if cache.is_on_disk else model.identity,
            tokenizer=model.tokenizer,
            document_ids=chunks.document_ids,
            texts=chunks.texts,
            settings=settings,
        )
        found = cache.get(key)
        if found is not None:
            return FineTuned(adapter=found.adapter, report=found.report)
        tuned = fine_tune(model, chunks.texts, settings, on_step=on_step, key=key)
        cache.put(key, tuned.adapter, tuned.report)
        return tuned

    def answer(self, query: Query, chunks: CandidatePool) -> Answer:
        """Return the fine-tuned model's continuation of the question.

        Raises:
            InvalidInputError: If question and answer do not fit into the window.
            AnswerError: If learning or generating fails; the model is as before.
        """
        answerer = InContextAnswerer(
            language_model=self.language_model, max_new_tokens=self.max_new_tokens
        )
        answerer.check(query)  # before the work
        started = time.perf_counter()
        with self._learned(chunks) as tuned:
            learned_s = time.perf_counter() - started
            answer = answerer.answer(query, chunks.take([]))
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
        with self._learned(chunks):
            return self.language_model.bits_per_byte(text)

    @contextmanager
    def _learned(self, chunks: CandidatePool) -> Iterator[FineTuned]:
        tuned = self.learn(chunks)
        with self.language_model.adapted(tuned.adapter):
            yield tuned
