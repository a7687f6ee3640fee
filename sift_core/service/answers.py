"""One answer as events, from its turn in the queue until its end or that of its time.

It knows the engine, and nothing of OpenAI's dialect.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias

from sift_core.answering.answer import Answer
from sift_core.answering.chats import with_fitting_length
from sift_core.answering.request import AnswerRequest
from sift_core.answering.streams import cancellable, run_in_worker
from sift_core.explanation import number_or_none
from sift_core.service.errors import RefusedError, stopping
from sift_core.service.metadata import title_and_url
from sift_core.service.state import Service
from sift_core.sources.filtered import FilteredSource
from sift_core.types import Query

if TYPE_CHECKING:
    from sift_core.answering import AnswerEngine, Choice, Session

LEARNING_SHARE = 0.75  # of the time that is left: the rest is for writing. A guess.
LEAST_S = 0.01
STOP_S = 0.5  # that a step may take to end in once the service is being stopped
CHARACTERS = 64  # a token at most; of prose four or five


@dataclass(frozen=True, kw_only=True)
class Done:
    """The end of an answer.

    Args:
        answer: The whole answer.
        is_cut: Whether its time was over before its end.
    """

    answer: Answer
    is_cut: bool


Event: TypeAlias = dict[str, Any] | str | Done
"""A dict tells of the choice, or of a step that was learned; a `str` is a piece of the text."""


async def fit_to_window(
    service: Service, engine: AnswerEngine, request: AnswerRequest
) -> AnswerRequest:
    """Return a question that fits into the model's window, with the length of its answer.

    The length is the service's limit at most, and what the window holds beside the question.

    Raises:
        InvalidInputError: If the question does not fit, or an option cannot be used.
        RefusedError: If the question cannot fit by the number of its characters alone.
    """

    def fit() -> AnswerRequest:
        window, history = engine.answerer_for(request).writer.window, request.history
        n_characters = len(request.question) + sum(len(turn["content"]) for turn in history)
        # Megabytes, which cannot fit, take seconds to be cut into tokens.
        if n_characters > CHARACTERS * window or len(history) > window:
            raise RefusedError(
                f"question and history have {n_characters:,} characters in {len(history) + 1:,} "
                f"messages; the model reads {window:,} tokens",
                param="messages",
            )
        return with_fitting_length(engine, request, service.settings.max_new_tokens)

    return await service.in_thread("check", fit)  # a long text, or a server, takes its time


class Answering:
    """An answer on its way. Its work is a task of its own; `close` ends it within a step.

    Args:
        service: Has the queue and the sessions.
        engine: Answers.
        request: From `fit_to_window`.
        session_key: Names a conversation that learns once. Two questions with the same key get
            the same documents. Default: None, for a question of its own.
        with_passages: Whether the event of the choice has the texts. Default: False.

    Raises:
        RefusedError: If the queue is full.
    """

    def __init__(
        self,
        service: Service,
        engine: AnswerEngine,
        request: AnswerRequest,
        session_key: Hashable | None = None,
        *,
        with_passages: bool = False,
    ) -> None:
        self._with_passages = with_passages
        self._service, self._engine = service, engine
        self._request, self._session_key = request, session_key
        self._deadline = time.monotonic() + service.settings.timeout_s
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[Event | BaseException] = asyncio.Queue()
        service.answers.enter()
        self._task = asyncio.create_task(self._run())
        self._task.add_done_callback(lambda _: service.answers.leave())

    async def next(self, timeout_s: float) -> Event | None:
        """Return what comes next; None if nothing came in time.

        Raises:
            SiftError: If the answer fails, or the service is being stopped amid a long step.
        """
        end = self._loop.time() + timeout_s
        while (left := end - self._loop.time()) > 0:
            try:
                event = await asyncio.wait_for(self._events.get(), min(left, STOP_S))
            except asyncio.TimeoutError:
                self._refuse_while_stopping()
                continue
            if isinstance(event, BaseException):
                raise event
            return event
        return None

    async def done(self) -> Done:
        """Return the end, after all other events."""
        while True:
            event = await self.next(self._service.settings.timeout_s)
            if isinstance(event, Done):
                return event

    def close(self) -> None:
        """Stop: nothing is computed after the step that is being taken."""
        if not self._task.done():
            self._service.metrics.clients_gone.inc()
            self._task.cancel()

    async def _run(self) -> None:
        try:
            async with self._service.answers.turn(self._left()):
                self._refuse_while_stopping()
                self._events.put_nowait(await self._answered())
        except Exception as error:
            self._events.put_nowait(error)

    async def _answered(self) -> Done:
        session, is_reused = await self._session()
        request = self._request
        query = Query(text=request.question, history=request.history)
        generation = request.generation_settings
        is_cut = False

        def is_late(*_: Any, **__: Any) -> bool:
            nonlocal is_cut
            is_cut = is_cut or self._left() <= LEAST_S or self._service.stopping.is_set()
            return is_cut

        criteria = [*(generation.get("stopping_criteria") or []), is_late]
        produce = cancellable(
            lambda _, **options: session.answer(query, **options),
            {**generation, "stopping_criteria": criteria},
        )
        answer = await run_in_worker(
            self._engine.language_model.submit, lambda go_on: produce(self._put, go_on)
        )
        if not is_reused:
            answer = replace(answer, timings={**session.timings, **answer.timings})
        if is_cut:
            why = f"the answer's {self._service.settings.timeout_s:g} s were over"
            if self._service.stopping.is_set():
                why = "the service is being stopped"
            reasons = (*answer.reasons, f"{why}: this is what there was")
            answer = replace(answer, finish_reason="length", reasons=reasons)
        metrics = self._service.metrics
        metrics.stages(answer.timings)
        metrics.tokens(prompt=answer.n_prompt_tokens, completion=answer.n_new_tokens)
        if answer.fine_tuning is not None:
            is_hit = answer.fine_tuning.source != "trained"
            metrics.looked_up("adapters", hits=int(is_hit), misses=int(not is_hit))
        return Done(answer=answer, is_cut=is_cut)

    async def _session(self) -> tuple[Session, bool]:
        """Return a session, and whether it was kept from a question before."""
        key, sessions = self._session_key, self._service.sessions
        if key is None:
            return await self._opened(self._request, is_kept=False), False
        async with sessions.being_made(key):
            session = sessions.get(key)
            if session is not None and self._may_use(session.choice):
                await self._tell_choice(session.choice, is_known=True)
                return session, True
            # how its first answer is written is not how all will be
            request = replace(self._request, generation={})
            session = await self._opened(request, is_kept=True)
            if not session.choice.refuses:  # a later question may be on the topic
                sessions.put(key, session)
            return session, False

    def _may_use(self, choice: Choice) -> bool:
        """Return whether a session's chunks may be used: none is from behind another cursor."""
        source = self._engine.source
        if not isinstance(source, FilteredSource):
            return True
        return all(source.keeps(one.chunks) for one in (choice.read, choice.learned) if one)

    async def _opened(self, request: AnswerRequest, *, is_kept: bool) -> Session:
        """Return a new session; one that is kept has read its documents too."""
        choice = await self._engine.achoose(request)
        await self._tell_choice(choice, is_known=False)
        learning = self._engine.learning
        settings = learning.settings.within(self._left() * LEARNING_SHARE)
        engine = replace(self._engine, learning=replace(learning, settings=settings))
        opened = engine.session_from if is_kept else engine.prepare
        return await run_in_worker(
            engine.language_model.submit,
            lambda go_on: opened(choice, on_step=self._on_loss(choice, go_on)),
        )

    async def _tell_choice(self, choice: Choice, *, is_known: bool) -> None:
        event = _chosen(choice, is_known=is_known)
        if self._with_passages:  # tokens are counted, which a server may take its time for
            event["passages"] = await asyncio.to_thread(_passages, self._engine, choice)
        self._events.put_nowait(event)

    def _on_loss(
        self, choice: Choice, go_on: Callable[[float], object]
    ) -> Callable[[float], object]:
        """Return what is called after each training step."""
        n_steps = 0 if choice.learned is None else len(choice.learned)
        numbers = count(1)

        def on_loss(loss: float) -> None:
            go_on(loss)  # leaves by an exception where nobody waits any more
            self._refuse_while_stopping()
            self._service.metrics.learning_steps.inc()
            step = {"step": next(numbers), "n_steps": n_steps, "loss": number_or_none(loss)}
            self._put({"event": "learning", **step})

        return on_loss

    def _refuse_while_stopping(self) -> None:
        if self._service.stopping.is_set():
            raise stopping()

    def _put(self, event: Event) -> None:
        self._loop.call_soon_threadsafe(self._events.put_nowait, event)

    def _left(self) -> float:
        return max(self._deadline - time.monotonic(), LEAST_S)


