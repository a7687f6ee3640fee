"""The stages composed: candidates, selection, answer. Knows protocols, never vendors."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sift_core.answering.choosing import Choice, Chooser, Wish
from sift_core.answering.cost_model import CostModel
from sift_core.answering.in_context import InContextAnswerer
from sift_core.answering.learned_policy import CalibrationExample
from sift_core.answering.learning.adapter_cache import AdapterCache
from sift_core.answering.learning.settings import FineTuningSettings
from sift_core.answering.model.language_model import LanguageModel
from sift_core.answering.policy import Policy, VariancePolicy
from sift_core.answering.prepared import PreparedModel, prepare
from sift_core.answering.sessions import Session
from sift_core.answering.streams import (
    AnswerStream,
    AsyncAnswerStream,
    OnStep,
    OnText,
    Produce,
    computed,
)
from sift_core.errors import InvalidInputError
from sift_core.protocols import CandidateSource, Embedder, Selector
from sift_core.selection import ContextSelector, SIFTSelector
from sift_core.types import (
    Answer,
    CandidatePool,
    Message,
    Query,
)


def _learn_from() -> Selector:
    return SIFTSelector.for_fine_tuning(noise_variance=0.1)


@dataclass(frozen=True, kw_only=True, eq=False)
class AnswerEngine:
    """Answers questions from a store, by context, by fine-tuning, or by choice per query.

    Any number of threads and asyncio tasks may ask at once. They take turns on the model, a
    training step or a token each, and each answer is the one that it would be alone. The twins
    whose names begin with `a` fetch without blocking the event loop and compute in one of the
    model's four worker threads, as streams do; 64 more may wait for one.

    `**generation` of any method is what `transformers`' `generate` takes, over the engine's own
    `generation`; also `max_new_tokens`, and `stop`, texts that end an answer.

    Args:
        language_model: The model that answers.
        source: Where candidates come from; None where they are always at hand (`choose_from`).
        embedder: The model that embedded the source's documents; None likewise.
        context_selector: Chooses what goes into the prompt. A `ContextSelector` goes by the
            store's own scores where a pool has them.
        fine_tuning_selector: Chooses what is learned from: the paper's kernel and repeats, with
            λ = 0.1 (decision 0014).
        n_candidates: K, documents fetched a query.
        n_context: Documents chosen for the prompt at most.
        n_steps: N, training steps; the paper's 50.
        max_new_tokens: Length of an answer at most.
        generation: Passed to `transformers`' `generate` as it is; greedy if left out.
        settings: How the adapter learns.
        policy: Decides in mode "auto".
        cost_model: Seconds of every mode on this machine (`cached_cost_model`), for policies and
            latency budgets; None if they are not known.
        adapter_cache: Keeps what was learned, for the next time that the same chunks are; None
            for none. In memory alone unless it has a folder.
    """

    language_model: LanguageModel
    source: CandidateSource | None = None
    embedder: Embedder | None = None
    context_selector: Selector = field(default_factory=ContextSelector)
    fine_tuning_selector: Selector = field(default_factory=_learn_from)
    n_candidates: int = 200
    n_context: int = 10
    n_steps: int = 50
    max_new_tokens: int = 64
    generation: Mapping[str, Any] = field(default_factory=dict)
    settings: FineTuningSettings = field(default_factory=FineTuningSettings)
    policy: Policy = field(default_factory=VariancePolicy)
    cost_model: CostModel | None = None
    adapter_cache: AdapterCache | None = field(default_factory=AdapterCache)

    def __post_init__(self) -> None:
        if "max_new_tokens" in self.generation:
            raise InvalidInputError(
                "`generation` must not hold `max_new_tokens`; pass it to the engine itself"
            )

    @classmethod
    def from_pretrained(
        cls,
        model: str | Path,
        *,
        source: CandidateSource | None = None,
        embedder: Embedder | None = None,
        device: str | None = None,
        dtype: str | None = None,
        trust_remote_code: bool = False,
        **options: Any,
    ) -> AnswerEngine:
        """Return an engine around a causal LM of the hub or of a folder.

        Args:
            model: As for `LanguageModel.from_pretrained`.
            source: As for the engine.
            embedder: As for the engine.
            device: As for `LanguageModel.from_pretrained`.
            dtype: Likewise.
            trust_remote_code: Likewise.
            **options: Of the engine.

        Raises:
            InvalidInputError: If there is no such causal LM.
        """
        language_model = LanguageModel.from_pretrained(
            model, device=device, dtype=dtype, trust_remote_code=trust_remote_code
        )
        return cls(language_model=language_model, source=source, embedder=embedder, **options)

    def answer(
        self,
        question: str,
        *,
        mode: str = "auto",
        filter: Any = None,
        history: Sequence[Message] = (),
        latency_s: float | None = None,
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
            latency_s: How long the caller will wait, > 0. Mode "auto" chooses by it, given a
                `cost_model`, and in any mode no training step but the first begins after it;
                the answer itself is written to its end. What others compute meanwhile is not
                foreseen. None if time is no matter.
            on_text: Called with each piece of the answer's text as it comes. What it raises
                ends the answer.
            on_step: Called after each training step with the loss before it, likewise.
            **generation: How to generate, for this answer alone.

        Raises:
            InvalidInputError: If the question is empty or too long for the window, there is
                no such mode, or the engine has no source to answer from.
            CandidateSourceError: If the store fails.
            AnswerError: If the model fails; it is as before. Of the awaited and streamed twins
                also `BusyError`, if too many wait for a worker already.
        """
        choice = self.choose(
            question,
            mode=mode,
            filter=filter,
            history=history,
            latency_s=latency_s,
            max_new_tokens=generation.get("max_new_tokens"),
        )
        return self.answer_from(choice, on_text=on_text, on_step=on_step, **generation)

    async def aanswer(
        self,
        question: str,
        *,
        mode: str = "auto",
        filter: Any = None,
        history: Sequence[Message] = (),
        latency_s: float | None = None,
        **generation: Any,
    ) -> Answer:
        """Return what `answer` returns. Cancelling the task ends it at the next step."""
        choice = await self.achoose(
            question,
            mode=mode,
            filter=filter,
            history=history,
            latency_s=latency_s,
            max_new_tokens=generation.get("max_new_tokens"),
        )
        return await self.aanswer_from(choice, **generation)

    def stream(
        self,
        question: str,
        *,
        mode: str = "auto",
        filter: Any = None,
        history: Sequence[Message] = (),
        latency_s: float | None = None,
        **generation: Any,
    ) -> AnswerStream:
        """Return the answer in pieces of text, as the model writes it, in another thread."""
        choice = self.choose(
            question,
            mode=mode,
            filter=filter,
            history=history,
            latency_s=latency_s,
            max_new_tokens=generation.get("max_new_tokens"),
        )
        return self.stream_from(choice, **generation)

    async def astream(
        self,
        question: str,
        *,
        mode: str = "auto",
        filter: Any = None,
        history: Sequence[Message] = (),
        latency_s: float | None = None,
        **generation: Any,
    ) -> AsyncAnswerStream:
        """Return the answer in pieces of text, as the model writes it."""
        choice = await self.achoose(
            question,
            mode=mode,
            filter=filter,
            history=history,
            latency_s=latency_s,
            max_new_tokens=generation.get("max_new_tokens"),
        )
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
        return AnswerStream(self._produce(choice, generation), self.language_model.submit)

    def astream_from(self, choice: Choice, **generation: Any) -> AsyncAnswerStream:
        """Return what `astream` returns, for a question for which all is chosen.

        To be called in a running event loop.
        """
        return AsyncAnswerStream(self._produce(choice, generation), self.language_model.submit)

    def choose(
        self,
        question: str,
        *,
        mode: str = "auto",
        filter: Any = None,
        history: Sequence[Message] = (),
        latency_s: float | None = None,
        n_questions: int = 1,
        max_new_tokens: int | None = None,
    ) -> Choice:
        """Return the mode and the documents for a question; the model does not run.

        Args:
            question: As for `answer`.
            mode: As for `answer`.
            filter: As for `answer`.
            history: As for `answer`.
            latency_s: As for `answer`.
            n_questions: How many questions what is learned will serve, roughly.
            max_new_tokens: Length of the answer at most; the engine's if None.

        Raises:
            InvalidInputError: If the question is empty, there is no such mode, or the
                engine has no source.
            CandidateSourceError: If the store fails.
        """
        wish = Wish(
            mode=mode,
            latency_s=latency_s,
            n_questions=n_questions,
            max_new_tokens=max_new_tokens,
        )
        return self._chooser.choose(question, wish, filter=filter, history=history)

    async def achoose(
        self,
        question: str,
        *,
        mode: str = "auto",
        filter: Any = None,
        history: Sequence[Message] = (),
        latency_s: float | None = None,
        n_questions: int = 1,
        max_new_tokens: int | None = None,
    ) -> Choice:
        """Return what `choose` returns; embedding and selection run in other threads."""
        wish = Wish(
            mode=mode,
            latency_s=latency_s,
            n_questions=n_questions,
            max_new_tokens=max_new_tokens,
        )
        return await self._chooser.achoose(question, wish, filter=filter, history=history)

    def choose_from(
        self,
        query: Query,
        pool: CandidatePool,
        *,
        mode: str = "auto",
        timings: Mapping[str, float] | None = None,
        latency_s: float | None = None,
        n_questions: int = 1,
        max_new_tokens: int | None = None,
    ) -> Choice:
        """Return the mode and the documents for a query whose candidates are at hand.

        Args:
            query: The question.
            pool: The candidates.
            mode: As for `answer`.
            timings: Seconds that were spent already, by stage.
            latency_s: As for `answer`, what was spent included.
            n_questions: As for `choose`.
            max_new_tokens: As for `choose`.

        Raises:
            InvalidInputError: If there is no such mode, or a limit is out of its range.
        """
        wish = Wish(
            mode=mode,
            latency_s=latency_s,
            n_questions=n_questions,
            max_new_tokens=max_new_tokens,
        )
        return self._chooser.choose_from(query, pool, wish, timings=timings or {})

    def prepare(self, choice: Choice, *, on_step: OnStep | None = None) -> PreparedModel:
        """Return the model as the choice wants it: fine-tuned, unless that was done before.

        One fine-tuning serves any number of questions and scores, from any thread.

        Args:
            choice: From `choose`, in any mode.
            on_step: Called after each training step with the loss before it.

        Raises:
            AnswerError: If fine-tuning fails; the model is as before.
        """
        return prepare(self._in_context, choice, self.settings, self.adapter_cache, on_step=on_step)

    @contextmanager
    def prepared(
        self, choice: Choice, *, on_step: Callable[[float], object] | None = None
    ) -> Iterator[PreparedModel]:
        """Return what `prepare` returns, for the `with` block."""
        yield self.prepare(choice, on_step=on_step)

    def session(
        self,
        question: str,
        *,
        mode: str = "auto",
        filter: Any = None,
        history: Sequence[Message] = (),
        on_step: OnStep | None = None,
        n_questions: int = 5,
        latency_s: float | None = None,
    ) -> Session:
        """Return a session: documents chosen and learned once, for many questions.

        Args:
            question: What the questions will be about; the first of them, or a topic.
            mode: As for `answer`.
            filter: As for `answer`.
            history: As for `answer`.
            on_step: As for `answer`.
            n_questions: How many will be asked, roughly; mode "auto" spreads the time of
                learning over them.
            latency_s: As for `answer`, for the first of the answers.

        Raises:
            InvalidInputError: As for `answer`.
            CandidateSourceError: If the store fails.
            AnswerError: If the model fails; it is as before.
        """
        choice = self.choose(
            question,
            mode=mode,
            filter=filter,
            history=history,
            n_questions=n_questions,
            latency_s=latency_s,
        )
        return self.session_from(choice, on_step=on_step)

    async def asession(
        self,
        question: str,
        *,
        mode: str = "auto",
        filter: Any = None,
        history: Sequence[Message] = (),
        n_questions: int = 5,
        latency_s: float | None = None,
    ) -> Session:
        """Return what `session` returns, without blocking the event loop.

        Cancelling the task ends the learning at its next step.
        """
        choice = await self.achoose(
            question,
            mode=mode,
            filter=filter,
            history=history,
            n_questions=n_questions,
            latency_s=latency_s,
        )
        return await computed(
            self.language_model.submit,
            lambda on_step: self.session_from(choice, on_step=on_step),
        )

    def session_from(self, choice: Choice, *, on_step: OnStep | None = None) -> Session:
        """Return what `session` returns, for a question for which all is chosen."""
        model = self.prepare(choice, on_step=on_step)
        started = time.perf_counter()
        model = model.with_prefix_read()

        def produce(model: PreparedModel, query: Query, generation: dict[str, Any]) -> Produce:
            self._check_prompt(query, generation)
            return self._followed(lambda _, **o: model.answer(query, **o), generation)

        timings = {**model.timings, "read": time.perf_counter() - started}
        return Session(model=replace(model, timings={}), timings=timings, produce=produce)

    def calibration_example(
        self, question: str, text: str, *, filter: Any = None
    ) -> CalibrationExample:
        """Return what a `LearnedPolicy` is fitted to: how well each mode predicts a text.

        Costs a fine-tuning and four scores.

        Args:
            question: What documents are chosen for.
            text: What they should help to predict, for instance the answer; not among them.
            filter: As for `answer`.

        Raises:
            InvalidInputError: As for `answer`, or if there is no candidate.
            CandidateSourceError: If the store fails.
            AnswerError: If the model fails.
        """
        choice = self.choose(question, filter=filter)
        if choice.situation is None:
            raise InvalidInputError("no candidate was found for the question; ask another one")
        bits = {}
        for mode in choice.situation.possible:
            with self.prepared(self.choose_from(choice.query, choice.pool, mode=mode)) as model:
                bits[mode] = model.bits_per_byte(text)
        return CalibrationExample(situation=choice.situation, bits_per_byte=bits)

    def _produce(self, choice: Choice, generation: Mapping[str, Any]) -> Produce:
        """Return the computation of an answer in the worker thread, checked as far as can be.

        Raises:
            InvalidInputError: If the prompt does not fit.
        """
        self._check_prompt(choice.query, generation)

        def answer(on_step: OnStep, **options: Any) -> Answer:
            return self.answer_from(choice, on_step=on_step, **options)

        return self._followed(answer, generation)

    def _followed(self, answer: Callable[..., Answer], generation: Mapping[str, Any]) -> Produce:
        """Return the computation of an answer that ends where its stream is closed."""
        given = {**self.generation, **generation}.get("stopping_criteria") or []

        def produce(on_text: OnText, on_step: OnStep) -> Answer:
            def go_on(*_: Any, **__: Any) -> bool:
                on_step(0.0)  # leaves where the stream is closed: beams have no text before the end
                return False

            followed = {**generation, "stopping_criteria": [*given, go_on]}
            return answer(on_step, on_text=on_text, **followed)

        return produce

    def _check_prompt(self, query: Query, generation: Mapping[str, Any]) -> None:
        """Refuse a question that does not fit into the window, before any work."""
        n_new = generation.get("max_new_tokens", self.max_new_tokens)
        self.language_model.check_prompt(
            self._in_context.prompt(query, CandidatePool.empty()), n_new
        )

    @property
    def _chooser(self) -> Chooser:
        return Chooser(
            answerer=self._in_context,
            source=self.source,
            embedder=self.embedder,
            context_selector=self.context_selector,
            fine_tuning_selector=self.fine_tuning_selector,
            n_candidates=self.n_candidates,
            n_context=self.n_context,
            n_steps=self.n_steps,
            policy=self.policy,
            cost_model=self.cost_model,
        )

    @property
    def _in_context(self) -> InContextAnswerer:
        return InContextAnswerer(
            language_model=self.language_model,
            max_new_tokens=self.max_new_tokens,
            generation=self.generation,
        )
