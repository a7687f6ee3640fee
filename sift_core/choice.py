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

from sift_core import choice_spans as spans
from sift_core.checks import check_instance, check_source
from sift_core.choice_checks import token_costs, warn_of_keys, warn_of_length, with_vectors
from sift_core.explanation import Chosen
from sift_core.left_out import find_left_out
from sift_core.options import ChoiceOptions
from sift_core.passages import Passage, join_neighbors, single_passages
from sift_core.places import Place
from sift_core.pool_reading import PoolReading, read_pool
from sift_core.progress import timed
from sift_core.protocols import CandidateSource
from sift_core.question_names import prefer_named
from sift_core.second_hop import SecondHop, second_hop
from sift_core.selection.context import ContextSelector
from sift_core.selection.limits import LARGEST_BUDGET, Limits, takes
from sift_core.selection.preferences import Preferences
from sift_core.sources.multi_query import afetch_for_all, fetch_for_all
from sift_core.text_overlap import select_texts, warn_of_one_vector
from sift_core.token_estimate import estimated_tokens
from sift_core.tracing import traced
from sift_core.types import CandidatePool, FloatArray, Query, Selection

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

    Costs a selection, O(n² · d) time for n candidates of d dimensions: for 200 of 384 about 3 ms
    by embeddings and 10 ms with words, on a CPU with AVX2. No text is read by a model.

    Candidates with a vector of zeros, as of an empty text, are left out with an
    `EmptyEntryWarning`. `Chosen.pool` has the others.

    Args:
        pool: The candidates.
        query: The question with its embedding, and perhaps others in `also`.
        options: What the choice obeys.
        room: Tokens that joined passages may have together, if `max_tokens` is not less. Default:
            any number.

    Raises:
        InvalidInputError: If embeddings do not fit together, or the query's is all zero.

    Example:
        >>> chosen = choose(pool, query, ChoiceOptions(n_select=2))
        >>> chosen.chunks.texts
        ('A ticket for the ferry costs four crowns.', 'The ferry sails at nine.')
    """
    check_instance("pool", pool, CandidatePool)
    _check_search(query, options)
    pool = with_vectors(pool, set())
    warn_of_keys(pool, options)
    warn_of_one_vector(pool.document_ids, pool.texts, pool.embeddings)
    chosen = choose_checked(pool, query, options, room)
    warn_of_length(chosen, options)
    return chosen


@traced(spans.select_span, spans.selected)
def choose_checked(
    pool: CandidatePool,
    query: Query,
    options: ChoiceOptions,
    room: int | None = None,
    n_known: int = 0,
) -> Chosen:
    """Return what `choose` does, of candidates with vectors that were checked before.

    Of the first `n_known` it has no warning.
    """
    places: Sequence[Place] = ()
    if options.max_per_document is not None or options.merge_neighbors:
        places = [pool.place(row, options.document_key) for row in range(len(pool))]
    reading = read_pool(pool, query, options.words)
    selector = options.selector or _SELECTOR
    limits = _limits(pool, places, options)
    dated = options.dated(pool, n_known=n_known)
    targets = None
    if reading is not None and takes(selector, "preferences"):
        targets = reading.target_weights
    selection = select_texts(
        selector,
        query.vectors,
        pool.embeddings,
        options.n_select,
        text_of=pool.texts.__getitem__,
        relevance=_relevance(pool, query, reading, targets),
        limits=limits,
        preferences=_preferences(pool, query, targets, options, dated),
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
        left_out=find_left_out(
            pool,
            selection,
            passages,
            relevance=relevance,
            limits=limits,
            newness=None if dated is None else dated.prefer,
            n_select=options.n_select,
            document_key=options.document_key,
        ),
        **vars(selection),
    )


async def achoose(
    pool: CandidatePool,
    query: Query,
    options: ChoiceOptions = DEFAULTS,
    *,
    room: int | None = None,
) -> Chosen:
    """Return what `choose` returns; it runs in another thread, so that the event loop is free.

    Example:
        >>> import asyncio
        >>> asyncio.run(achoose(pool, query, ChoiceOptions(n_select=2))).chunks.document_ids
        ('prices', 'timetable')
    """
    return await asyncio.to_thread(choose, pool, query, options, room=room)


@traced(spans.search_span, spans.searched)
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
        InvalidInputError: If query and source do not fit together, or `source` has no `fetch`.

    Example:
        >>> chosen = search(source, query, ChoiceOptions(n_select=2))
        >>> chosen.chunks.document_ids, list(chosen.timings)
        (('prices', 'timetable'), ['fetch', 'select'])
    """
    check_source("source", source, "fetch")
    _check_search(query, options)
    timings: dict[str, float] = {}
    with timed(timings, "fetch"), spans.fetch_span(source, query, options) as span:
        pool = fetch_for_all(
            source, query, options.n_candidates, filter=filter, with_words=options.words > 0
        )
        spans.fetched(span, pool)
    left_out: set[str] = set()
    with timed(timings, "select"):
        chosen, hop = _first_choice(source, pool, query, options, left_out, room=room)
    if hop is not None:
        with timed(timings, "hop"), spans.fetch_span(source, query, options, "hop") as span:
            pool = hop.joined(chosen, hop.source.look_up(query, hop.lookups, filter=filter))
            pool = with_vectors(pool, left_out)
            spans.fetched(span, pool, first=len(chosen.pool))
        with timed(timings, "select"):
            record = hop.record(chosen, pool)
            if record.n_new:
                chosen = choose_checked(pool, query, options, room, record.first_row)
        chosen = replace(chosen, hop=record)
    return replace(chosen, timings=timings)


