"""What the parts of a running service share."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, TypeVar

from sift_core.errors import MissingDependencyError
from sift_core.protocols import CandidateSource, Selector
from sift_core.service.errors import RefusedError
from sift_core.service.metrics import Metrics
from sift_core.service.sessions import Sessions
from sift_core.service.settings import ServiceSettings
from sift_core.service.work_queue import WorkQueue
from sift_core.vector_cache import KeptEmbedder

try:
    from anyio import to_thread
except ImportError as error:
    raise MissingDependencyError("fastapi", extra="serve") from error

if TYPE_CHECKING:
    from sift_core.answering import AnswerEngine

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, eq=False)
class Service:
    """The parts of a service; for one event loop.

    Args:
        engine: Answers; None for a service without a language model.
        source: Where candidates come from; None without a store.
        embedder: The model of its vectors; None where clients send all vectors.
        selector: Ranks; `ContextSelector` if None.
        settings: Limits and times.
        metrics: The figures.
        answers: The queue before the language model.
        rankings: The queue before threads that rank, search and embed.
        sessions: What conversations have learned.
        stopping: Set when the service is being stopped: answers end at their next step.
    """

    engine: AnswerEngine | None
    source: CandidateSource | None
    embedder: KeptEmbedder | None
    selector: Selector | None
    settings: ServiceSettings
    metrics: Metrics
    answers: WorkQueue
    rankings: WorkQueue
    sessions: Sessions
    stopping: threading.Event = field(default_factory=threading.Event)

    @property
    def model_name(self) -> str | None:
        """What clients call the language model; None without one."""
        if self.engine is None:
            return None
        if self.settings.model_name is not None:
            return self.settings.model_name
        return PurePath(self.engine.language_model.name).name.replace(":", "-") or "model"

    @property
    def embedder_name(self) -> str | None:
        """What clients call the embedder; None without one."""
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
