"""From a question to mode and documents, before the model runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from sift_core.answering.cost_model import CostModel
from sift_core.answering.in_context import InContextAnswerer
from sift_core.answering.policy import Decision, Policy
from sift_core.answering.situation import LEARNING, READING, Situation
from sift_core.checks import as_count, check_question
from sift_core.errors import InvalidInputError
from sift_core.protocols import CandidateSource, Embedder, Selector
from sift_core.selection import posterior_variances
from sift_core.types import AnswerMode, CandidatePool, Message, Query, Selection

LEAST_SECONDS = 1e-3  # where choosing and waiting took all the time there was: one step


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
        deadline: When the caller wants the answer, by `time.monotonic`; None if it is no matter.
        answer_s: Seconds that writing the answer will take, as far as that is known.
        situation: What a policy decided by; None where none was asked.
    """

    query: Query
    mode: AnswerMode
    reasons: tuple[str, ...]
    pool: CandidatePool
    read: Selection | None
    learned: Selection | None
    timings: Mapping[str, float]
    deadline: float | None = None
    answer_s: float = 0.0
    situation: Situation | None = None

    def chunks(self, selection: Selection | None) -> CandidatePool:
        """Return the documents of `read` or `learned` in order of choice."""
        return self.pool.take([] if selection is None else selection.positions)


@dataclass(frozen=True, kw_only=True)
class Wish:
    """How a question is to be answered, as its asker says.

    Args:
        mode: "base", "context", "fine_tune", "both" or "auto".
        latency_s: How long the caller will wait, > 0; None if that is no matter.
        n_questions: How many questions what is learned will serve, >= 1.
        max_new_tokens: Length of the answer at most, >= 1; the answerer's if None.

    Raises:
        InvalidInputError: If there is no such mode, or a number is out of its range.
    """

    mode: str = "auto"
    latency_s: float | None = None
    n_questions: int = 1
    max_new_tokens: int | None = None

    def __post_init__(self) -> None:
        if self.mode not in list(AnswerMode):
            known = ", ".join(repr(m.value) for m in AnswerMode)
            raise InvalidInputError(f"`mode` must be one of {known}, got {self.mode!r}")
        if self.latency_s is not None and not 0 < self.latency_s < float("inf"):
            raise InvalidInputError(f"`latency_s` must be > 0 and finite, got {self.latency_s}")
        as_count("n_questions", self.n_questions, minimum=1)
        if self.max_new_tokens is not None:
            as_count("max_new_tokens", self.max_new_tokens, minimum=1)

    @property
    def reads(self) -> bool:
        """Return whether documents may be read."""
        return self.mode in (*READING, AnswerMode.AUTO)

    @property
    def learns(self) -> bool:
        """Return whether documents may be learned from."""
        return self.mode in (*LEARNING, AnswerMode.AUTO)


@dataclass(frozen=True, kw_only=True, eq=False)
class Chooser:
    """Settles mode and documents; the arguments are those of `AnswerEngine`.

    Args:
        answerer: How questions will be put.
        source: Where candidates come from; None where they are at hand.
        embedder: The model that embedded them; None likewise.
        context_selector: Chooses what goes into the prompt.
        fine_tuning_selector: Chooses what is learned from.
        n_candidates: Documents fetched a query.
        n_context: Documents chosen for the prompt at most.
        n_steps: Training steps.
        policy: Decides in mode "auto".
        cost_model: Seconds on this machine; None if they are not known.
    """

    answerer: InContextAnswerer
    source: CandidateSource | None
    embedder: Embedder | None
    context_selector: Selector
    fine_tuning_selector: Selector
    n_candidates: int
    n_context: int
    n_steps: int
    policy: Policy
    cost_model: CostModel | None

    def choose(
        self, question: str, wish: Wish, *, filter: Any, history: Sequence[Message]
    ) -> Choice:
        """Return the choice for a question; see `AnswerEngine.choose`."""
        check_question(question)
        if wish.mode == AnswerMode.BASE:
            return self._nothing(question, wish, history)
        source, embedder = self._retrieval()
        timings: dict[str, float] = {}
        with _timed(timings, "embed"):
            query = _embedded(embedder, question, history)
        with _timed(timings, "fetch"):
            pool = source.fetch(query, self.n_candidates, filter=filter)
        return self.choose_from(query, pool, wish, timings=timings)

    async def achoose(
        self, question: str, wish: Wish, *, filter: Any, history: Sequence[Message]
    ) -> Choice:
        """Return what `choose` returns; embedding and selection run in other threads."""
        check_question(question)
        if wish.mode == AnswerMode.BASE:
            return self._nothing(question, wish, history)
        source, embedder = self._retrieval()
        timings: dict[str, float] = {}
        with _timed(timings, "embed"):
            query = await asyncio.to_thread(_embedded, embedder, question, history)
        with _timed(timings, "fetch"):
            pool = await source.afetch(query, self.n_candidates, filter=filter)
        return await asyncio.to_thread(self.choose_from, query, pool, wish, timings=timings)

    def choose_from(
        self, query: Query, pool: CandidatePool, wish: Wish, *, timings: Mapping[str, float]
    ) -> Choice:
        """Return the choice for a query whose candidates are at hand.

        Args:
            query: The question.
            pool: Its candidates.
            wish: How it is to be answered.
            timings: Seconds that were spent already, by stage; part of the caller's latency.
        """
        started = time.perf_counter()
        deadline = None
        if wish.latency_s is not None:
            deadline = time.monotonic() + wish.latency_s - sum(timings.values())
        read = learned = situation = None
        if len(pool) and wish.reads:
            read = self._select_context(query, pool)
        if len(pool) and wish.learns:
            learned = self.fine_tuning_selector.select(query.vector, pool.embeddings, self.n_steps)
        if wish.mode != AnswerMode.BASE and not len(pool):
            decision = Decision(mode=AnswerMode.BASE, reasons=("there is no candidate",))
        elif read is not None and learned is not None and wish.mode == AnswerMode.AUTO:
            situation = self._situation(query, pool, read, learned, wish, deadline)
            decision = self.policy.decide(situation)
        else:
            mode = AnswerMode(wish.mode)
            decision = Decision(mode=mode, reasons=("it was asked for",))
        return Choice(
            query=query,
            mode=decision.mode,
            reasons=decision.reasons,
            pool=pool,
            read=read if decision.mode in READING else None,
            learned=_cut(learned, decision.n_steps) if decision.mode in LEARNING else None,
            timings={**timings, "select": time.perf_counter() - started},
            deadline=deadline,
            answer_s=_predicted_answer_s(situation, decision.mode),
            situation=situation,
        )

    def _nothing(self, question: str, wish: Wish, history: Sequence[Message]) -> Choice:
        """Return the choice of mode "base": nothing is looked for, so nothing is embedded."""
        query = Query(text=question, history=history)
        return self.choose_from(query, CandidatePool.empty(), wish, timings={})

    def _retrieval(self) -> tuple[CandidateSource, Embedder]:
        """Return what candidates are found with."""
        if self.source is None or self.embedder is None:
            raise InvalidInputError(
                "this engine has no `source` or no `embedder` to find candidates with; construct "
                "it with both, or pass candidates that are at hand to `choose_from`"
            )
        return self.source, self.embedder

    def _select_context(self, query: Query, pool: CandidatePool) -> Selection:
        return self.context_selector.select(
            query.vector, pool.embeddings, self.n_context, relevance=pool.relevance
        )

    def _situation(
        self,
        query: Query,
        pool: CandidatePool,
        read: Selection,
        learned: Selection,
        wish: Wish,
        deadline: float | None,
    ) -> Situation:
        answerer = self.answerer
        if wish.max_new_tokens is not None:
            answerer = answerer.generating(max_new_tokens=wish.max_new_tokens)
        left = None if deadline is None else max(deadline - time.monotonic(), LEAST_SECONDS)
        return situation_of(
            answerer,
            query,
            pool,
            read=read,
            learned=learned,
            cost_model=self.cost_model,
            latency_s=left,
            n_questions=wish.n_questions,
        )


