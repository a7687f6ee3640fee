"""The stages composed: candidates, selection, answer. Knows protocols, never vendors."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sift_core.answering.calibrating import OnExample, calibrate
from sift_core.answering.calibration import Calibration
from sift_core.answering.choosing import settled
from sift_core.answering.condensing import Condense, Condenser, check_condense
from sift_core.answering.cost_model import CostModel
from sift_core.answering.in_context import InContextAnswerer, TextGenerator
from sift_core.answering.learning.adapter_cache import AdapterCache, fine_tune_cached
from sift_core.answering.learning.clusters import ClusterAdapters
from sift_core.answering.learning.effort import EFFORTS, check_effort
from sift_core.answering.learning.settings import FineTuningSettings
from sift_core.answering.model.bundled import SMOLLM2
from sift_core.answering.model.language_model import LanguageModel
from sift_core.answering.model.number_type import NumberType
from sift_core.answering.policy import Policy, VariancePolicy
from sift_core.answering.refusing import Refusing, check_on_off_topic
from sift_core.answering.request import (
    AnswerRequest,
    Choice,
    check_generation,
    rules_of,
    timed,
)
from sift_core.answering.sessions import Session
from sift_core.answering.streams import (
    AnswerStream,
    AsyncAnswerStream,
    OnStep,
    OnText,
    Produce,
    computed,
    followed,
)
from sift_core.checks import as_count
from sift_core.errors import InvalidInputError
from sift_core.protocols import CandidateSource, Embedder, Selector
from sift_core.selection.context import ContextSelector
from sift_core.selection.sift import SIFTSelector
from sift_core.sources.several_queries import afetch_for_all, fetch_for_all
from sift_core.types import Answer, AnswerMode, CandidatePool, Query

LARGEST_COUNT = 1_000_000  # of documents, steps or tokens for one question


def _learn_from() -> Selector:
    return SIFTSelector.for_fine_tuning(noise_variance=0.1)


@dataclass(frozen=True, kw_only=True, eq=False)
class AnswerEngine:
    """Answers questions from a store, by context, by fine-tuning, or by choice per query.

    Any number of threads and asyncio tasks may ask at once. They take turns on the model, a
    training step or a token each, and each answer is the one that it would be alone. The twins
    whose names begin with `a` fetch without blocking the event loop and compute in one of the
    model's four worker threads, as streams do; 64 more may wait for one.

    Methods that take a question take the fields of an `AnswerRequest` by name. What else they are
    given is for generation: `stop`, and what `transformers`' `generate` takes.

    Args:
        language_model: The model that answers.
        source: Where candidates come from; None where they are always at hand (`choose_from`).
        embedder: The model that embedded the source's documents; None likewise.
        context_selector: Chooses what goes into the prompt; told the store's own scores where a
            pool has them.
        fine_tuning_selector: Chooses what is learned from, by the embeddings alone: the paper's
            kernel and repeats, with λ = 0.1 (decision 0014).
        n_candidates: K, documents fetched a query.
        n_context: Documents chosen for the prompt at most.
        max_tokens: How many tokens of the language model's these may take in the prompt together,
            the blank line behind each counted; of those that still fit the one that tells most
            for its length is next (decision 0020). None for what the window holds.
        max_per_document: How many chunks of one document may be among them; which that is, the
            metadata tells ("source" as of `sift index`, or "file_path", "path", "file_name",
            "url"), and a chunk without is a document of its own. None for any number.
        newest: The metadata key of a date (ISO 8601 text, datetime, seconds since 1970): of
            near-duplicates the newest is read. None for the most relevant.
        half_life_days: With `newest`: a chunk so many days older than the newest candidate counts
            half as much. None: age counts among near-duplicates alone.
        merge_neighbors: Whether chunks of one document that touch, or leave a gap which one other
            candidate fills, are read as one passage, where that fits.
        cite: Whether chunks are numbered in the prompt and the model is asked to put marks such
            as [1] behind what it says; `Answer.citations` then has those that it put. Small
            models often put none, or wrong ones: a mark says what the model wrote, not that
            the chunk has it.
        system_prompt: What the model is told before all else, as a system message; a history that
            begins with one of its own keeps that. None for nothing.
        prompt_template: How chunks and question are put, with the places "{context}" and
            "{question}"; other braces stand for themselves. None for one behind the other, a
            blank line between. A question without chunks stands alone.
        effort: How much is learned at most: "quick", "balanced" or "thorough", a number of steps
            with the rate that suits it (`EFFORTS`), unless `n_steps` says it.
        n_steps: N, training steps, taken as `settings` say; the paper's is 50. None for those
            of `effort`.
        max_new_tokens: Length of an answer at most.
        generation: Passed to `transformers`' `generate` as it is; greedy if left out.
        settings: How the adapter learns.
        policy: Decides in mode "auto"; `calibrate` gives one.
        on_off_topic: What mode "auto" does where the documents say nothing on the question, or
            there is none: "refuse", which says so in a sentence (`Answer.is_refusal`), or "base".
        condense: What is looked for where a question follows one in `history`, and there are no
            `queries`. "join": both as one text, and the question; "model": what the language model
            makes of it; a function of history and question: its text or texts; None: the question.
        cost_model: Seconds of every mode on this machine (`CostModel.measure`, `calibrate`), for
            policies and latency budgets; None if they are not known.
        adapters: What mode "merged" answers with: adapters that the collection's clusters were
            learned into beforehand; None for no such mode.
        adapter_cache: Keeps what was learned, for the next time that the same chunks are; None
            for none. In memory alone unless it has a folder.
        generator: Writes the answers' texts, a `VllmGenerator` for instance; the language model
            itself if None.

    Raises:
        InvalidInputError: If a number is < 1, a setting of generation cannot be used, or
            `context_selector` cannot keep `max_tokens`, `max_per_document` or `newest`, or a
            prompt cannot be used.
    """

    language_model: LanguageModel
    source: CandidateSource | None = None
    embedder: Embedder | None = None
    context_selector: Selector = field(default_factory=ContextSelector)
    fine_tuning_selector: Selector = field(default_factory=_learn_from)
    n_candidates: int = 200
    n_context: int = 10
    max_tokens: int | None = None
    max_per_document: int | None = None
    newest: str | None = None
    half_life_days: float | None = None
    merge_neighbors: bool = False
    cite: bool = False
    system_prompt: str | None = None
    prompt_template: str | None = None
    effort: str = "balanced"
    n_steps: int | None = None
    max_new_tokens: int = 64
    generation: Mapping[str, Any] = field(default_factory=dict)
    settings: FineTuningSettings = field(default_factory=FineTuningSettings)
    policy: Policy = field(default_factory=VariancePolicy)
    on_off_topic: str = "refuse"
    condense: Condense | None = "join"
    cost_model: CostModel | None = None
    adapters: ClusterAdapters | None = None
    adapter_cache: AdapterCache | None = field(default_factory=AdapterCache)
    generator: TextGenerator | None = None

    def __post_init__(self) -> None:
        check_effort(self.effort)
        for name in ("n_candidates", "n_context", "n_steps", "max_new_tokens"):
            value = getattr(self, name)
            if value is None and name == "n_steps":
                continue
            if as_count(name, value, minimum=1) > LARGEST_COUNT:
                raise InvalidInputError(f"`{name}` must be <= {LARGEST_COUNT:,}, or no answer ends")
        rules_of(self, None).check(self.context_selector)
        check_on_off_topic(self.on_off_topic)
        check_condense(self.condense)
        check_generation(self.generation)
        self.language_model.check_generation(self.generation)
        self._answerer({}, cite=self.cite)  # checks the prompts

    @classmethod
    def from_pretrained(
        cls,
        model: str | Path = SMOLLM2,
        *,
        device: str | None = None,
        dtype: NumberType = "auto",
        trust_remote_code: bool = False,
        **options: Any,
    ) -> AnswerEngine:
        """Return an engine around a causal LM of the hub or of a folder.

        Args:
            model: As for `LanguageModel.from_pretrained`, like the next three.
            device: As in torch.
            dtype: Number type of the weights: "float32", "bfloat16", "float16", or "auto", the
                default: on a CPU the one in which it is fastest, on a GPU that of the stored
                weights.
            trust_remote_code: Whether code of the model's repository may run.
            **options: Of the engine, such as `source` and `embedder`.

        Raises:
            InvalidInputError: If there is no such causal LM.
        """
        language_model = LanguageModel.from_pretrained(
            model, device=device, dtype=dtype, trust_remote_code=trust_remote_code
        )
        return cls(language_model=language_model, **options)

    def answer(
        self,
        question: str | AnswerRequest,
        *,
        on_text: OnText | None = None,
        on_step: OnStep | None = None,
        **options: Any,
    ) -> Answer:
        """Return the answer to a question.

        Args:
            question: In words, not empty; or all of a request.
            on_text: Called with each piece of the answer's text as it comes. What it raises
                ends the answer.
            on_step: Called after each training step with the loss before it, likewise.
            **options: Fields of the request, and settings of generation.

        Raises:
            InvalidInputError: If the question is empty or too long for the window, an option
                cannot be used, or the engine has no source.
            CandidateSourceError: If the store fails.
            AnswerError: If the model fails; it is as before.
        """
        choice = self.choose(question, **options)
        return self.answer_from(choice, on_text=on_text, on_step=on_step)

    async def aanswer(self, question: str | AnswerRequest, **options: Any) -> Answer:
        """Return what `answer` returns. Cancelling the task ends it at the next step."""
        return await self.aanswer_from(await self.achoose(question, **options))

    def stream(self, question: str | AnswerRequest, **options: Any) -> AnswerStream:
        """Return the answer in pieces of text, as the model writes it, in another thread."""
        return self.stream_from(self.choose(question, **options))

    async def astream(self, question: str | AnswerRequest, **options: Any) -> AsyncAnswerStream:
        """Return the answer in pieces of text, as the model writes it."""
        return self.astream_from(await self.achoose(question, **options))

    def choose(self, question: str | AnswerRequest, **options: Any) -> Choice:
        """Return the mode and the documents for a question; the model runs to condense it alone.

        Arguments and errors are those of `answer`.
        """
        request = self._request(question, options)
        if request.mode is AnswerMode.BASE:
            return settled(self, request, request.query(), CandidatePool.empty(), {})
        source, embedder = self._retrieval()
        timings: dict[str, float] = {}
        request = self._condenser.condensed(request, timings)
        with timed(timings, "embed"):
            query = request.query(embedder)
        if request.mode is AnswerMode.MERGED:
            return settled(self, request, query, CandidatePool.empty(), timings)
        with timed(timings, "fetch"):
            asked = request.searched(query)
            pool = fetch_for_all(source, asked, self.n_candidates, filter=request.filter)
        return settled(self, request, query, pool, timings)

    async def achoose(self, question: str | AnswerRequest, **options: Any) -> Choice:
        """Return what `choose` returns; embedding and selection run in other threads."""
        request = self._request(question, options)
        if request.mode is AnswerMode.BASE:
            return settled(self, request, request.query(), CandidatePool.empty(), {})
        source, embedder = self._retrieval()
        timings: dict[str, float] = {}
        request = await self._condenser.acondensed(request, timings)
        with timed(timings, "embed"):
            query = await asyncio.to_thread(request.query, embedder)
        if request.mode is AnswerMode.MERGED:
            return settled(self, request, query, CandidatePool.empty(), timings)
        with timed(timings, "fetch"):
            asked = request.searched(query)
            pool = await afetch_for_all(source, asked, self.n_candidates, filter=request.filter)
        return await asyncio.to_thread(settled, self, request, query, pool, timings)

    def choose_from(
        self,
        query: Query,
        pool: CandidatePool,
        *,
        timings: Mapping[str, float] | None = None,
        **options: Any,
    ) -> Choice:
        """Return the mode and the documents for a query whose candidates are at hand.

        Args:
            query: The question, with what was said before it.
            pool: The candidates.
            timings: Seconds that were spent already, by stage; part of the caller's latency.
            **options: As for `answer`, but `filter` and `history`.

        Raises:
            InvalidInputError: If the question is empty, or an option cannot be used.
        """
        if foreign := sorted(options.keys() & {"filter", "history"}):
            raise InvalidInputError(
                f"`choose_from` takes no {foreign}: the candidates are at hand, and a `Query` "
                f"brings its own history, `Query(text=…, history=…)`"
            )
        request = self._request(query.text, options)
        return settled(self, request, query, pool, timings or {})

    def answer_from(
        self,
        choice: Choice,
        *,
        on_text: OnText | None = None,
        on_step: OnStep | None = None,
        **generation: Any,
    ) -> Answer:
        """Return what `answer` returns, for a question for which all is chosen."""
        settings = {**choice.generation, **generation}
        self._answerer(settings, cite=choice.cite).check(choice.query)  # before the work
        session = self.prepared(choice, on_step=on_step)
        answer = session.answer(choice.query, on_text=on_text, **generation)
        return replace(answer, timings={**session.timings, **answer.timings})

    async def aanswer_from(self, choice: Choice, **generation: Any) -> Answer:
        """Return what `answer_from` returns, without blocking the event loop."""
        async with self.astream_from(choice, **generation) as stream:
            return await stream.answer()

    def stream_from(self, choice: Choice, **generation: Any) -> AnswerStream:
        """Return what `stream` returns, for a question for which all is chosen."""
        return AnswerStream(self._streamed(choice, generation), self.language_model.submit)

    def astream_from(self, choice: Choice, **generation: Any) -> AsyncAnswerStream:
        """Return what `astream` returns, for a question for which all is chosen."""
        return AsyncAnswerStream(self._streamed(choice, generation), self.language_model.submit)

    def prepared(self, choice: Choice, *, on_step: OnStep | None = None) -> Session:
        """Return the model as the choice wants it: fine-tuned, unless that was done before.

        One fine-tuning serves any number of questions and scores, from any thread.

        Args:
            choice: From `choose`, in any mode.
            on_step: Called after each training step with the loss before it.

        Raises:
            AnswerError: If fine-tuning fails; the model is as before.
        """
        tuned = None
        timings = dict(choice.timings)
        lessons = choice.chunks(choice.learned)
        if len(lessons):
            with timed(timings, "fine_tune"):
                tuned = fine_tune_cached(
                    self.language_model,
                    lessons,
                    self._settings_of(choice).within(choice.seconds_to_learn()),
                    self.adapter_cache,
                    on_step=on_step,
                )
                self.language_model.verify_base()
        merged = None
        if choice.mode is AnswerMode.MERGED and self.adapters is not None:
            with timed(timings, "merge"):
                merged = self.adapters.adapter_for(choice.query)
        answerer = self._answerer(choice.generation, cite=choice.cite)
        return Session(
            choice=choice,
            answerer=replace(answerer, generator=Refusing()) if choice.refuses else answerer,
            tuned=tuned,
            merged=merged,
            timings=timings,
        )

    def _settings_of(self, choice: Choice) -> FineTuningSettings:
        return EFFORTS[choice.effort].of(self.settings) if choice.effort else self.settings

    def session(
        self,
        question: str | AnswerRequest,
        *,
        on_step: OnStep | None = None,
        **options: Any,
    ) -> Session:
        """Return a session: documents chosen and learned once, for many questions.

        Args:
            question: What the questions will be about; the first of them, or a topic.
            on_step: As for `answer`.
            **options: As for `answer`; `latency_s` is for the first of the answers. Errors are
                those of `answer`, too.
        """
        choice = self.choose(AnswerRequest.of(question, options))
        return self.session_from(choice, on_step=on_step)

    async def asession(self, question: str | AnswerRequest, **options: Any) -> Session:
        """Return what `session` returns, without blocking the event loop.

        Cancelling the task ends the learning at its next step.
        """
        choice = await self.achoose(AnswerRequest.of(question, options))
        return await computed(
            self.language_model.submit,
            lambda on_step: self.session_from(choice, on_step=on_step),
        )

    def session_from(self, choice: Choice, *, on_step: OnStep | None = None) -> Session:
        """Return what `session` returns, for a question for which all is chosen."""
        session = self.prepared(choice, on_step=on_step)
        timings = dict(session.timings)
        with timed(timings, "read"):
            session = session.with_prefix_read()
        return replace(session, timings=timings)

    def calibrate(
        self,
        *,
        n: int = 40,
        minutes: float = 10.0,
        questions: Sequence[tuple[str, str]] = (),
        seed: int = 0,
        on_example: OnExample | None = None,
    ) -> Calibration:
        """Return what every way to answer does for this collection; `auto` can go by it.

        Holds passages back, with all that repeats them, and has each way predict their second
        half from the first: base, context, and learning and both with each effort up to the
        engine's. On a CPU an example takes some ten seconds with 135 M parameters.

        Args:
            n: How many examples at most, >= 8.
            minutes: After how many no other example begins, > 0.
            questions: Pairs of question and answer, in place of passages. Mode "merged" is
                measured on them alone: its adapters may have learned the passages.
            seed: Of the passages that are drawn.
            on_example: Called after each with the calibration so far. What it raises ends it.

        Raises:
            InvalidInputError: If the engine has no source or embedder, the source cannot draw
                documents, or fewer than eight examples could be measured.
            CandidateSourceError: If the store fails.
            AnswerError: If the model fails.
        """
        return calibrate(
            self, n=n, minutes=minutes, questions=questions, seed=seed, on_example=on_example
        )

    def _streamed(self, choice: Choice, generation: Mapping[str, Any]) -> Produce:
        """Return the computation of an answer in a worker, checked as far as can be before it."""
        answerer = self._answerer({**choice.generation, **generation}, cite=choice.cite)
        answerer.check(choice.query)
        return followed(
            lambda on_step, **options: self.answer_from(choice, on_step=on_step, **options),
            {**answerer.generation, **generation},
        )

    def _request(self, question: str | AnswerRequest, options: Mapping[str, Any]) -> AnswerRequest:
        """Return what is asked, checked before any work."""
        request = AnswerRequest.of(question, options)
        self.language_model.check_generation(request.generation)
        if request.mode is AnswerMode.MERGED and self.adapters is None:
            raise InvalidInputError(
                'mode "merged" needs adapters that were learned beforehand; construct the engine '
                "with `adapters`, from `learn_clusters` or `sift learn`"
            )
        rules_of(self, request).check(self.context_selector)
        return request

    def _retrieval(self) -> tuple[CandidateSource, Embedder]:
        if self.source is None or self.embedder is None:
            raise InvalidInputError(
                "this engine has no `source` or no `embedder`; construct it with both, or pass "
                "candidates that are at hand to `choose_from`"
            )
        return self.source, self.embedder

    @property
    def _condenser(self) -> Condenser:
        by = (self.context_selector, self.fine_tuning_selector)
        several = all(isinstance(one, ContextSelector | SIFTSelector) for one in by)
        return Condenser(self.condense, several, self.language_model, self.generator)

    def answerer_for(self, request: AnswerRequest) -> InContextAnswerer:
        """Return what puts the question of a request, and generates, as it and the engine say.

        Raises:
            InvalidInputError: If a setting of generation cannot be used.
        """
        cite = self.cite if request.cite is None else request.cite
        return self._answerer(request.generation_settings, cite=cite)

    def _answerer(self, generation: Mapping[str, Any], *, cite: bool) -> InContextAnswerer:
        answerer = InContextAnswerer(
            language_model=self.language_model,
            max_new_tokens=self.max_new_tokens,
            generation=self.generation,
            generator=self.generator,
            cite=cite,
            system_prompt=self.system_prompt,
            prompt_template=self.prompt_template,
        )
        return answerer.generating(**generation)
