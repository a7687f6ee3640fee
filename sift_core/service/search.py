"""POST /search: candidates of the store, what was chosen of them, and why."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

from pydantic import ConfigDict, Field

from sift_core.choice_rules import ChoiceRules, token_counter
from sift_core.protocols import Selector
from sift_core.records import Column, column_of, compared_columns
from sift_core.selection.context import ContextSelector
from sift_core.selection.explain import explain
from sift_core.selection.select import selector_from_settings
from sift_core.service.bodies import MAX_QUERIES, Many, RuledBody
from sift_core.service.errors import RefusedError
from sift_core.service.filters import Filter, filter_for
from sift_core.service.json_bodies import JsonAnswer, JsonRoute
from sift_core.service.naming import address_of, title_of
from sift_core.service.ranking import MAX_CANDIDATES, MAX_CHOICES
from sift_core.service.state import Service
from sift_core.service.watching import while_there
from sift_core.sources.several_queries import afetch_for_all, queries_of
from sift_core.types import CandidatePool, Query

from fastapi import APIRouter, Request  # isort: skip  # after what names the extra


class SearchRequest(RuledBody):
    """What to look for, and how to choose."""

    model_config = ConfigDict(extra="forbid")

    query: str
    queries: Many[str] = Field(
        default=[],
        max_length=MAX_QUERIES,
        description="What is looked for in place of the query: its parts, or rewrites of it.",
    )
    n_select: int = Field(default=10, ge=1, le=MAX_CHOICES)
    n_candidates: int = Field(default=200, ge=1, le=MAX_CANDIDATES)
    filter: Filter | None = None
    kernel: Literal["auto", "rbf", "linear"] = "auto"
    noise_variance: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    compare: bool = Field(
        default=False, description="Nearest neighbours and MMR beside what is chosen."
    )
    merge_neighbors: bool = Field(
        default=False,
        description="Chunks of one document that touch, or leave a gap which one other candidate "
        "fills, become one passage.",
    )

    @property
    def rules(self) -> ChoiceRules:
        """What the choice must keep."""
        return replace(super().rules, merge_neighbors=self.merge_neighbors)


def search_router(service: Service) -> APIRouter:
    """Return the route."""
    router = APIRouter(route_class=JsonRoute, default_response_class=JsonAnswer, tags=["search"])

    @router.post("/search", operation_id="search")
    async def search(body: SearchRequest, request: Request) -> dict[str, Any]:
        """Choose the chunks of the store that together say most about the query."""
        return await while_there(request.receive, lambda: _found(service, body))

    return router


async def _found(service: Service, request: SearchRequest) -> dict[str, Any]:
    source, embedder = service.source, service.embedder
    if source is None or embedder is None:
        lacks = "store to search" if source is None else "embedder for the query"
        raise RefusedError(f"this service has no {lacks}", status=404)
    if not request.query.strip():
        raise RefusedError("`query` is empty; ask something", param="query")
    if not all(text.strip() for text in request.queries):
        raise RefusedError("`queries` holds an empty text; leave it out", param="queries")
    if request.queries and request.compare:
        raise RefusedError(
            "`compare` sets SIFT beside methods that know one query; leave out `queries` or "
            "`compare`",
            param="compare",
        )
    rules = request.rules
    if rules and request.compare:
        raise RefusedError(
            "`compare` sets SIFT beside methods that keep no rules; leave out `max_tokens`, "
            "`max_per_document`, `newest` and `merge_neighbors`, or `compare`",
            param="compare",
        )
    selector = _selector(service, request)
    rules.check(selector)
    started = time.perf_counter()
    texts = request.queries or [request.query]
    query = await service.in_thread("embed", lambda: queries_of(texts, embedder))
    embedded = time.perf_counter()
    pool = await afetch_for_all(
        source, query, request.n_candidates, filter=filter_for(source, request.filter)
    )
    fetched = time.perf_counter()
    service.metrics.stages({"fetch": fetched - embedded})

    def columns_of() -> dict[str, Any]:
        return _columns(selector, request, query, pool, token_counter(embedder))

    columns = await service.in_thread("select", columns_of)
    timings = {
        "embed": embedded - started,
        "fetch": fetched - embedded,
        "select": time.perf_counter() - fetched,
    }
    return {
        "query": request.query,
        "queries": list(request.queries),
        "embedder": service.embedder_name,
        "candidates": _candidates(pool),
        "columns": columns,
        "timings": timings,
    }


def _selector(service: Service, request: SearchRequest) -> Selector:
    if request.kernel == "auto" and request.noise_variance is None:
        return service.selector or ContextSelector()
    return selector_from_settings(kernel=request.kernel, noise_variance=request.noise_variance)


def _columns(
    selector: Selector,
    request: SearchRequest,
    query: Query,
    pool: CandidatePool,
    count_tokens: Callable[[str], int],
) -> dict[str, Any]:
    """Return what each method chose, by its name; "sift" is the last."""
    columns: Mapping[str, Column]
    if request.compare:
        columns = compared_columns(query, pool, selector, request.n_select)
    else:
        column = column_of(
            "SIFT",
            query,
            pool,
            selector,
            request.n_select,
            request.rules,
            count_tokens=count_tokens,
        )
        columns = {"sift": column}
    return {name: _record(query, column) for name, column in columns.items()}


def _record(query: Query, column: Column) -> dict[str, Any]:
    """Return a column with what each pick told: alone, and beside those before it."""
    record = column.record()
    told = explain(query.vectors, column.pool.embeddings, column.selection.positions)
    for i, chunk in enumerate(record["chunks"]):
        chunk["title"] = title_of(chunk["metadata"], chunk["document_id"])
        chunk["url"] = address_of(chunk["metadata"], chunk["document_id"])
        chunk["candidate"] = column.pool.document_ids.index(chunk["document_id"])
        chunk["information"] = {
            "gain": float(told.information_gains[i]),
            "alone": float(told.information_alone[i]),
        }
    return {"title": column.title, **record}


def _candidates(pool: CandidatePool) -> list[dict[str, Any]]:
    return [
        {
            "document_id": name,
            "title": title_of(pool.metadata[i], name),
            "url": address_of(pool.metadata[i], name),
            "similarity": float(pool.similarities[i]),
        }
        for i, name in enumerate(pool.document_ids)
    ]
