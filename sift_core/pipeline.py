"""The stages composed: candidates, selection, answer. Knows protocols, never vendors."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from sift_core.answering.fine_tuning import FineTuningSettings, fine_tuned
from sift_core.answering.in_context import InContextAnswerer
from sift_core.answering.language_model import LanguageModel
from sift_core.answering.policy import Decision, VariancePolicy
from sift_core.errors import InvalidInputError
from sift_core.protocols import CandidateSource, Embedder, Selector
from sift_core.selection import ContextSelector, SIFTSelector, posterior_variances
from sift_core.types import Answer, AnswerMode, CandidatePool, Query, Selection, check_text

_READING = (AnswerMode.CONTEXT, AnswerMode.BOTH)
_LEARNING = (AnswerMode.FINE_TUNE, AnswerMode.BOTH)


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

    def answer(self, query: Query) -> Answer:
        """Return the answer to a question, usually the one that the choice was made for.

        Raises:
            InvalidInputError: If the question is too long for the window.
            AnswerError: If the model fails.
        """
        choice = self.choice
        answer = self.answerer.answer(query, choice.chunks(choice.read))
        read = choice.pool.take([]) if answer.chunks is None else answer.chunks
        used = _joined(read, choice.chunks(choice.learned))
        mode, reasons = choice.mode, choice.reasons
        if mode in _READING and not len(read):
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


@dataclass(frozen=True, kw_only=True)
class AnswerEngine:
    """Answers questions from a store, by context, by fine-tuning, or by choice per query.

    One answer at a time on one language model; other threads wait.

    Args:
        language_model: The model that answers.
        source: Where candidates come from.
        embedder: The model that embedded the source's documents.
        context_selector: Chooses what goes into the prompt. A `ContextSelector` goes by the
            store's own scores where a pool has them.
        fine_tuning_selector: Chooses what is learned from; the paper's setting.
        n_candidates: K, documents fetched a query.
        n_context: Documents chosen for the prompt at most.
        n_steps: N, training steps; the paper's 50.
        max_new_tokens: Length of an answer at most.
        generation: Passed to `transformers`' `generate` as it is; greedy if left out.
        settings: How the adapter learns.
        policy: Decides in mode "auto".
    """

    language_model: LanguageModel
    source: CandidateSource
    embedder: Embedder
    context_selector: Selector = field(default_factory=ContextSelector)
    fine_tuning_selector: Selector = field(default_factory=SIFTSelector.for_fine_tuning)
    n_candidates: int = 200
    n_context: int = 10
    n_steps: int = 50
    max_new_tokens: int = 64
    generation: Mapping[str, Any] = field(default_factory=dict)
    settings: FineTuningSettings = field(default_factory=FineTuningSettings)
    policy: VariancePolicy = field(default_factory=VariancePolicy)

    @classmethod
    def from_pretrained(
        cls, model: str | Path, *, source: CandidateSource, embedder: Embedder, **options: Any
    ) -> AnswerEngine:
        """Return an engine around a causal LM of the hub or of a folder.

        Raises:
            InvalidInputError: If there is no such causal LM.
        """
        language_model = LanguageModel.from_pretrained(model)
        return cls(language_model=language_model, source=source, embedder=embedder, **options)

    def answer(
        self,
        question: str,
        *,
        mode: str = "auto",
        filter: Any = None,
    ) -> Answer:
        """Return the answer to a question.

        Args:
            question: In words, not empty.
            mode: "base", "context", "fine_tune", "both" or "auto".
            filter: Restricts the candidates; the source's own kind of filter.

        Raises:
            InvalidInputError: If the question is empty or too long for the window, or
                there is no such mode.
            CandidateSourceError: If the store fails.
            AnswerError: If the model fails; it is as before.
        """
        choice = self.choose(question, mode=mode, filter=filter)
        self.language_model.check_prompt(question, self.max_new_tokens)  # before the work
        with self.prepared(choice) as model:
            return model.answer(choice.query)

    def choose(
        self,
        question: str,
        *,
        mode: str = "auto",
        filter: Any = None,
    ) -> Choice:
        """Return the mode and the documents for a question; the model does not run.

        Raises:
            InvalidInputError: If the question is empty or there is no such mode.
            CandidateSourceError: If the store fails.
        """
        wanted = _mode(mode)
        check_text("question", question)
        if not question.strip():
            raise InvalidInputError("the question is empty; ask something")
        timings: dict[str, float] = {}
        with _timed(timings, "embed"):
            query = Query(
                text=question,
                embedding=self.embedder.embed_query(question),
                embedder_name=self.embedder.name,
            )
        if wanted is AnswerMode.BASE:
            pool = CandidatePool.empty(dimension=len(query.embedding))
        else:
            with _timed(timings, "fetch"):
                pool = self.source.fetch(query, self.n_candidates, filter=filter)
        with _timed(timings, "select"):
            return self.choose_from(query, pool, mode=wanted, timings=timings)

    def choose_from(
        self,
        query: Query,
        pool: CandidatePool,
        *,
        mode: str = "auto",
        timings: Mapping[str, float] | None = None,
    ) -> Choice:
        """Return the mode and the documents for a query whose candidates are at hand."""
        wanted = _mode(mode)
        decision = Decision(mode=wanted, reasons=(f"mode {wanted.value!r} was asked for",))
        read = learned = None
        if wanted is not AnswerMode.BASE and not len(pool):
            decision = Decision(mode=AnswerMode.BASE, reasons=("the store has no candidate",))
        elif wanted in (*_READING, AnswerMode.AUTO):
            read = self._select_context(query, pool)
            if wanted is AnswerMode.AUTO:
                decision = self._decide(query, pool, read)
        if decision.mode in _LEARNING:
            learned = self.fine_tuning_selector.select(
                query.embedding, pool.embeddings, self.n_steps
            )
        return Choice(
            query=query,
            mode=decision.mode,
            reasons=decision.reasons,
            pool=pool,
            read=read if decision.mode in _READING else None,
            learned=learned,
            timings={} if timings is None else timings,
        )

    @contextmanager
    def prepared(
        self, choice: Choice, *, on_step: Callable[[float], object] | None = None
    ) -> Iterator[PreparedModel]:
        """Hold the model as the choice wants it, for the `with` block.

        One fine-tuning serves every question and every score inside the block.

        Args:
            choice: From `choose`, in any mode.
            on_step: Called after each training step with the loss before it.

        Raises:
            AnswerError: If fine-tuning fails; the model is as before.
        """
        learned = choice.chunks(choice.learned).texts
        started = time.perf_counter()
        adapted: AbstractContextManager[object] = nullcontext()
        if learned:
            adapted = fine_tuned(self.language_model, learned, self.settings, on_step=on_step)
        with adapted:
            yield PreparedModel(
                choice=choice,
                answerer=self._in_context,
                timings={**choice.timings, "fine_tune": time.perf_counter() - started},
            )

    def _select_context(self, query: Query, pool: CandidatePool) -> Selection:
        if pool.relevance is None or not isinstance(self.context_selector, ContextSelector):
            return self.context_selector.select(query.embedding, pool.embeddings, self.n_context)
        return self.context_selector.select(
            query.embedding, pool.embeddings, self.n_context, relevance=pool.relevance
        )

    def _decide(self, query: Query, pool: CandidatePool, read: Selection) -> Decision:
        chunks = pool.take(read.positions)
        variances = posterior_variances(query.embedding, chunks.embeddings)
        return self.policy.decide(
            variance_before=float(variances[0]),
            variance_after=float(variances[-1]),
            context_tokens=sum(self._in_context.size(text) for text in chunks.texts),
            room=self._in_context.room(query.text),
        )

    @property
    def _in_context(self) -> InContextAnswerer:
        return InContextAnswerer(
            language_model=self.language_model,
            max_new_tokens=self.max_new_tokens,
            generation=self.generation,
        )


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


def _mode(mode: str) -> AnswerMode:
    try:
        return AnswerMode(mode)
    except ValueError as error:
        known = ", ".join(repr(m.value) for m in AnswerMode)
        raise InvalidInputError(f"`mode` must be one of {known}, got {mode!r}") from error


@contextmanager
def _timed(timings: dict[str, float], stage: str) -> Iterator[None]:
    """Record how many seconds the block took."""
    started = time.perf_counter()
    try:
        yield
    finally:
        timings[stage] = time.perf_counter() - started