def situation_of(
    answerer: InContextAnswerer,
    query: Query,
    pool: CandidatePool,
    *,
    read: Selection,
    learned: Selection,
    cost_model: CostModel | None,
    latency_s: float | None,
    n_questions: int,
) -> Situation:
    """Return all that is known about a question before the model runs.

    Costs the tokens of the chunks, and two conditionings in the paper's setting.

    Args:
        answerer: How the question will be put.
        query: The question.
        pool: Its candidates.
        read: What would go into the prompt.
        learned: What would be learned from, in order.
        cost_model: Seconds on this machine; None if they are not known.
        latency_s: How long the caller will wait; None if that is no matter.
        n_questions: How many questions one fine-tuning will serve.
    """
    prompt = answerer.prompt(query, pool.take([]))
    room = answerer.room(prompt)
    chunks = pool.take(read.positions)
    fitting = answerer.fitting(chunks, room)
    lessons = pool.take(learned.positions)
    lengths = {text: answerer.language_model.n_tokens(text) for text in set(lessons.texts)}
    learn_tokens = tuple(lengths[text] for text in lessons.texts)
    sizes = {text: answerer.size(text) for text in set(chunks.texts)}
    read_tokens = sum(sizes[text] for text in fitting.texts)
    variances = posterior_variances(query.vector, lessons.embeddings)
    reading = posterior_variances(query.vector, fitting.embeddings)
    question_tokens = len(answerer.language_model.prompt_ids(prompt))
    seconds = None
    if cost_model is not None:
        seconds = cost_model.predict(
            question_tokens=question_tokens,
            read_tokens=read_tokens,
            learn_tokens=learn_tokens,
            max_new_tokens=answerer.max_new_tokens,
        )
    return Situation(
        variance_before=float(variances[0]),
        variance_read=float(reading[-1]),
        variances_learned=tuple(float(variance) for variance in variances[1:]),
        question_tokens=question_tokens,
        context_tokens=sum(sizes.values()),
        read_tokens=read_tokens,
        room=room,
        learn_tokens=learn_tokens,
        max_new_tokens=answerer.max_new_tokens,
        latency_s=latency_s,
        seconds=seconds,
        n_questions=n_questions,
    )


def _cut(learned: Selection | None, n_steps: int | None) -> Selection | None:
    """Return the first `n_steps` choices."""
    if learned is None or n_steps is None:
        return learned
    return replace(
        learned,
        positions=learned.positions[:n_steps],
        variances=learned.variances[: n_steps + 1],
    )


def _predicted_answer_s(situation: Situation | None, mode: AnswerMode) -> float:
    if situation is None or situation.seconds is None:
        return 0.0
    return situation.seconds.answer[mode]


def _embedded(embedder: Embedder, question: str, history: Sequence[Message]) -> Query:
    return Query(
        text=question,
        embedding=embedder.embed_query(question),
        embedder_name=embedder.name,
        history=history,
    )


@contextmanager
def _timed(timings: dict[str, float], stage: str) -> Iterator[None]:
    """Record how many seconds the block took."""
    started = time.perf_counter()
    try:
        yield
    finally:
        timings[stage] = time.perf_counter() - started
