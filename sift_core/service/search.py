"""POST /search: candidates of the store, what was chosen of them, and why."""

from __future__ import annotations

import time
from functools import partial
from typing import Any, Literal

from fastapi import APIRouter
from pydantic import ConfigDict, Field

from sift_core.choice import TITLES, asearch, compare_methods
from sift_core.explanation import Chosen
from sift_core.option_fields import LIVE, with_option_fields
from sift_core.options import token_counter
from sift_core.protocols import Selector
from sift_core.selection.explain import explain
from sift_core.selection.select import selector_of
from sift_core.service.errors import RefusedError
from sift_core.service.http import MAX_QUERIES, ChoiceBody, JsonAnswer, JsonRoute, Many
from sift_core.service.metadata import Filter, filter_for, title_and_url
from sift_core.service.ranking import MAX_CANDIDATES, MAX_CHOICES
from sift_core.service.state import Service
from sift_core.sources.several_queries import queries_of
from sift_core.types import CandidatePool


@with_option_fields(
    leave_out=LIVE,
    changes={"n_select": {"le": MAX_CHOICES}, "n_candidates": {"le": MAX_CANDIDATES}},
)
class SearchRequest(ChoiceBody):
    """What to look for, and how to choose."""

    model_config = ConfigDict(extra="forbid")

    query: str
    queries: Many[str] = Field(
        default=[],
        max_length=MAX_QUERIES,
        description="What is looked for in place of the query: its parts, or rewrites of it.",
    )
    filter: Filter | None = None
    kernel: Literal["auto", "rbf", "linear"] = "auto"
    noise_variance: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    compare: bool = Field(
        default=False, description="Nearest neighbours and MMR beside what is chosen."
    )


def search_router(service: Service) -> APIRouter:
    """Return the route."""
    router = APIRouter(route_class=JsonRoute, default_response_class=JsonAnswer, tags=["search"])

    @router.post("/search", operation_id="search")
    async def search(body: SearchRequest) -> dict[str, Any]:
        """Choose the chunks of the store that together say most about the query."""
        return await _found(service, body)

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
            "`compare` sets SIFT beside methods that take one query; leave out `queries` or "
            "`compare`",
            param="compare",
        )
    if request.compare and (rules := request.choice_options().rules):
        raise RefusedError(
            f"`compare` sets SIFT beside methods that keep no rules; leave out "
            f"{', '.join(f'`{name}`' for name in rules)}, or `compare`",
            param="compare",
        )
    options = request.choice_options(
        selector=_selector(service, request), count_tokens=token_counter(embedder)
    )
    started = time.perf_counter()
    texts = request.queries or [request.query]
    query = await service.in_thread("embed", lambda: queries_of(texts, embedder))
    embed_s = time.perf_counter() - started
    chosen = await asearch(
        source,
        query,
        options,
        filter=filter_for(source, request.filter),
        in_thread=partial(service.in_thread, "select"),
    )
    columns = await service.in_thread(
        "select", partial(_columns, chosen, options.n_select, compare=request.compare)
    )
    service.metrics.stages({"fetch": chosen.timings["fetch"]})
    return {
        "query": request.query,
        "queries": list(request.queries),
        "embedder": service.embedder_name,
        "candidates": _candidates(chosen.pool),
        "columns": columns,
        "timings": {"embed": embed_s, **chosen.timings},
    }


def _selector(service: Service, request: SearchRequest) -> Selector | None:
    if request.kernel == "auto" and request.noise_variance is None:
        return service.selector
    return selector_of(request.kernel, request.noise_variance)


def _columns(chosen: Chosen, n_select: int, *, compare: bool) -> dict[str, Any]:
    """Return the records of each method's choice, by its name; "sift" is the last."""
    columns = compare_methods(chosen, n_select) if compare else {"sift": chosen}
    return {name: {"title": TITLES[name], **_record(one)} for name, one in columns.items()}


def _record(chosen: Chosen) -> dict[str, Any]:
    """Return a choice for JSON, with the information of each pick: alone, and after the others."""
    record = chosen.as_dict()
    explanation = explain(chosen.query.vectors, chosen.pool.embeddings, chosen.positions)
    for i, chunk in enumerate(record["chunks"]):
        chunk |= title_and_url(chunk["metadata"], chunk["document_id"])
        chunk["candidate"] = int(chosen.positions[i])
        chunk["information"] = {
            "gain": float(explanation.information_gains[i]),
            "alone": float(explanation.information_alone[i]),
        }
    return record


def _candidates(pool: CandidatePool) -> list[dict[str, Any]]:
    return [
        {
            "document_id": name,
            **title_and_url(pool.metadata[i], name),
            "similarity": float(pool.similarities[i]),
        }
        for i, name in enumerate(pool.document_ids)
    ]
