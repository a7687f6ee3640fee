"""The stages composed: candidates, selection, answer. Knows protocols, never vendors."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sift_core.answering.fine_tuning import FineTuningSettings, fine_tuned
from sift_core.answering.in_context import InContextAnswerer
from sift_core.answering.language_model import LanguageModel
from sift_core.answering.policy import Decision, VariancePolicy
from sift_core.errors import InvalidInputError
from sift_core.prepared import LEARNING, READING, Choice, PreparedModel
from sift_core.protocols import CandidateSource, Embedder, Selector
from sift_core.selection import ContextSelector, SIFTSelector, posterior_variances
from sift_core.streaming import AnswerStream, AsyncAnswerStream, OnStep, OnText, Produce
from sift_core.types import (
    Answer,
    AnswerMode,
    CandidatePool,
    Message,
    Query,
    Selection,
    check_text,
)


@dataclass(frozen=True, kw_only=True)
class AnswerEngine:
    """Answers questions from a store, by context, by fine-tuning, or by choice per query.

    One answer at a time on one language model; other threads wait. The twins whose names begin
    with `a` fetch without blocking the event loop and compute in the model's worker thread.

    `**generation` of any method is what `transformers`' `generate` takes, over the engine's own
    `generation`; also `max_new_tokens`, and `stop`, texts that end an answer.

    Args:
        language_model: The model that answers.
        source: Where candidates come from; None where they are always at hand (`choose_from`).
        embedder: The model that embedded the source's documents; None likewise.
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
    source: CandidateSource | None = None
    embedder: Embedder | None = None
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
        cls,
        model: str | Path,
        *,
        source: CandidateSource | None = None,
        embedder: Embedder | None = None,
        **options: Any,
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
        history: Sequence[Message] = (),
        on_text: OnText | None = None,
        on_step: OnStep | None = None,
        **generation: Any,
    ) -> Answer:
        """Return the answer to a question.

        Args:
            question: In words, not empty.
            mode: "base", "context", "fine_tune", "both" or "auto". "base" needs no source.
            filter: Restricts the candidates; the source's own kind of filter.
            history: What was said before, oldest first.
            on_text: Called with each piece of the answer's text as it comes. What it raises
                ends the answer.
            on_step: Called after each training step with the loss before it, likewise.
            **generation: How to generate, for this answer alone.

        Raises:
            InvalidInputError: If the question is empty or too long for the window, there is
                no such mode, or the engine has no source to answer from.
            CandidateSourceError: If the store fails.
            AnswerError: If the model fails; it is as before.
        """
        choice = self.choose(question, mode=mode, filter=filter, history=history)
        return self.answer_from(choice, on_text=on_text, on_step=on_step, **generation)

    async def aanswer(
        self,
        question: str,
        *,
        mode: str = "auto",
        filter: Any = None,
        history: Sequence[Message] = (),
        **generation: Any,
    ) -> Answer:
        """Return what `answer` returns. Cancelling the task ends it at the next step."""
        choice = await self.achoose(question, mode=mode, filter=filter, history=history)
        return await self.aanswer_from(choice, **generation)

    def stream(
        self,
        question: str,
        *,
        mode: str = "auto",
        filter: Any = None,
        history: Sequence[Message] = (),
        **generation: Any,
    ) -> AnswerStream:
        """Return the answer in pieces of text, as the model writes it, in another thread."""
        choice = self.choose(question, mode=mode, filter=filter, history=history)
        return self.stream_from(choice, **generation)

    async def astream(
        self,
        question: str,
        *,
        mode: str = "auto",
        filter: Any = None,
        history: Sequence[Message] = (),
        **generation: Any,
    ) -> AsyncAnswerStream:
        """Return the answer in pieces of text, as the model writes it."""
        choice = await self.achoose(question, mode=mode, filter=filter, history=history)
        return self.astream_from(choice, **generation)

    def answer_from(
        self,
        choice: Choice,
        *,
        on_text: OnText | None = None,
        on_step: OnStep | None = None,
        **generation: Any,
    ) -> Answer:
        """Return the answer to a question for which all is chosen; as `answer` else."""
        self._check_prompt(choice.query, generation)  # before the work
        with self.prepared(choice, on_step=on_step) as model:
            return model.answer(choice.query, on_text=on_text, **generation)

    async def aanswer_from(self, choice: Choice, **generation: Any) -> Answer:
        """Return what `answer_from` returns, without blocking the event loop."""
        async with self.astream_from(choice, **generation) as stream:
            return await stream.answer()

    def stream_from(self, choice: Choice, **generation: Any) -> AnswerStream:
        """Return what `stream` returns, for a question for which all is chosen."""
        return AnswerStream(self._produce(choice, generation), self.language_model.worker)

    def astream_from(self, choice: Choice, **generation: Any) -> AsyncAnswerStream:
        """Return what `astream` returns, for a question for which all is chosen.

        To be called in a running event loop.
        """
        return AsyncAnswerStream(self._produce(choice, generation), self.language_model.worker)

    def choose(
        self,
        question: str,
        *,
        mode: str = "auto",
        filter: Any = None,
        history: Sequence[Message] = (),
    ) -> Choice:
        """Return the mode and the documents for a question; the model does not run.

        Raises:
            InvalidInputError: If the question is empty, there is no such mode, or the
                engine has no source.
            CandidateSourceError: If the store fails.
        """
        wanted = _mode(mode)
        _check_question(question)
        if wanted is AnswerMode.BASE:
            return self._choose_nothing(question, history)
        source, embedder = self._retrieval()
        timings: dict[str, float] = {}
        with _timed(timings, "embed"):
            query = _embedded(embedder, question, history)
        with _timed(timings, "fetch"):
            pool = source.fetch(query, self.n_candidates, filter=filter)
        return self.choose_from(query, pool, mode=wanted, timings=timings)

    async def achoose(
        self,
        question: str,
        *,
        mode: str = "auto",
        filter: Any = None,
        history: Sequence[Message] = (),
    ) -> Choice:
        """Return what `choose` returns; embedding and selection run in other threads."""
        wanted = _mode(mode)
        _check_question(question)
        if wanted is AnswerMode.BASE:
            return self._choose_nothing(question, history)
        source, embedder = self._retrieval()
        timings: dict[str, float] = {}
        with _timed(timings, "embed"):
            query = await asyncio.to_thread(_embedded, embedder, question, history)
        with _timed(timings, "fetch"):
            pool = await source.afetch(query, self.n_candidates, filter=filter)
        return await asyncio.to_thread(self.choose_from, query, pool, mode=wanted, timings=timings)

    def choose_from(
        self,
        query: Query,
        pool: CandidatePool,
        *,
        mode: str = "auto",
        timings: Mapping[str, float] | None = None,
    ) -> Choice:
        """Return the mode and the documents for a query whose candidates are at hand."""
        started = time.perf_counter()
        wanted = _mode(mode)
        decision = Decision(mode=wanted, reasons=(f"mode {wanted.value!r} was asked for",))
        read = learned = None
        if wanted is not AnswerMode.BASE and not len(pool):
            decision = Decision(mode=AnswerMode.BASE, reasons=("there is no candidate",))
        elif wanted in (*READING, AnswerMode.AUTO):
            read = self._select_context(query, pool)
            if wanted is AnswerMode.AUTO:
                decision = self._decide(query, pool, read)
        if decision.mode in LEARNING:
            learned = self.fine_tuning_selector.select(
                query.embedding, pool.embeddings, self.n_steps
            )
        return Choice(
            query=query,
            mode=decision.mode,
            reasons=decision.reasons,
            pool=pool,
            read=read if decision.mode in READING else None,
            learned=learned,
            timings={**(timings or {}), "select": time.perf_counter() - started},
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

    def _choose_nothing(self, question: str, history: Sequence[Message]) -> Choice:
        """Return the choice of mode "base": nothing is looked for, so nothing is embedded."""
        query = Query(text=question, embedding=np.ones(1), history=history)
        return self.choose_from(query, CandidatePool.empty(dimension=1), mode=AnswerMode.BASE)

    def _retrieval(self) -> tuple[CandidateSource, Embedder]:
        """Return what candidates are found with."""
        if self.source is None or self.embedder is None:
            raise InvalidInputError(
                "this engine has no `source` or no `embedder` to find candidates with; construct "
                "it with both, or pass candidates that are at hand to `choose_from`"
            )
        return self.source, self.embedder

    def _produce(self, choice: Choice, generation: Mapping[str, Any]) -> Produce:
        """Return the computation of an answer in the worker thread, checked as far as can be.

        Raises:
            InvalidInputError: If the prompt does not fit, or this flow of control holds the
                model.
        """
        self.language_model.refuse_if_held_here()
        self._check_prompt(choice.query, generation)

        given = {**self.generation, **generation}.get("stopping_criteria") or []

        def produce(on_text: OnText, on_step: OnStep) -> Answer:
            def go_on(*_: Any, **__: Any) -> bool:
                on_step(0.0)  # leaves where the stream is closed: beams have no text before the end
                return False

            followed = {**generation, "stopping_criteria": [*given, go_on]}
            return self.answer_from(choice, on_text=on_text, on_step=on_step, **followed)

        return produce

    def _check_prompt(self, query: Query, generation: Mapping[str, Any]) -> None:
        """Refuse a question that does not fit into the window, before any work."""
        n_new = generation.get("max_new_tokens", self.max_new_tokens)
        nothing = CandidatePool.empty(dimension=len(query.embedding))
        self.language_model.check_prompt(self._in_context.prompt(query, nothing), n_new)

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
            room=self._in_context.room(self._in_context.prompt(query, pool.take([]))),
        )

    @property
    def _in_context(self) -> InContextAnswerer:
        return InContextAnswerer(
            language_model=self.language_model,
            max_new_tokens=self.max_new_tokens,
            generation=self.generation,
        )


def _check_question(question: str) -> None:
    check_text("question", question)
    if not question.strip():
        raise InvalidInputError("the question is empty; ask something")


def _embedded(embedder: Embedder, question: str, history: Sequence[Message]) -> Query:
    return Query(
        text=question,
        embedding=embedder.embed_query(question),
        embedder_name=embedder.name,
        history=history,
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
