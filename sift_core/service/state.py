"""The parts that the routes of a running service share."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakValueDictionary

from anyio import to_thread
from cachetools import TTLCache

from sift_core.protocols import CandidateSource, Embedder, Selector
from sift_core.service.errors import RefusedError
from sift_core.service.metrics import Metrics
from sift_core.service.settings import ServiceSettings
from sift_core.service.work_queue import WorkQueue
from sift_core.vector_cache import KeptEmbedder

if TYPE_CHECKING:
    from sift_core.answering import AnswerEngine, Session

T = TypeVar("T")


class Sessions:
    """Sessions of conversations, by a key that holds the client's name for one.

    The least recently used ones are dropped, and those that nobody asks. For one event loop.

    Args:
        n_kept: Greatest number of sessions that are kept.
        seconds: An unused one is dropped after this time.
        metrics: Counts hits and misses.
    """

    def __init__(self, n_kept: int, seconds: float, metrics: Metrics) -> None:
        self._kept: TTLCache[Hashable, Session] = TTLCache(n_kept, seconds)
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
    next step once `stopping` is set. `embedder` keeps its vectors.

    Args:
        engine: Answers; None for a service without a language model.
        source: Where candidates come from. Default: the engine's.
        embedder: The model of its vectors. Default: the engine's.
        selector: Ranks and searches. Default: the engine's for prompts, or `ContextSelector`.
        settings: Limits and times.
    """

    def __init__(
        self,
        engine: AnswerEngine | None,
        source: CandidateSource | None,
        embedder: Embedder | None,
        selector: Selector | None,
        settings: ServiceSettings,
    ) -> None:
        self.settings, self.metrics = settings, Metrics()
        if engine is not None:
            source, embedder = source or engine.source, embedder or engine.embedder
            selector = selector or engine.options.selector
        self.embedder: KeptEmbedder | None = None
        if embedder is not None:
            self.embedder = KeptEmbedder(
                embedder,
                max_bytes=settings.vector_cache_bytes,
                on_lookup=partial(self.metrics.looked_up, "vectors"),
            )
        self.engine = engine and replace(engine, source=source, embedder=self.embedder)
        self.source, self.selector = source, selector
        self.answers = WorkQueue(settings.n_answers, settings.n_waiting_answers)
        self.rankings = WorkQueue(settings.n_rankings, settings.n_waiting_rankings)
        for name, queue in (("answers", self.answers), ("rankings", self.rankings)):
            self.metrics.queue(name, queue)
        self.sessions = Sessions(settings.n_sessions, settings.session_s, self.metrics)
        self.stopping = threading.Event()

    @property
    def model_name(self) -> str | None:
        """The name by which clients call the language model; None if there is no model."""
        if self.engine is None:
            return None
        if self.settings.model_name is not None:
            return self.settings.model_name
        return PurePath(self.engine.language_model.name).name.replace(":", "-") or "model"

    @property
    def embedder_name(self) -> str | None:
        """The name by which clients call the embedder; None if there is no embedder."""
        return None if self.embedder is None else PurePath(self.embedder.name).name

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

    async def in_thread(self, stage: str, call: Callable[[], T]) -> T:
        """Return what a call returns in another thread, after its turn in the queue.

        Raises:
            RefusedError: If too many wait.
        """
        async with self.rankings.ticket():
            started = time.perf_counter()
            result = await to_thread.run_sync(call)
        self.metrics.stages({stage: time.perf_counter() - started})
        return result
