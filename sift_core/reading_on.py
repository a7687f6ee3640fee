"""Reading on: a choice among the chunks that follow what is like the question.

A text before a cursor is like the text before a copy of what comes next. So the copy stands in the
chunk behind the one that is found.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import accumulate
from typing import Any, TypeAlias

import numpy as np

from sift_core.checks import warn
from sift_core.choice import choose_checked
from sift_core.errors import CandidateSourceError, ReadAloneWarning
from sift_core.explanation import Chosen
from sift_core.options import ChoiceOptions
from sift_core.passages import passages_of
from sift_core.places import place_of
from sift_core.progress import timed
from sift_core.protocols import CandidateSource
from sift_core.sources.contract import LexicalFetching
from sift_core.sources.metadata_filters import both, filter_for, innermost
from sift_core.token_estimate import estimated_tokens
from sift_core.types import CandidatePool

N_FOLLOWED = 24  # candidates whose next chunks are fetched; 8, 16 and 32 find less or no more

Fetch: TypeAlias = Mapping[str, Any]


def read_on(
    source: CandidateSource,
    chosen: Chosen,
    options: ChoiceOptions,
    *,
    room: int | None = None,
    filter: Any = None,
) -> Chosen:
    """Return a choice among the most relevant candidates with the chunks that follow them.

    Each of the 24 most relevant candidates is joined with the chunk that begins where it ends. It
    is as relevant as before, and has the embedding of what follows. So near-copies whose next
    chunks differ are no near-copies. `n_select` counts both chunks; an odd one is left out.

    The choice stays as it is if nothing follows, as chunks have no "start" and "end" in their
    metadata, which `sift index` writes. So it does with `max_per_document` or an `n_select` of 1,
    and where the store is not of this library.

    If the store refuses the fetch, the choice stays as it is, and a `ReadAloneWarning` says why. A
    Qdrant server may demand indexes of the metadata.

    Costs one fetch with a filter by metadata, of which `timings` has the seconds as "read_on". A
    store without an index of metadata looks at each document: Faiss at 20,000 in 80 ms, Qdrant's
    local mode in 0.8 s.

    Args:
        source: Where the candidates came from.
        chosen: The choice.
        options: What it obeyed.
        room: Tokens that are free for chunks. A chunk is read alone if it and the next have more,
            or more than `max_tokens`. Default: any number.
        filter: As for `search`.
    """
    timings = dict(chosen.timings)
    with timed(timings, "read_on"):
        leaders = _leaders(chosen)
        fetch = _fetch(source, leaders, chosen, options, filter)
        if fetch is not None:
            try:
                found = source.fetch(**fetch)
                chosen = _chosen_again(chosen, leaders, found, options, room)
            except CandidateSourceError as error:
                _warn(error)
    return replace(chosen, timings=timings)


async def aread_on(
    source: CandidateSource,
    chosen: Chosen,
    options: ChoiceOptions,
    *,
    room: int | None = None,
    filter: Any = None,
) -> Chosen:
    """Return what `read_on` returns, without blocking the event loop."""
    timings = dict(chosen.timings)
    with timed(timings, "read_on"):
        leaders = _leaders(chosen)
        fetch = _fetch(source, leaders, chosen, options, filter)
        if fetch is not None:
            try:
                found = await source.afetch(**fetch)
                again = (chosen, leaders, found, options, room)
                chosen = await asyncio.to_thread(_chosen_again, *again)
            except CandidateSourceError as error:
                _warn(error)
    return replace(chosen, timings=timings)


def _leaders(chosen: Chosen) -> CandidatePool:
    """Return the most relevant candidates, best first, with their relevance."""
    pool = chosen.pool
    relevance = pool.similarities if chosen.relevance is None else chosen.relevance
    best = np.atleast_2d(relevance).max(axis=0) if len(pool) else pool.similarities
    order = np.argsort(-best, kind="stable")[:N_FOLLOWED]
    return replace(pool, relevance=best).take(order)


def _fetch(
    source: CandidateSource,
    leaders: CandidatePool,
    chosen: Chosen,
    options: ChoiceOptions,
    filter: Any,
) -> Fetch | None:
    """Return the arguments of the fetch that finds what follows the leaders; None without any.

    It also finds chunks of one document that begin where a chunk of another ends.
    """
    if options.max_per_document is not None or options.n_select < 2:
        return None
    if not isinstance(innermost(source), LexicalFetching):
        return None  # it may have a kind of filter of its own
    wanted: dict[str, list[tuple[str, int]]] = {}  # by the key that names documents
    for one in leaders.metadata:
        document, end = place_of(one, options.document_key).document, one.get("end")
        key = next((key for key, value in one.items() if value == document), None)
        if isinstance(document, str) and key is not None and isinstance(end, int):
            wanted.setdefault(key, []).append((document, end))
    if not wanted:
        return None
    key, places = max(wanted.items(), key=lambda item: len(item[1]))
    documents, starts = (sorted(set(column)) for column in zip(*places, strict=True))
    return {
        "query": chosen.query,
        "n_candidates": len(documents) * len(starts),
        "filter": both(filter, filter_for(source, {"start": starts, key: documents})),
    }


def _warn(error: CandidateSourceError) -> None:
    warn(
        f"what follows the chosen chunks is not read, since the store could not be asked for it: "
        f"{error}; a Qdrant server that demands indexes needs one of the keys in its metadata",
        ReadAloneWarning,
    )


def _chosen_again(
    chosen: Chosen,
    leaders: CandidatePool,
    found: CandidatePool,
    options: ChoiceOptions,
    room: int | None,
) -> Chosen:
    """Return a choice among the leaders with what follows them; the old one if nothing does."""
    pool = _with_following(leaders, found, options, room)
    if pool is leaders:
        return chosen
    again = choose_checked(pool, chosen.query, options, room)
    n_chunks = accumulate(len(one.get("chunks", [""])) for one in again.chunks.metadata)
    return again.first(sum(n <= options.n_select for n in n_chunks))


def _with_following(
    leaders: CandidatePool, found: CandidatePool, options: ChoiceOptions, room: int | None
) -> CandidatePool:
    """Return the leaders with what follows them; themselves if nothing does."""
    count = options.count_tokens or estimated_tokens
    limit = min((one for one in (options.max_tokens, room) if one is not None), default=math.inf)
    places = [found.place(row, options.document_key) for row in range(len(found))]
    row_at = {(place.joinable_text, place.start): row for row, place in enumerate(places)}
    texts, metadata = list(leaders.texts), list(leaders.metadata)
    embeddings = leaders.embeddings.copy()
    has_any = False
    for i, about in enumerate(leaders.metadata):
        own = leaders.place(i, options.document_key)
        row = row_at.get((own.joinable_text, about.get("end")))
        if own.joinable_text is None or row is None or not found.embeddings[row].any():
            continue
        touching = passages_of([texts[i], found.texts[row]], [own, places[row]], [0, 1])
        if len(touching) == 1 and (limit == math.inf or count(touching[0].text) <= limit):
            ids = [leaders.document_ids[i], found.document_ids[row]]
            metadata[i] = {**about, "end": found.metadata[row].get("end"), "chunks": ids}
            texts[i], embeddings[i], has_any = touching[0].text, found.embeddings[row], True
    if not has_any:
        return leaders
    return replace(leaders, texts=texts, metadata=metadata, embeddings=embeddings)
