"""The model that is ready for a question: fine-tuned where the choice wants it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

import numpy as np

from sift_core.answering.choosing import LEAST_SECONDS, Choice
from sift_core.answering.in_context import InContextAnswerer
from sift_core.answering.learning.adapter_cache import AdapterCache, adapter_key
from sift_core.answering.learning.fine_tuning import FineTuned, fine_tune
from sift_core.answering.learning.settings import FineTuningSettings
from sift_core.answering.model.language_model import LanguageModel
from sift_core.answering.situation import READING
from sift_core.selection import posterior_variances
from sift_core.types import Answer, AnswerMode, CandidatePool, Query


@dataclass(frozen=True, kw_only=True, eq=False)
class PreparedModel:
    """A model that has learned what was chosen, and reads what was chosen before it answers.

    Made by `AnswerEngine.prepared`. Any thread may use it, also several at once.

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
        answerer = self.answerer.generating(**generation)
        with self._adapted():
            answer = answerer.answer(query, self._read, on_text=on_text)
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

    def _completed(self, answer: Answer) -> Answer:
        """Return an answer with what is known of the choice."""
        choice = self.choice
        read = choice.pool.take([]) if answer.chunks is None else answer.chunks
        report = None if self.tuned is None else self.tuned.report
        learned = choice.chunks(choice.learned).take(() if report is None else report.learned)
        reasons = choice.reasons if report is None else (*choice.reasons, *report.warnings)
        if choice.mode in READING and not len(read):
            reasons = (*reasons, "none of the chosen chunks fits into the window")
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

    def _adapted(self) -> AbstractContextManager[None]:
        learned = None if self.tuned is None else self.tuned.adapter
        return self.answerer.language_model.adapted(learned)


def prepare(
    answerer: InContextAnswerer,
    choice: Choice,
    settings: FineTuningSettings,
    cache: AdapterCache | None,
    *,
    on_step: Callable[[float], object] | None = None,
) -> PreparedModel:
    """Return the answerer's model as the choice wants it.

    Args:
        answerer: How questions will be put.
        choice: What is read and what is learned from.
        settings: How the model learns.
        cache: What was learned before, and is kept after this; None for none.
        on_step: Called after each training step with the loss before it.

    Raises:
        AnswerError: If fine-tuning fails; the model is as before.
    """
    started = time.perf_counter()
    learned = choice.chunks(choice.learned)
    tuned = None
    if choice.deadline is not None:
        left = choice.deadline - time.monotonic() - choice.answer_s
        seconds = min(max(left, LEAST_SECONDS), settings.max_seconds or math.inf)
        settings = replace(settings, max_seconds=seconds)
    if len(learned):
        tuned = _tuned(answerer.language_model, learned, settings, cache, on_step)
    if tuned is not None:
        answerer.language_model.verify_base()
    learning = {"fine_tune": time.perf_counter() - started} if len(learned) else {}
    return PreparedModel(
        choice=choice, answerer=answerer, tuned=tuned, timings={**choice.timings, **learning}
    )


def _tuned(
    language_model: LanguageModel,
    chunks: CandidatePool,
    settings: FineTuningSettings,
    cache: AdapterCache | None,
    on_step: Callable[[float], object] | None,
) -> FineTuned:
    """Return what the cache has, or what is learned now."""
    if cache is None or settings.kind == "full":
        return fine_tune(language_model, chunks.texts, settings, on_step=on_step)
    key = adapter_key(
        base=language_model.identity if not cache.is_on_disk else language_model.fingerprint,
        tokenizer=language_model.tokenizer,
        document_ids=chunks.document_ids,
        texts=chunks.texts,
        settings=settings,
    )
    found = cache.get(key)
    if found is not None:
        return FineTuned(adapter=found.adapter, report=found.report)
    tuned = fine_tune(language_model, chunks.texts, settings, on_step=on_step, key=key)
    cache.put(key, tuned.adapter, tuned.report)
    return tuned


def _standard_deviation(query: Query, used: CandidatePool) -> float:
    """Return σ at the query given these documents; NaN without any."""
    if not len(used):
        return float("nan")
    return float(posterior_variances(query.vector, used.embeddings)[-1] ** 0.5)


def _mode(*, reads: bool, learns: bool) -> AnswerMode:
    """Return the mode that an answer came to be in."""
    if learns:
        return AnswerMode.BOTH if reads else AnswerMode.FINE_TUNE
    return AnswerMode.CONTEXT if reads else AnswerMode.BASE


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
