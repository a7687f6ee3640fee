"""The stages composed: candidates, choice, answer. Knows protocols, never vendors."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from sift_core.answering.answer import Answer
from sift_core.answering.condensing import Condense, Condenser, check_condense
from sift_core.answering.cost_model import CostModel
from sift_core.answering.in_context import InContextAnswerer, TextGenerator
from sift_core.answering.learning.adapter_cache import AdapterCache, fine_tune_cached
from sift_core.answering.learning.effort import EFFORTS, check_effort, effort_for
from sift_core.answering.learning.settings import FineTuningSettings
from sift_core.answering.model.adapters import Adapter
from sift_core.answering.model.bundled import SMOLLM2
from sift_core.answering.model.language_model import LanguageModel
from sift_core.answering.model.number_type import NumberType
from sift_core.answering.policy import LEARNING, READING, Decision, Policy, VariancePolicy
from sift_core.answering.refusing import Refusing, check_on_off_topic
from sift_core.answering.request import (
    AnswerRequest,
    Choice,
    check_generation,
    seconds_until,
)
from sift_core.answering.sessions import Session
from sift_core.answering.streams import (
    AnswerStream,
    AsyncAnswerStream,
    OnStep,
    OnText,
    Produce,
    cancellable,
    run_in_worker,
)
from sift_core.checks import as_count
from sift_core.choice import asearch, choose, search
from sift_core.errors import InvalidInputError
from sift_core.explanation import Chosen
from sift_core.options import ChoiceOptions
from sift_core.progress import timed
from sift_core.protocols import CandidateSource, Embedder, Selector
from sift_core.selection.context import ContextSelector
from sift_core.selection.sift import SIFTSelector
from sift_core.types import AnswerMode, CandidatePool, Query, StopReason

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

    Methods that take a question take the fields of an `AnswerRequest` and of `ChoiceOptions` by
    name. All other arguments are for generation: `stop`, and what `transformers`' `generate` takes.

    Args:
        language_model: The model that answers.
        source: Where candidates come from. Default: none; `choose_from` takes candidates.
        embedder: The model that embedded the source's documents. Default: none.
        options: What the choice of chunks for the prompt obeys, unless a question says otherwise.
            Tokens are those of the language model, the blank line behind each chunk included,
            unless `count_tokens` is given. Default: 10 chunks of 200 candidates.
        fine_tuning_selector: Chooses what the model learns from. Default: the paper's selector with
            repeats and λ = 0.1 (decision 0014).
        cite: Number the chunks in the prompt, and ask the model for marks such as [1].
            `Answer.citations` has the marks that it wrote. Small models often write none or wrong
            ones. Default: False.
        system_prompt: A system message before all else. A history that begins with a system
            message keeps its own. Default: none.
        prompt_template: A text with the places "{context}" and "{question}"; other braces stay.
            Default: the chunks, a blank line, the question. A question without chunks stands alone.
        effort: How much to learn at most: "quick", "balanced" or "thorough", which are steps and a
            rate that suits them (`EFFORTS`). Default: "balanced".
        n_steps: Training steps N in place of `effort`, taken as `settings` say; the paper's is 50.
            Default: the steps of `effort`.
        max_new_tokens: Length of an answer at most, in tokens, >= 1. Default: 64.
        generation: Passed to `transformers`' `generate`. Default: greedy decoding.
        settings: How the adapter learns. Default: the paper's settings.
        policy: Decides in mode "auto". `Calibration.policy` is one for a collection. Default:
            `VariancePolicy()`.
        on_off_topic: What mode "auto" does if the documents have nothing on the question:
            "refuse" says so in a sentence (`Answer.is_refusal`), "base" lets the model answer.
        condense: How to search for a follow-up question. "join" searches for the last two
            questions together and for the current one alone; "model" rewrites it; a function of
            history and question returns your own texts; None searches for the question as typed.
        cost_model: Seconds of every mode on this machine (`CostModel.measure`, `calibrate`), for
            policies and latency budgets. Default: none.
        adapters: What `learn_collection` has learned beforehand, for mode "merged". Default: none,
            and no such mode.
        adapter_cache: Keeps adapters for the next question with the same chunks. Default: one in
            memory; None keeps nothing.
        generator: Writes the texts in place of the language model, such as a `VllmGenerator`.

    Raises:
        InvalidInputError: If a number is < 1, or a setting of generation or a prompt cannot be
            used.
    """

    language_model: LanguageModel
    source: CandidateSource | None = None
    embedder: Embedder | None = None
    options: ChoiceOptions = field(default_factory=ChoiceOptions)
    fine_tuning_selector: Selector = field(default_factory=_learn_from)
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
    adapters: Adapter | None = None
    adapter_cache: AdapterCache | None = field(default_factory=AdapterCache)
    generator: TextGenerator | None = None

    def __post_init__(self) -> None:
        check_effort(self.effort)
        counts = {"n_candidates": self.options.n_candidates, "n_select": self.options.n_select}
        counts["max_new_tokens"] = self.max_new_tokens
        if self.n_steps is not None:
            counts["n_steps"] = self.n_steps
        for name, value in counts.items():
            if as_count(name, value, minimum=1) > LARGEST_COUNT:
                raise InvalidInputError(f"`{name}` must be <= {LARGEST_COUNT:,}, or no answer ends")
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
            on_step: Called after each training step with the loss before it. What it raises ends
                the answer.
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
        if request.mode in (AnswerMode.BASE, AnswerMode.MERGED):
            return self._choice(request, request.query(), _nothing_chosen(request.query()), {})
        source, embedder = self._retrieval()
        timings: dict[str, float] = {}
        request = self._condenser.condensed(request, timings)
        with timed(timings, "embed"):
            query = request.query(embedder)
        first = self._first_choice(request, query)
        chosen = search(source, request.searched(query), filter=request.filter, **first)
        return self._choice(request, query, chosen, timings)

    async def achoose(self, question: str | AnswerRequest, **options: Any) -> Choice:
        """Return what `choose` returns; embedding and selection run in other threads."""
        request = self._request(question, options)
        if request.mode in (AnswerMode.BASE, AnswerMode.MERGED):
            return self._choice(request, request.query(), _nothing_chosen(request.query()), {})
        source, embedder = self._retrieval()
        timings: dict[str, float] = {}
        request = await self._condenser.acondensed(request, timings)
        with timed(timings, "embed"):
            query = await asyncio.to_thread(request.query, embedder)
        first = await asyncio.to_thread(self._first_choice, request, query)
        asked = request.searched(query)
        chosen = await asearch(source, asked, filter=request.filter, **first)
        return await asyncio.to_thread(self._choice, request, query, chosen, timings)

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
        if not len(pool) or request.mode in (AnswerMode.BASE, AnswerMode.MERGED):
            chosen = replace(_nothing_chosen(query), pool=pool)
            return self._choice(request, query, chosen, timings or {})
        started = time.perf_counter()
        chosen = choose(pool, query, **self._first_choice(request, query))
        chosen = replace(chosen, timings={"select": time.perf_counter() - started})
        return self._choice(request, query, chosen, timings or {})

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
        answerer = self._answerer(choice.generation, cite=choice.cite)
        return Session(
            choice=choice,
            answerer=replace(answerer, generator=Refusing()) if choice.refuses else answerer,
            tuned=tuned,
            merged=self.adapters if choice.mode is AnswerMode.MERGED else None,
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
        return await run_in_worker(
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

    def _first_choice(self, request: AnswerRequest, query: Query) -> dict[str, Any]:
        """Return the arguments of the first choice: of what is read, or what is learned alone."""
        if request.mode is AnswerMode.FINE_TUNE:
            n_candidates = request.choice_options(self.options).n_candidates
            return {"options": replace(self._learning_options(request), n_candidates=n_candidates)}
        answerer = self.answerer_for(request)
        options = request.choice_options(self.options)
        return {
            "options": replace(options, count_tokens=options.count_tokens or answerer.size),
            "room": answerer.room_beside(query) if options.merge_neighbors else None,
        }

    def _learning_options(self, request: AnswerRequest) -> ChoiceOptions:
        """Return what the choice of training data obeys.

        It goes by embeddings alone, as the paper's method does and as was measured. So does what
        a policy knows of the question, which is read from these choices.
        """
        effort = self._effort(request)
        n_steps = EFFORTS[effort].n_steps if effort else self.n_steps
        assert n_steps is not None  # one of the two is given
        return ChoiceOptions(n_select=n_steps, words=0, selector=self.fine_tuning_selector)

    def _effort(self, request: AnswerRequest) -> str | None:
        return request.effort or (self.effort if self.n_steps is None else None)

    def _choice(
        self, request: AnswerRequest, query: Query, chosen: Chosen, timings: Mapping[str, float]
    ) -> Choice:
        """Return the choice of documents and, in mode "auto", of the mode.

        Args:
            request: The question, and how to answer it.
            query: The question, embedded.
            chosen: The first choice, made as `_first_choice` says.
            timings: Seconds that were spent before it, by stage.
        """
        started = time.perf_counter()
        timings = {**timings, **chosen.timings}
        deadline = request.deadline(spent_s=sum(timings.values()))
        mode, pool = AnswerMode(request.mode), chosen.pool
        if not len(pool) and mode is not AnswerMode.MERGED:
            mode = AnswerMode.BASE
        read = chosen if mode in (*READING, AnswerMode.AUTO) else None
        learned = features = None
        if mode is AnswerMode.FINE_TUNE:
            learned = chosen
        elif mode in (AnswerMode.BOTH, AnswerMode.AUTO):
            learned = choose(pool, query, self._learning_options(request))
        answerer = self.answerer_for(request)
        if mode is AnswerMode.AUTO:
            assert read is not None  # as is `learned`
            assert learned is not None
            features = replace(
                answerer.features(query, read.chunks, learned.chunks),
                latency_s=seconds_until(deadline),
                cost_model=self.cost_model,
                can_merge=self.adapters is not None,
            )
            decision = self.policy.decide(features)
        else:
            reason = "it was asked for" if mode is request.mode else "there is no candidate"
            is_off_topic = request.mode is AnswerMode.AUTO
            decision = Decision(mode=mode, reasons=(reason,), is_off_topic=is_off_topic)
        learned = learned if decision.mode in LEARNING else None
        if learned is not None and decision.n_steps is not None:
            learned = learned.first(decision.n_steps)
        has_effort = self._effort(request) is not None and learned is not None
        select_s = timings.get("select", 0.0) + time.perf_counter() - started
        return Choice(
            query=query,
            mode=decision.mode,
            reasons=decision.reasons,
            pool=pool,
            read=read if decision.mode in READING else None,
            learned=learned,
            effort=effort_for(len(learned)) if has_effort and learned is not None else None,
            timings={**timings, "select": select_s},
            deadline=deadline,
            features=features,
            generation=request.generation_settings,
            cite=answerer.cite,
            refuses=decision.is_off_topic and self.on_off_topic == "refuse",
            searched_for=request.searched_for if "fetch" in timings else (),
        )

    def _streamed(self, choice: Choice, generation: Mapping[str, Any]) -> Produce:
        """Return the computation of an answer in a worker, checked as far as can be before it."""
        answerer = self._answerer({**choice.generation, **generation}, cite=choice.cite)
        answerer.check(choice.query)
        return cancellable(
            lambda on_step, **options: self.answer_from(choice, on_step=on_step, **options),
            {**answerer.generation, **generation},
        )

    def _request(self, question: str | AnswerRequest, options: Mapping[str, Any]) -> AnswerRequest:
        """Return what is asked, checked before any work."""
        request = AnswerRequest.of(question, options)
        self.language_model.check_generation(request.generation)
        if request.mode is AnswerMode.MERGED and self.adapters is None:
            raise InvalidInputError(
                'mode "merged" needs an adapter that was learned beforehand; construct the engine '
                "with `adapters`, from `learn_collection` or `sift learn`"
            )
        request.choice_options(self.options)  # checks them
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
        by = (self.options.selector or ContextSelector(), self.fine_tuning_selector)
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


def _nothing_chosen(query: Query) -> Chosen:
    """Return the choice from no candidate."""
    return Chosen(
        query=query,
        pool=CandidatePool.empty(),
        passages=(),
        positions=np.empty(0, dtype=np.intp),
        variances=np.ones(1),
        stop_reason=StopReason.POOL_EXHAUSTED,
    )