@traced(spans.search_span, spans.searched)
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

    Example:
        >>> import asyncio
        >>> asyncio.run(asearch(source, query, ChoiceOptions(n_select=2))).chunks.document_ids
        ('prices', 'timetable')
    """
    check_source("source", source, "afetch")
    _check_search(query, options)
    timings: dict[str, float] = {}
    left_out: set[str] = set()
    with timed(timings, "fetch"), spans.fetch_span(source, query, options) as span:
        pool = await afetch_for_all(
            source, query, options.n_candidates, filter=filter, with_words=options.words > 0
        )
        spans.fetched(span, pool)
    with timed(timings, "select"):
        chosen: Chosen
        hop: SecondHop | None
        chosen, hop = await in_thread(
            partial(_first_choice, source, pool, query, options, left_out, room=room)
        )
    if hop is not None:
        with timed(timings, "hop"), spans.fetch_span(source, query, options, "hop") as span:
            found = await hop.source.alook_up(query, hop.lookups, filter=filter)
            pool = with_vectors(await in_thread(partial(hop.joined, chosen, found)), left_out)
            spans.fetched(span, pool, first=len(chosen.pool))
        with timed(timings, "select"):
            record = hop.record(chosen, pool)
            if record.n_new:
                chosen = await in_thread(
                    partial(choose_checked, pool, query, options, room, record.first_row)
                )
        chosen = replace(chosen, hop=record)
    return replace(chosen, timings=timings)


def _check_search(query: object, options: object) -> None:
    """Refuse a query or options of another class.

    Raises:
        InvalidInputError: If so.
    """
    check_instance("query", query, Query)
    check_instance("options", options, ChoiceOptions)


def _first_choice(
    source: CandidateSource,
    pool: CandidatePool,
    query: Query,
    options: ChoiceOptions,
    left_out: set[str],
    *,
    room: int | None,
) -> tuple[Chosen, SecondHop | None]:
    """Return the first choice and what to look for after it, in one turn of a thread."""
    is_all = len(pool) < options.n_candidates
    chosen = choose(with_vectors(pool, left_out), query, options, room=room)
    return chosen, None if is_all else second_hop(source, chosen, options)


def _relevance(
    pool: CandidatePool, query: Query, reading: PoolReading | None, targets: FloatArray | None
) -> FloatArray | None:
    """Return the relevance that a selector goes by, shape (n,), or (m, n) of m queries."""
    if reading is None:
        return pool.relevance
    rows = reading.spread_relevance if targets is None else reading.relevance
    return rows if query.also else rows[0]


def _limits(pool: CandidatePool, places: Sequence[Place], options: ChoiceOptions) -> Limits | None:
    """Return `max_tokens` and `max_per_document` as limits."""
    limits: dict[str, Any] = {}
    if options.max_tokens is not None:
        costs = token_costs(pool, options)
        limits |= {"costs": costs, "budget": min(options.max_tokens, LARGEST_BUDGET)}
    if options.max_per_document is not None:
        # A chunk without a document is a group of its own: no document is named by such a pair.
        groups = [
            (row, None) if place.document is None else place.document
            for row, place in enumerate(places)
        ]
        limits |= {"groups": groups, "max_per_group": options.max_per_document}
    return Limits(**limits) if limits else None


def _preferences(
    pool: CandidatePool,
    query: Query,
    targets: FloatArray | None,
    options: ChoiceOptions,
    preferences: Preferences | None,
) -> Preferences | None:
    """Return preferences by dates with named versions and targets (m, n) added."""
    if takes(options.selector or _SELECTOR, "preferences"):
        preferences = prefer_named(
            preferences,
            pool,
            query,
            newest=options.newest,
            document_key=options.document_key,
            with_names=options.words > 0,
        )
    if targets is None:
        return preferences
    own = targets if query.also else targets[0]
    return replace(preferences or Preferences(), target_weights=own)


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
