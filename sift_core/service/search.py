"""POST /search: candidates of the store, what was chosen of them, and why."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import Any, ClassVar, Literal

from fastapi import APIRouter
from pydantic import ConfigDict, Field

from sift_core.choice import asearch
from sift_core.choice_spans import embeddings_span
from sift_core.comparison import TITLES, compare_methods, rare_words
from sift_core.errors import SiftError
from sift_core.explanation import Chosen
from sift_core.option_fields import LIVE, with_option_fields
from sift_core.selection.explain import explain
from sift_core.selection.select import selector_of
from sift_core.service.errors import RefusedError
from sift_core.service.http import (
    MAX_CANDIDATES,
    MAX_CHOICES,
    MAX_QUERIES,
    ChoiceBody,
    JsonAnswer,
    JsonRoute,
    Many,
)
from sift_core.service.metadata import Filter, title_and_url
from sift_core.service.state import Service
from sift_core.sources.metadata_filters import N_LOOKED_AT, filter_for, missing_keys_message
from sift_core.sources.multi_query import queries_of
from sift_core.types import Query


@with_option_fields(
    leave_out=LIVE,
    changes={"n_select": {"le": MAX_CHOICES}, "n_candidates": {"le": MAX_CANDIDATES}},
)
class SearchRequest(ChoiceBody):
    """What to look for, and how to choose."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

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
        default=False,
        description="Nearest neighbours, MMR and hybrid search by rank beside what is chosen, and "
        "where each has the rare words of the query.",
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
    _check(request)
    service.check_length("query", [request.query])
    service.check_length("queries", request.queries)
    selector = service.selector
    if request.kernel != "auto" or request.noise_variance is not None:
        selector = selector_of(request.kernel, request.noise_variance)
    options = request.choice_options(selector=selector)
    started = time.perf_counter()
    texts = request.queries or [request.query]

    def embed() -> Query:
        with embeddings_span(embedder, texts):
            return queries_of(texts, embedder)

    query = await service.in_thread("embed", embed)
    embed_s = time.perf_counter() - started
    chosen = await asearch(
        source,
        query,
        options,
        filter=filter_for(source, request.filter),
        in_thread=partial(service.in_thread, "select"),
    )

    notes = []
    if request.filter and not len(chosen.pool):
        with suppress(SiftError):  # an empty store, or one that fails now: a note is not needed
            some = await source.afetch(query, N_LOOKED_AT)
            notes = [note] if (note := missing_keys_message(request.filter, some.metadata)) else []

    def compared() -> dict[str, Any]:
        """Return the record of each method's choice, and of a comparison the rare words."""
        each: Mapping[str, Chosen] = {"sift": chosen}
        words = {}
        if request.compare:
            each = compare_methods(chosen, options.n_select)
            words = {"rare_words": [asdict(one) for one in rare_words(chosen, each)]}
        named = {name: {"title": TITLES[name], **_record(one)} for name, one in each.items()}
        return {"columns": named, **words}

    found = await service.in_thread("select", compared)
    service.metrics.stages({"fetch": chosen.timings["fetch"]})
    pool = chosen.pool
    return {
        "query": request.query,
        "queries": list(request.queries),
        "embedder": service.embedder_name,
        "candidates": [
            {
                "document_id": name,
                **title_and_url(pool.metadata[i], name),
                "similarity": float(pool.similarities[i]),
            }
            for i, name in enumerate(pool.document_ids)
        ],
        **found,
        "notes": notes,
        "timings": {"embed": embed_s, **chosen.timings},
    }


def _check(request: SearchRequest) -> None:
    """Refuse what is empty, or does not go together."""
    if not request.query.strip():
        raise RefusedError("`query` is empty; ask something", param="query")
    if not all(text.strip() for text in request.queries):
        raise RefusedError("`queries` holds an empty text; leave it out", param="queries")
    others = list(request.choice_options().rules)
    if request.queries:
        others.append("queries")
    if request.compare and others:
        raise RefusedError(
            f"`compare` sets SIFT beside methods that take one query and keep no rules; leave out "
            f"{', '.join(f'`{name}`' for name in others)}, or `compare`",
            param="compare",
        )


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
