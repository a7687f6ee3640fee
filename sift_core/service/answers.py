"""One answer: from a question to events, in the queue's order, within its time, while it is wanted.

Knows the engine and no wire format.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from sift_core.answering.answer import Answer
from sift_core.answering.request import AnswerRequest
from sift_core.answering.streams import computed, followed
from sift_core.service.errors import RefusedError
from sift_core.service.sessions import Sessions
from sift_core.service.state import Service
from sift_core.types import CandidatePool, Query

if TYPE_CHECKING:
    from sift_core.answering import AnswerEngine, Choice, Session

LEARNING_SHARE = 0.75  # of the time that is left: the rest is for writing. A guess.
LEAST_S = 0.01
CHARACTERS = 64  # a token at most; of prose four or five


@dataclass(frozen=True, kw_only=True, eq=False)
class AnswerJob:
    """A question to a service, with its session.

    Args:
        request: The question; `max_new_tokens` None for the service's default.
        session: Names a conversation that learns once; None for none.
        conditions: What the session's documents are restricted to, for its key.
    """

    request: AnswerRequest
    session: str | None = None
    conditions: str = ""

    @property
    def session_key(self) -> tuple[object, ...]:
        """What a session may not share with another: all that its documents depend on."""
        asked = self.request
        options = tuple(sorted(asked.options.items()))
        return (self.session, asked.mode, asked.effort, options, asked.cite, self.conditions)


@dataclass(frozen=True, kw_only=True, eq=False)
class ChoiceEvent:
    """The documents and the mode are decided.

    Args:
        choice: The choice.
        is_reused: Whether a session learned these documents before.
    """

    choice: Choice
    is_reused: bool = False


@dataclass(frozen=True, kw_only=True)
class StepEvent:
    """A training step was taken.

    Args:
        number: From 1.
        n_steps: How many there are at most.
        loss: Before it, nats per token.
    """

    number: int
    n_steps: int
    loss: float


@dataclass(frozen=True, kw_only=True)
class TextEvent:
    """A piece of the answer's text."""

    text: str


@dataclass(frozen=True, kw_only=True, eq=False)
class DoneEvent:
    """The whole answer.

    Args:
        answer: It.
        choice: What it rests on.
        is_cut: Whether its time was over before its end.
    """

    answer: Answer
    choice: Choice
    is_cut: bool


Event: TypeAlias = ChoiceEvent | StepEvent | TextEvent | DoneEvent


async def fit_to_window(service: Service, engine: AnswerEngine, job: AnswerJob) -> AnswerJob:
    """Return a question that fits into the model's window, with the length of its answer.

    The default length gives way to a long question; a length that was asked for does not.

    Raises:
        InvalidInputError: If question and answer do not fit, or an option cannot be used.
        RefusedError: If more tokens are asked for than the service allows.
    """
    request = job.request
    _check_size(engine, request)
    limit = service.settings.max_new_tokens
    if request.max_new_tokens is not None and request.max_new_tokens > limit:
        raise RefusedError(
            f"`max_tokens` must be <= {limit:,}, got {request.max_new_tokens:,}", param="max_tokens"
        )

    def checked() -> int:
        query = Query(text=request.question, history=request.history)
        n = request.max_new_tokens
        answerer = replace(engine.answerer_for(request), max_new_tokens=1 if n is None else n)
        answerer.check(query)
        if n is not None:
            return n
        room = answerer.room(answerer.prompt(query, CandidatePool.empty()))
        return min(engine.max_new_tokens, limit, 1 + room)

    n = await service.in_thread("check", checked)  # a long text takes its time
    return replace(job, request=replace(request, max_new_tokens=n))


def _check_size(engine: AnswerEngine, request: AnswerRequest) -> None:
    """Refuse megabytes, which cannot fit, before they are cut into tokens: that takes seconds.

    Raises:
        RefusedError: If so.
    """
    window = engine.language_model.window
    n_characters = len(request.question) + sum(len(turn["content"]) for turn in request.history)
    if n_characters > CHARACTERS * window or len(request.history) > window:
        raise RefusedError(
            f"question and history have {n_characters:,} characters in "
            f"{len(request.history) + 1:,} messages; the model reads {window:,} tokens",
            param="messages",
        )


