"""Whether the service lives, whether it can work, and its figures."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence

from anyio import CancelScope, to_thread
from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST

from sift_core.errors import SiftError
from sift_core.service.http import JsonAnswer
from sift_core.service.state import Service
from sift_core.types import Query

logger: logging.Logger = logging.getLogger(__name__)
STORE_CHECK_S = 5.0  # how long it counts that the store has answered
FAILURE_S = 1.0  # and that it has not


def status_router(services: Sequence[Service]) -> APIRouter:
    """Return the routes.

    Args:
        services: One a collection. They share queues and figures.
    """
    service = services[0]
    router = APIRouter(tags=["status"])
    checked_at, are_there = -STORE_CHECK_S, True
    checking = asyncio.Lock()  # whoever asks needs no key: one look at the stores is for all

    async def stores_answer() -> bool:
        nonlocal checked_at, are_there
        async with checking:
            counts_for = STORE_CHECK_S if are_there else FAILURE_S
            if time.monotonic() - checked_at >= counts_for:
                with CancelScope(shield=True):  # a client that leaves early ends no look
                    are_there = all(await asyncio.gather(*map(_store_answers, services)))
                checked_at = time.monotonic()
            return are_there

    @router.head("/health", include_in_schema=False)
    @router.get("/health", operation_id="health")
    async def health() -> dict[str, str]:
        """Tell that the process lives."""
        return {"status": "ok"}

    @router.head("/ready", include_in_schema=False)
    @router.get("/ready", operation_id="ready")
    async def ready() -> JsonAnswer:
        """Tell whether a question would be answered now; 503 if not, with the reasons."""
        reasons = []
        if service.answers.is_full:
            reasons.append("too many answers wait for the language model")
        if not await stores_answer():
            reasons.append("a store of documents does not answer")
        status = "not ready" if reasons else "ready"
        return JsonAnswer({"status": status, "reasons": reasons}, 503 if reasons else 200)

    @router.get("/metrics", operation_id="metrics")
    async def metrics() -> Response:
        """Return the figures as Prometheus reads them."""
        return Response(service.metrics.text(), headers={"content-type": CONTENT_TYPE_LATEST})

    return router


async def _store_answers(service: Service) -> bool:
    if service.source is None or service.embedder is None:
        return True
    try:
        vector = await to_thread.run_sync(service.embedder.embed_query, "ready")
        await service.source.afetch(Query(text="ready", embedding=vector), 1)
    except SiftError as error:
        logger.warning("a store did not answer whether it is ready: %s", error)
        return False
    return True
