"""The parts that the routes of a running service share."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Hashable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakValueDictionary

from anyio import Semaphore, fail_after, to_thread
from cachetools import TTLCache

from sift_core.embedders.prompts import model_of
from sift_core.protocols import CandidateSource, Embedder, Selector
from sift_core.service.errors import RefusedError
from sift_core.service.metrics import Metrics
from sift_core.service.settings import WAITING_ANSWERS, WAITING_RANKINGS, ServiceSettings
from sift_core.vector_cache import KeptEmbedder

if TYPE_CHECKING:
    from sift_core.answering import AnswerEngine, Session

T = TypeVar("T")
SESSION_S = 3600.0  # after which an unused session is dropped
VECTOR_CACHE_BYTES = 256 << 20
LEAST_RETRY_S, MOST_RETRY_S = 1.0, 60.0
MAX_TEXT = 1_000_000  # characters
_WEIGHT = 0.2  # of the latest in the running mean of seconds


class WorkQueue:
    """Lets a number of pieces of work run at once, in the order in which they came.

    For one event loop. anyio's semaphore lets tasks run in turn, but bounds no waiting ones.

    Args:
        n_running: Pieces of work that run at once, >= 1.
        n_waiting: Pieces of work that may wait beside them, >= 0.
    """

    def __init__(self, n_running: int, n_waiting: int) -> None:
        self._turns, self._n_turns = Semaphore(n_running), n_running
        self._n_places = n_running + n_waiting
        self._n_inside = 0
        self._mean_s = LEAST_RETRY_S

    @property
    def is_full(self) -> bool:
        """Whether the next one would be refused."""
        return self._n_inside >= self._n_places

    @property
    def n_running(self) -> int:
        """How many have their turn."""
        return self._n_turns - self._turns.value

    @property
    def n_waiting(self) -> int:
        """How many wait for theirs."""
        return self._n_inside - self.n_running

    def enter(self) -> None:
        """Take a place, which `leave` gives back.

        Raises:
            RefusedError: If there is none: 429, with the seconds after which one may be free.
        """
        if self.is_full:
            rounds = self._n_inside / self._n_turns
            raise RefusedError(
                f"{self._n_inside} requests run or wait already; ask again later",
                status=429,
                code="overloaded",
                retry_after_s=min(max(self._mean_s * rounds, LEAST_RETRY_S), MOST_RETRY_S),
            )
        self._n_inside += 1

    def leave(self) -> None:
        """Give a place back."""
        self._n_inside -= 1

    @asynccontextmanager
    async def turn(self, timeout_s: float | None = None) -> AsyncIterator[None]:
        """Wait for the turn of whoever has a place, and hold it for the `with` block.

        Args:
            timeout_s: Seconds to wait at most. Default: any time.

        Raises:
            RefusedError: If the turn has not come: 503.
        """
        try:
            with fail_after(timeout_s):
                await self._turns.acquire()
        except TimeoutError as error:
            raise RefusedError(
                "the answer's time was over before its turn came; ask again later",
                status=503,
                code="timeout",
                retry_after_s=5.0,
            ) from error
        started = time.monotonic()
        try:
            yield
        finally:
            self._mean_s += _WEIGHT * (time.monotonic() - started - self._mean_s)
            self._turns.release()


class Sessions:
    """Sessions of conversations, by a key that holds the client's name for one.

    The least recently used ones are dropped, and those that nobody asks. For one event loop.

    Args:
        n_kept: Greatest number of sessions that are kept.
        metrics: Counts hits and misses.
    """

    def __init__(self, n_kept: int, metrics: Metrics) -> None:
        self._kept: TTLCache[Hashable, Session] = TTLCache(n_kept, SESSION_S)
        self._locks: WeakValueDictionary[Hashable, asyncio.Lock] = WeakValueDictionary()
        self._metrics = metrics

    def being_made(self, key: Hashable) -> asyncio.Lock:
        """Return the lock that whoever makes this session holds, so that it is made once."""
        return self._locks.setdefault(key, asyncio.Lock())

    def get(self, key: Hashable) -> Session | None:
        """Return a session, and count its time anew; None if there is none."""
        found: Session | None = self._kept.get(key)
        self._metrics.looked_up("sessions", hits=int(found is not None), misses=int(found is None))
        if found is not None:
            self._kept[key] = found
        return found

    def put(self, key: Hashable, session: Session) -> None:
        """Keep a session."""
        self._kept[key] = session


class Service:
    """The parts of a service; for one event loop.

    `answers` is the queue before the language model, and `rankings` the one before threads that
    rank, search and embed. `sessions` holds what conversations have learned. Answers end at their
    next step once `stopping` is set. `embedder` keeps its vectors. `model_name` and
    `embedder_name` are what clients call the models, None if there is no such model.

    Args:
        engine: Answers. A service without a language model has None.
        source: Where candidates come from. Default: the engine's.
        embedder: The model of its vectors. Default: the engine's.
        selector: Ranks and searches. Default: the engine's for prompts, or `ContextSelector`.
        settings: Limits and times.
        shared: A service of the same process whose queues, figures and end this one has.
            Default: none.
    """

    def __init__(
        self,
        engine: AnswerEngine | None,
        source: CandidateSource | None,
        embedder: Embedder | None,
        selector: Selector | None,
        settings: ServiceSettings,
        *,
        shared: Service | None = None,
    ) -> None:
        self.settings: ServiceSettings = settings
        self.metrics: Metrics = Metrics() if shared is None else shared.metrics
        if engine is not None:
            source, embedder = source or engine.source, embedder or engine.embedder
            selector = selector or engine.options.selector
        self.embedder: KeptEmbedder | None = None
        self.model_name: str | None = None
        self.embedder_name: str | None = None
        if embedder is not None:
            self.embedder = KeptEmbedder(
                embedder,
                max_bytes=VECTOR_CACHE_BYTES,
                on_lookup=partial(self.metrics.looked_up, "vectors"),
            )
            self.embedder_name = PurePath(model_of(embedder.name)).name
        if engine is not None:
            engine = replace(engine, source=source, embedder=self.embedder)
            name = PurePath(engine.language_model.name).name.replace(":", "-")
            self.model_name = settings.model_name or name or "model"
        self.engine: AnswerEngine | None = engine
        self.source: CandidateSource | None = source
        self.selector: Selector | None = selector
        self.sessions: Sessions = Sessions(settings.n_sessions, self.metrics)
        self.answers: WorkQueue
        self.rankings: WorkQueue
        self.stopping: threading.Event
        if shared is None:
            self.answers = self._queue("answers", settings.n_answers, WAITING_ANSWERS)
            self.rankings = self._queue("rankings", settings.n_rankings, WAITING_RANKINGS)
            self.stopping = threading.Event()
        else:
            self.answers, self.rankings = shared.answers, shared.rankings
            self.stopping = shared.stopping

    def beside(self, source: CandidateSource, embedder: Embedder) -> Service:
        """Return the service of another collection, with the same model, queues and limits.

        It uses no adapter and no calibration of the first collection.
        """
        engine = self.engine
        if engine is not None:
            from sift_core.answering.policy import VariancePolicy

            engine = replace(
                engine,
                source=source,
                embedder=embedder,
                learning=replace(engine.learning, adapter=None),
                policy=VariancePolicy(on_off_topic=engine.policy.on_off_topic),
            )
        named = replace(self.settings, model_name=self.model_name)
        return Service(engine, source, embedder, self.selector, named, shared=self)

    def _queue(self, name: str, n_running: int, n_waiting_each: int) -> WorkQueue:
        queue = WorkQueue(n_running, n_waiting_each * n_running)
        self.metrics.queue(name, lambda: queue.n_running, lambda: queue.n_waiting)
        return queue

    def needed_embedder(self) -> KeptEmbedder:
        """Return the embedder.

        Raises:
            RefusedError: If there is none.
        """
        if self.embedder is None:
            raise RefusedError(
                "this service has no embedder; send `embeddings` and `query_embedding`"
            )
        return self.embedder

    def check_n(self, name: str, n: int) -> None:
        """Refuse an empty list, or one of too many documents.

        Raises:
            RefusedError: If it is.
        """
        if not n:
            raise RefusedError(f"`{name}` must not be empty", param=name)
        if n > self.settings.max_documents:
            raise RefusedError(
                f"`{name}` must have at most {self.settings.max_documents:,}, got {n:,}",
                status=413,
                code="too_many_documents",
                param=name,
            )

    def check_length(self, name: str, texts: Sequence[str]) -> None:
        """Refuse a text longer than any passage: a search for its words stops other threads.

        Raises:
            RefusedError: If one has more than `MAX_TEXT` characters: 413.
        """
        for i, text in enumerate(texts):
            if len(text) > MAX_TEXT:
                place = name if len(texts) == 1 else f"{name}.{i}"
                raise RefusedError(
                    f"`{place}` must have at most {MAX_TEXT:,} characters, got {len(text):,}; "
                    f"split it",
                    status=413,
                    code="request_too_large",
                    param=name,
                )

    async def in_thread(self, stage: str, call: Callable[[], T]) -> T:
        """Return what a call returns in another thread, after its turn in the queue.

        Raises:
            RefusedError: If too many wait.
        """
        self.rankings.enter()
        try:
            async with self.rankings.turn():
                started = time.perf_counter()
                result = await to_thread.run_sync(call)
        finally:
            self.rankings.leave()
        self.metrics.stages({stage: time.perf_counter() - started})
        return result
