"""The choice: candidates in, the chunks that together say most about the query out.

`choose` is the way of every choice in this library, in the order in which it happens. `search`
fetches the candidates first. The module is not called `choose`, which would hide the function.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from sift_core.dates import by_date
from sift_core.explanation import Chosen
from sift_core.options import ChoiceOptions, estimated_tokens
from sift_core.passages import Passage, join_neighbors, single_passages
from sift_core.places import Place
from sift_core.pool_reading import PoolReading, read_pool
from sift_core.progress import timed
from sift_core.protocols import CandidateSource, Selector
from sift_core.second_hop import SecondHop, second_hop
from sift_core.selection.context import ContextSelector
from sift_core.selection.limits import LARGEST_BUDGET, takes_target_weights
from sift_core.sources.multi_query import afetch_for_all, fetch_for_all
from sift_core.text_overlap import select_texts
from sift_core.types import CandidatePool, Query, Selection

DEFAULTS = ChoiceOptions()
_SELECTOR = ContextSelector()


def choose(
    pool: CandidatePool,
    query: Query,
    options: ChoiceOptions = DEFAULTS,
    *,
    room: int | None = None,
) -> Chosen:
    """Return the chunks of a pool that together say most about the query, in order of choice.

    Costs a selection, O(n² · d) time for n candidates of d dimensions, 2 to 3 ms for 200 of 384.
    No text is read by a model.

    Args:
        pool: The candidates.
        query: The question with its embedding, and perhaps others in `also`.
        options: What the choice obeys.
        room: Tokens that joined passages may have together, if `max_tokens` is not less. Default:
            any number.

    Raises:
        InvalidInputError: If embeddings do not fit together, or a vector is all zero.
    """
    places: Sequence[Place] = ()
    if options.max_per_document is not None or options.merge_neighbors:
        places = [pool.place(row, options.document_key) for row in range(len(pool))]
    reading = read_pool(pool, query, options.words)
    selector = options.selector or _SELECTOR
    selection = select_texts(
        selector,
        query.vectors,
        pool.embeddings,
        options.n_select,
        text_of=pool.texts.__getitem__,
        **_relevance(pool, query, reading, selector),
        **_token_budget(pool, options),
        **_document_groups(places, options),
        **_preference_for_new(pool, options),
    )
    selection, passages = _with_neighbors(pool, selection, places, options, room)
    relevance = pool.relevance
    if relevance is None and reading is not None:
        relevance = reading.relevance
    return Chosen(
        query=query,
        pool=pool,
        passages=passages,
        relevance=relevance,
        reading=reading,
        **vars(selection),
    )


async def achoose(
    pool: CandidatePool,
    query: Query,
    options: ChoiceOptions = DEFAULTS,
    *,
    room: int | None = None,
) -> Chosen:
    """Return what `choose` returns; it runs in another thread, so that the event loop is free."""
    return await asyncio.to_thread(choose, pool, query, options, room=room)


def search(
    source: CandidateSource,
    query: Query,
    options: ChoiceOptions = DEFAULTS,
    *,
    filter: Any = None,
    room: int | None = None,
) -> Chosen:
    """Fetch candidates from a source, and return what `choose` chooses of them.

    With `words` and `hops`, a source that keeps words is asked a second time, for what the first
    choice leads to. The second choice, from all candidates, is then the result.

    `Chosen.timings` has the seconds of "fetch" and "select", and of "hop" if there is one.

    Args:
        source: Where the candidates come from.
        query: As for `choose`; each query in `also` has candidates of its own.
        options: As for `choose`.
        filter: The source's own kind of filter. Default: no restriction.
        room: As for `choose`.

    Raises:
        CandidateSourceError: If the store fails.
        InvalidInputError: If query and source do not fit together.
    """
    timings: dict[str, float] = {}
    with timed(timings, "fetch"):
        pool = fetch_for_all(
            source, query, options.n_candidates, filter=filter, with_words=options.words > 0
        )
    with timed(timings, "select"):
        chosen, hop = _first_choice(source, pool, query, options, room=room)
    if hop is not None:
        with timed(timings, "hop"):
            pool = hop.joined(chosen, hop.source.look_up(query, hop.lookups, filter=filter))
        with timed(timings, "select"):
            record = hop.record(chosen, pool)
            if record.n_new:
                chosen = choose(pool, query, options, room=room)
        chosen = replace(chosen, hop=record)
    return replace(chosen, timings=timings)


async def asearch(
    source: CandidateSource,
    query: Query,
    options: ChoiceOptions = DEFAULTS,
    *,
    filter: Any = None,
    room: int | None = None,
    in_thread: Callable[[Callable[[], Any]], Awaitable[Any]] = asyncio.to_thread,
) -> Chosen:
    """Return what `search` returns, without blocking the event loop.

    Args:
        source: As for `search`, like the next four.
        query: The question.
        options: What the choice obeys.
        filter: The source's own kind of filter.
        room: Tokens that joined passages may have together.
        in_thread: Runs a choice in another thread. Default: `asyncio.to_thread`.
    """
    timings: dict[str, float] = {}
    with timed(timings, "fetch"):
        pool = await afetch_for_all(
            source, query, options.n_candidates, filter=filter, with_words=options.words > 0
        )
    with timed(timings, "select"):
        chosen: Chosen
        hop: SecondHop | None
        chosen, hop = await in_thread(
            partial(_first_choice, source, pool, query, options, room=room)
        )
    if hop is not None:
        with timed(timings, "hop"):
            found = await hop.source.alook_up(query, hop.lookups, filter=filter)
            pool = await in_thread(partial(hop.joined, chosen, found))
        with timed(timings, "select"):
            record = hop.record(chosen, pool)
            if record.n_new:
                chosen = await in_thread(partial(choose, pool, query, options, room=room))
        chosen = replace(chosen, hop=record)
    return replace(chosen, timings=timings)


def _first_choice(
    source: CandidateSource,
    pool: CandidatePool,
    query: Query,
    options: ChoiceOptions,
    *,
    room: int | None,
) -> tuple[Chosen, SecondHop | None]:
    """Return the first choice and what to look for after it, in one turn of a thread."""
    chosen = choose(pool, query, options, room=room)
    return chosen, second_hop(source, chosen, options)


def _relevance(
    pool: CandidatePool, query: Query, reading: PoolReading | None, selector: Selector
) -> dict[str, Any]:
    """Return what a selector takes of the relevance and of where it leads."""
    if reading is None:
        return {"relevance": pool.relevance}
    given: dict[str, Any] = {"relevance": reading.spread_relevance}
    if takes_target_weights(selector):
        given = {"relevance": reading.relevance, "target_weights": reading.target_weights}
    if query.also:
        return given
    return {name: None if rows is None else rows[0] for name, rows in given.items()}


def _token_budget(pool: CandidatePool, options: ChoiceOptions) -> dict[str, Any]:
    """Return what a selector takes of `max_tokens`; a text without a token costs one."""
    if options.max_tokens is None:
        return {}
    count = options.count_tokens or estimated_tokens
    costs = [max(1, count(pool.as_read(row, text))) for row, text in enumerate(pool.texts)]
    return {"costs": costs, "budget": min(options.max_tokens, LARGEST_BUDGET)}


def _document_groups(places: Sequence[Place], options: ChoiceOptions) -> dict[str, Any]:
    """Return what a selector takes of `max_per_document`."""
    if options.max_per_document is None:
        return {}
    # A chunk without a document is a group of its own: no document is named by such a pair.
    groups = [
        (row, None) if place.document is None else place.document
        for row, place in enumerate(places)
    ]
    return {"groups": groups, "max_per_group": options.max_per_document}


def _preference_for_new(pool: CandidatePool, options: ChoiceOptions) -> dict[str, Any]:
    """Return what a selector takes of `newest` and `half_life_days`."""
    if options.newest is None:
        return {}
    dates = [metadata.get(options.newest) for metadata in pool.metadata]
    return dict(by_date(dates, half_life_days=options.half_life_days))


def _with_neighbors(
    pool: CandidatePool,
    selection: Selection,
    places: Sequence[Place],
    options: ChoiceOptions,
    room: int | None,
) -> tuple[Selection, Sequence[Passage]]:
    """Return the choice by passages: each chunk is one unless `merge_neighbors` joins some."""
    if not options.merge_neighbors:
        return selection, single_passages(pool.texts, selection)
    count = options.count_tokens or estimated_tokens
    limits = [limit for limit in (options.max_tokens, room) if limit is not None]
    return join_neighbors(
        pool.texts,
        places,
        selection,
        size=lambda row, text: count(pool.as_read(row, text)),
        max_tokens=min(limits, default=math.inf),
        max_per_document=options.max_per_document or math.inf,
    )