def _chosen(choice: Choice, *, is_known: bool) -> dict[str, Any]:
    """Return the event of a choice.

    Args:
        choice: The documents and the mode.
        is_known: Whether a session learned these documents before.
    """
    return {
        "event": "chosen",
        "mode": choice.mode.value,
        "reasons": list(choice.reasons),
        "searched_for": list(choice.searched_for),
        "n_candidates": len(choice.pool),
        "n_read": 0 if choice.read is None else len(choice.read),
        "n_learned": 0 if choice.learned is None else len(choice.learned),
        "is_known": is_known,
    }


def _passages(engine: AnswerEngine, choice: Choice) -> list[dict[str, Any]]:
    """Return the texts that are read, or else learned, each once with why it was chosen.

    Those that do not fit into the window are left out, so that marks in the answer count right.
    """
    chosen = choice.read or choice.learned
    if chosen is None:
        return []
    pool = used = chosen.chunks
    if choice.read:
        used = engine.answerer_for(choice).used(choice.query, pool)
    keys, kept = pool.chunk_keys, set(used.chunk_keys)
    passages: dict[tuple[str, str], dict[str, Any]] = {}
    for row, pick in enumerate(chosen.picks):
        if keys[row] in kept:
            name, text = keys[row]
            about = title_and_url(pool.metadata[row], name)
            passages.setdefault(keys[row], {"id": name, **about, "text": text, **pick.words})
    return [{"rank": rank, **one} for rank, one in enumerate(passages.values(), start=1)]
