"""The stages composed: candidates, choice, answer. Knows protocols, never vendors."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sift_core.answering.answer import Answer
from sift_core.answering.answer_spans import traced_answer, traced_stream
from sift_core.answering.choosing import (
    Choice,
    LearningOptions,
    check_mode,
    first_choice_arguments,
    make_choice,
    nothing_chosen,
    take_several_queries,
)
from sift_core.answering.in_context import LARGEST_COUNT, InContextAnswerer, PromptOptions
from sift_core.answering.model.bundled import SMOLLM2
from sift_core.answering.model.text_model import TextGenerator, TextModel, writing_model
from sift_core.answering.policy import Policy, VariancePolicy, check_policy
from sift_core.answering.query_rewriting import QueryRewriter, QueryRewriting, check_query_rewriting
from sift_core.answering.request import AnswerRequest, check_generation
from sift_core.answering.sessions import Session, prepare_session
from sift_core.answering.streams import (
    AnswerStream,
    AsyncAnswerStream,
    OnStep,
    OnText,
    Produce,
    cancellable,
    run_in_worker,
)
from sift_core.checks import as_count, check_embedder, check_flag, check_instance
from sift_core.choice import asearch, choose, search
from sift_core.embedders.unrelated import baseline_of
from sift_core.errors import InvalidInputError
from sift_core.explanation import Chosen
from sift_core.options import ChoiceOptions
from sift_core.progress import timed
from sift_core.protocols import CandidateSource, Embedder
from sift_core.reading_on import aread_on, read_on
from sift_core.types import AnswerMode, CandidatePool, Query

if TYPE_CHECKING:  # a server's model needs no torch
    from sift_core.answering.model.loading import NumberType


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
        language_model: The model that answers. Default: the `OpenAIGenerator` of `generator`.
        source: Where candidates come from. Default: none; `choose_from` takes candidates.
        embedder: The model that embedded the source's documents. Default: none.
        options: What the choice of chunks for the prompt obeys, unless a question says otherwise.
            Tokens are those of the model that writes, the blank line behind each chunk included,
            unless `count_tokens` is given. Default: 10 chunks of 200 candidates.
        prompt: How chunks are put. Default: the chunks, a blank line, the question.
        learning: What the model learns, and how. Default: at most 12 steps.
        generation: `max_new_tokens`, `stop`, and what `transformers`' `generate` takes. Default:
            greedy decoding of at most 64 tokens.
        policy: Decides in mode "auto", and whether to refuse what is off the topic.
            `Calibration.policy` is one for a collection. Default: `VariancePolicy()`.
        query_rewriting: How to search for a follow-up question. "join" searches for the last two
            questions together and for the current one alone; "model" rewrites it; a function of
            history and question returns your own texts; None searches for the question as typed.
            Default: "join".
        read_on: Whether chunks are read with those that follow them in their documents, and chosen
            by these (`sift_core.reading_on`). It does nothing in `choose_from`. Default: off.
        generator: Writes the texts: a `VllmGenerator`, or an `OpenAIGenerator`, with which nothing
            is learned. A `language_model` beside that scores texts. Default: the language model.

    Raises:
        InvalidInputError: If an option cannot be used.

    Example:
        >>> engine = AnswerEngine(language_model=language_model, source=source, embedder=embedder)
        >>> answer = engine.answer(question, mode="context", max_new_tokens=8)
        >>> answer.mode.value, answer.chunks.document_ids[0]
        ('context', 'prices')
    """

    language_model: TextModel = None  # type: ignore[assignment]  # set from the generator
    source: CandidateSource | None = None
    embedder: Embedder | None = None
    options: ChoiceOptions = field(default_factory=ChoiceOptions)
    prompt: PromptOptions = field(default_factory=PromptOptions)
    learning: LearningOptions = field(default_factory=LearningOptions)
    generation: Mapping[str, Any] = field(default_factory=dict)
    policy: Policy = field(default_factory=VariancePolicy)
    query_rewriting: QueryRewriting | None = "join"
    read_on: bool = False
    generator: TextGenerator | None = None

    def __post_init__(self) -> None:
        if self.language_model is None:
            object.__setattr__(self, "language_model", writing_model(None, self.generator))
        check_embedder(self.embedder, is_needed=False)
        check_instance("options", self.options, ChoiceOptions)
        check_instance("prompt", self.prompt, PromptOptions)
        check_instance("learning", self.learning, LearningOptions)
        for name in ("n_candidates", "n_select"):
            as_count(name, getattr(self.options, name), minimum=1, maximum=LARGEST_COUNT)
        check_policy(self.policy)
        check_flag("read_on", self.read_on)
        check_query_rewriting(self.query_rewriting)
        check_generation(self.generation)
        self._answerer.writer.check_generation(self._answerer.generation)

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
            dtype: Number type of the weights.
            trust_remote_code: Whether code of the model's repository may run.
            **options: Of the engine, such as `source` and `embedder`.

        Raises:
            InvalidInputError: If there is no such causal LM.
        """
        from sift_core.answering.model.language_model import LanguageModel

        language_model = LanguageModel.from_pretrained(
            model, device=device, dtype=dtype, trust_remote_code=trust_remote_code
        )
        return cls(language_model=language_model, **options)

    @property
    def can_learn(self) -> bool:
        """Whether there are modes that learn: not if an `OpenAIGenerator` writes."""
        return self._answerer.can_learn

    @property
    def max_new_tokens(self) -> int:
        """Length of an answer at most, in tokens, unless a question says otherwise."""
        return self._answerer.max_new_tokens

    @traced_answer
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
            on_text: Called with each piece of the text as it comes. What it raises ends the answer.
            on_step: Called after each training step with the loss before it. It may raise, too.
            **options: Fields of the request, and settings of generation.

        Raises:
            InvalidInputError: If the question is empty or too long for the window, an option
                cannot be used, or the engine has no source.
            CandidateSourceError: If the store fails.
            AnswerError: If the model fails; it is as before.
        """
        return self.answer_from(self.choose(question, **options), on_text=on_text, on_step=on_step)

    @traced_answer
    async def aanswer(self, question: str | AnswerRequest, **options: Any) -> Answer:
        """Return what `answer` returns. Cancelling the task ends it at the next step."""
        return await self.aanswer_from(await self.achoose(question, **options))

    @traced_stream
    def stream(self, question: str | AnswerRequest, **options: Any) -> AnswerStream:
        """Return the answer in pieces of text, as the model writes it, in another thread."""
        return self.stream_from(self.choose(question, **options))

    @traced_stream
    async def astream(self, question: str | AnswerRequest, **options: Any) -> AsyncAnswerStream:
        """Return the answer in pieces of text, as the model writes it."""
        return self.astream_from(await self.achoose(question, **options))

    def choose(self, question: str | AnswerRequest, **options: Any) -> Choice:
        """Return the mode and the documents for a question; the model runs only to rewrite it.

        Arguments and errors are those of `answer`.
        """
        request = self._request(question, options)
        if request.mode in (AnswerMode.BASE, AnswerMode.LEARNED):
            return self._choice(request, request.query())
        source, embedder = self._retrieval()
        timings: dict[str, float] = {}
        request = self._rewriter.rewrite(request, timings)
        with timed(timings, "embed"):
            query = request.query(embedder)
        arguments = self._first_choice(request, query)
        chosen = search(source, request.searched(query), filter=request.filter, **arguments)
        choice = self._choice(request, query, chosen, timings)
        if self.read_on and choice.read is not None:
            read = read_on(source, choice.read, filter=request.filter, **arguments)
            choice = choice.with_read(read)
        return choice

    async def achoose(self, question: str | AnswerRequest, **options: Any) -> Choice:
        """Return what `choose` returns; embedding and selection run in other threads."""
        request = await asyncio.to_thread(self._request, question, options)
        if request.mode in (AnswerMode.BASE, AnswerMode.LEARNED):
            return self._choice(request, request.query())
        source, embedder = self._retrieval()
        timings: dict[str, float] = {}
        request = await self._rewriter.arewrite(request, timings)
        with timed(timings, "embed"):
            query = await asyncio.to_thread(request.query, embedder)
        arguments = await asyncio.to_thread(self._first_choice, request, query)
        chosen = await asearch(source, request.searched(query), filter=request.filter, **arguments)
        choice = await asyncio.to_thread(self._choice, request, query, chosen, timings)
        if self.read_on and choice.read is not None:
            read = await aread_on(source, choice.read, filter=request.filter, **arguments)
            choice = choice.with_read(read)
        return choice

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
        check_instance("query", query, Query)
        check_instance("pool", pool, CandidatePool)
        if foreign := sorted(options.keys() & {"filter", "history"}):
            raise InvalidInputError(f"`choose_from` takes no {foreign}: a `Query` has a history")
        request = self._request(query.text, options)
        if not len(pool) or request.mode in (AnswerMode.BASE, AnswerMode.LEARNED):
            return self._choice(request, query, nothing_chosen(query, pool), timings)
        spent = dict(timings or {})
        with timed(spent, "select"):
            chosen = choose(pool, query, **self._first_choice(request, query))
        return self._choice(request, query, chosen, spent)

    def answer_from(
        self,
        choice: Choice,
        *,
        on_text: OnText | None = None,
        on_step: OnStep | None = None,
        **generation: Any,
    ) -> Answer:
        """Return what `answer` returns, for a question for which all is chosen."""
        self.answerer_for(choice, generation).check(choice.query)  # before the work
        session = self.prepare(choice, on_step=on_step)
        answer = session.answer(choice.query, on_text=on_text, **generation)
        return replace(answer, timings={**session.timings, **answer.timings})

    async def aanswer_from(self, choice: Choice, **generation: Any) -> Answer:
        """Return what `answer_from` returns, without blocking the event loop."""
        async with self.astream_from(choice, **generation) as stream:
            return await stream.answer()

    def stream_from(self, choice: Choice, **generation: Any) -> AnswerStream:
        """Return what `stream` returns, for a question for which all is chosen."""
        return AnswerStream(self._produce(choice, generation), self.language_model.submit)

    def astream_from(self, choice: Choice, **generation: Any) -> AsyncAnswerStream:
        """Return what `astream` returns, for a question for which all is chosen."""
        return AsyncAnswerStream(self._produce(choice, generation), self.language_model.submit)

    def prepare(self, choice: Choice, *, on_step: OnStep | None = None) -> Session:
        """Return the model as the choice wants it: fine-tuned, unless that was done before.

        One fine-tuning serves any number of questions and scores, from any thread.

        Args:
            choice: From `choose`, in any mode.
            on_step: Called after each training step with the loss before it.

        Raises:
            AnswerError: If fine-tuning fails; the model is as before.
        """
        return prepare_session(choice, self.answerer_for(choice), self.learning, on_step=on_step)

    def session(
        self, question: str | AnswerRequest, *, on_step: OnStep | None = None, **options: Any
    ) -> Session:
        """Return a session: documents chosen and learned once, for many questions.

        Args:
            question: What the questions will be about; the first of them, or a topic.
            on_step: As for `answer`.
            **options: As for `answer`; `latency_s` is for the first of the answers. Errors are
                those of `answer`, too.
        """
        return self.session_from(self.choose(question, **options), on_step=on_step)

    async def asession(self, question: str | AnswerRequest, **options: Any) -> Session:
        """Return what `session` returns. Cancelling the task ends it at the next step."""
        choice = await self.achoose(question, **options)
        return await run_in_worker(
            self.language_model.submit, lambda step: self.session_from(choice, on_step=step)
        )

    def session_from(self, choice: Choice, *, on_step: OnStep | None = None) -> Session:
        """Return what `session` returns, for a question for which all is chosen."""
        return self.prepare(choice, on_step=on_step).with_prefix_read()

    def answerer_for(
        self, asked: AnswerRequest | Choice, generation: Mapping[str, Any] | None = None
    ) -> InContextAnswerer:
        """Return what puts a question and generates, as the question, else the engine says.

        Args:
            asked: The question, or what is decided about it.
            generation: Settings in place of its own. Default: none.

        Raises:
            InvalidInputError: If a setting of generation cannot be used.
        """
        own = asked.generation if isinstance(asked, Choice) else asked.generation_settings
        prompt = self.prompt if asked.cite is None else replace(self.prompt, cite=asked.cite)
        answerer = replace(self._answerer, prompt=prompt)
        return answerer.with_generation(**{**own, **(generation or {})})

    @cached_property
    def _baseline(self) -> float:
        return baseline_of(self.embedder)

    def _first_choice(self, request: AnswerRequest, query: Query) -> dict[str, Any]:
        answerer = self.answerer_for(request)
        return first_choice_arguments(
            request, query, answerer, self.options, self.learning, joins=self.read_on
        )

    def _choice(
        self,
        request: AnswerRequest,
        query: Query,
        chosen: Chosen | None = None,
        timings: Mapping[str, float] | None = None,
    ) -> Choice:
        return make_choice(
            request,
            query,
            nothing_chosen(query) if chosen is None else chosen,
            answerer=self.answerer_for(request),
            learning=self.learning,
            policy=self.policy,
            baseline=lambda: self._baseline,
            timings=timings or {},
        )

    def _produce(self, choice: Choice, generation: Mapping[str, Any]) -> Produce:
        """Return the computation of an answer in a worker, checked as far as can be before it."""
        answerer = self.answerer_for(choice, generation)
        answerer.check(choice.query)
        return cancellable(
            lambda on_step, **options: self.answer_from(choice, on_step=on_step, **options),
            {**answerer.generation, **generation},
        )

    def _request(self, question: str | AnswerRequest, options: Mapping[str, Any]) -> AnswerRequest:
        """Return what is asked, checked before any work."""
        request = AnswerRequest.of(question, options)
        writer = self._answerer.writer
        writer.check_generation(request.generation)
        check_mode(AnswerMode(request.mode), self._answerer, self.learning.adapter)
        request.choice_options(self.options)  # checks them
        _ = writer.window  # asks a server once, here in a thread
        return request

    def _retrieval(self) -> tuple[CandidateSource, Embedder]:
        if self.source is None or self.embedder is None:
            raise InvalidInputError(
                "this engine has no `source` or no `embedder`; construct it with both, or pass "
                "candidates that are at hand to `choose_from`"
            )
        return self.source, self.embedder

    @property
    def _rewriter(self) -> QueryRewriter:
        several = take_several_queries(self.options, self.learning)
        return QueryRewriter(self.query_rewriting, several, self._answerer.writer, self.generator)

    @property
    def _answerer(self) -> InContextAnswerer:
        answerer = InContextAnswerer(
            language_model=self.language_model, generator=self.generator, prompt=self.prompt
        )
        return answerer.with_generation(**self.generation)