class Answering:
    """An answer on its way. Its work is a task of its own; `close` ends it within a step.

    Args:
        service: Whose queue and sessions it takes part in.
        engine: Answers.
        job: From `fit_to_window`.

    Raises:
        RefusedError: If the queue is full.
    """

    def __init__(self, service: Service, engine: AnswerEngine, job: AnswerJob) -> None:
        self._service, self._job = service, job
        settings = service.settings
        self._deadline = time.monotonic() + settings.timeout_s
        self._engine = engine
        self._is_cut = False
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[Event | BaseException] = asyncio.Queue()
        self._ticket = service.answers.ticket()
        self._task = asyncio.create_task(self._run())
        self._task.add_done_callback(lambda _: self._ticket.give_back())

    async def next(self, timeout_s: float) -> Event | None:
        """Return what comes next; None if nothing came in time.

        Raises:
            SiftError: If the answer fails.
        """
        try:
            event = await asyncio.wait_for(self._events.get(), timeout_s)
        except asyncio.TimeoutError:
            return None
        if isinstance(event, BaseException):
            raise event
        return event

    async def done(self) -> DoneEvent:
        """Return the end, after all other events."""
        while True:
            event = await self.next(self._service.settings.timeout_s)
            if isinstance(event, DoneEvent):
                return event

    def close(self) -> None:
        """Stop: nothing is computed after the step that is being taken."""
        if not self._task.done():
            self._service.metrics.client_gone()
            self._task.cancel()

    async def _run(self) -> None:
        try:
            try:
                await self._ticket.enter_within(self._left())
            except TimeoutError as error:
                raise RefusedError(
                    "the answer's time was over before its turn came; ask again later",
                    status=503,
                    code="timeout",
                    retry_after_s=5.0,
                ) from error
            self._refuse_while_stopping()
            if self._job.session is None:
                done = await self._answered()
            else:
                done = await self._answered_in_session(self._service.sessions)
            self._count(done)
            self._events.put_nowait(done)
        except Exception as error:
            self._events.put_nowait(error)

    async def _answered(self) -> DoneEvent:
        choice = await self._engine.achoose(self._job.request)
        self._events.put_nowait(ChoiceEvent(choice=choice))
        engine = self._within_time()

        def answer(on_step: Callable[[float], object], **options: Any) -> Answer:
            on_loss = self._on_loss(choice, on_step)
            return engine.answer_from(choice, on_step=on_loss, **options)

        return await self._computed(answer, choice, choice.generation)

    async def _answered_in_session(self, sessions: Sessions) -> DoneEvent:
        key = self._job.session_key
        async with sessions.being_made(key):
            session = sessions.get(key)
            is_reused = session is not None
            if session is None:
                session = await self._opened()
                if not session.choice.refuses:  # a later question may be on the topic
                    sessions.put(key, session)
        if is_reused:
            self._events.put_nowait(ChoiceEvent(choice=session.choice, is_reused=True))
        request = self._job.request
        query = Query(text=request.question, history=request.history)

        def answer(_: Callable[[float], object], **options: Any) -> Answer:
            answer = session.answer(query, **options)
            if is_reused:
                return answer
            return replace(answer, timings={**session.timings, **answer.timings})

        return await self._computed(answer, session.choice, request.generation_settings)

    async def _opened(self) -> Session:
        """Return a new session; how its first answer is written is not how all will be."""
        about = replace(self._job.request, generation={})
        choice = await self._engine.achoose(about)
        self._events.put_nowait(ChoiceEvent(choice=choice))
        engine = self._within_time()
        return await computed(
            self._engine.language_model.submit,
            lambda go_on: engine.session_from(choice, on_step=self._on_loss(choice, go_on)),
        )

    async def _computed(
        self,
        answer: Callable[..., Answer],
        choice: Choice,
        generation: Mapping[str, Any],
    ) -> DoneEvent:
        """Return what a worker of the model computes, its text put as it comes."""

        def is_late(*_: Any, **__: Any) -> bool:
            is_over = self._left() <= LEAST_S or self._service.stopping.is_set()
            self._is_cut = self._is_cut or is_over
            return self._is_cut

        criteria = [*(generation.get("stopping_criteria") or []), is_late]
        produce = followed(answer, {**generation, "stopping_criteria": criteria})
        made = await computed(
            self._engine.language_model.submit,
            lambda go_on: produce(lambda piece: self._put(TextEvent(text=piece)), go_on),
        )
        if self._is_cut:
            seconds = self._service.settings.timeout_s
            why = f"the answer's {seconds:g} s were over"
            if self._service.stopping.is_set():
                why = "the service is being stopped"
            reason = f"{why}: this is what there was"
            made = replace(made, finish_reason="length", reasons=(*made.reasons, reason))
        return DoneEvent(answer=made, choice=choice, is_cut=self._is_cut)

    def _on_loss(
        self, choice: Choice, go_on: Callable[[float], object]
    ) -> Callable[[float], object]:
        """Return what is called after each training step."""
        n_steps = 0 if choice.learned is None else len(choice.learned)
        number = 0

        def on_loss(loss: float) -> None:
            nonlocal number
            go_on(loss)  # leaves by an exception where nobody waits any more
            self._refuse_while_stopping()
            number += 1
            self._service.metrics.learning_step()
            self._put(StepEvent(number=number, n_steps=n_steps, loss=loss))

        return on_loss

    def _refuse_while_stopping(self) -> None:
        if self._service.stopping.is_set():
            raise RefusedError("the service is being stopped", status=503, retry_after_s=10.0)

    def _put(self, event: Event) -> None:
        self._loop.call_soon_threadsafe(self._events.put_nowait, event)

    def _left(self) -> float:
        return max(self._deadline - time.monotonic(), LEAST_S)

    def _within_time(self) -> AnswerEngine:
        """Return the engine, which learns for most of the time that is left."""
        engine = self._engine
        return replace(engine, settings=engine.settings.within(self._left() * LEARNING_SHARE))

    def _count(self, done: DoneEvent) -> None:
        metrics, answer = self._service.metrics, done.answer
        metrics.stages(answer.timings)
        metrics.tokens(prompt=answer.n_prompt_tokens, completion=answer.n_new_tokens)
        if answer.fine_tuning is not None:
            is_hit = answer.fine_tuning.source != "trained"
            metrics.looked_up("adapters", hits=int(is_hit), misses=int(not is_hit))
