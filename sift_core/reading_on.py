"""Reading on: beside a chosen chunk, the one that follows it in its document.

A text before a cursor is like the text before a copy of what comes next. So the copy stands in the
chunk behind the one that is found.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from typing import Any

from sift_core.checks import warn
from sift_core.errors import CandidateSourceError, ReadAloneWarning
from sift_core.explanation import Chosen
from sift_core.options import ChoiceOptions
from sift_core.passages import Passage, passages_of
from sift_core.places import place_of
from sift_core.progress import timed
from sift_core.protocols import CandidateSource
from sift_core.sources.contract import LexicalFetching
from sift_core.sources.metadata_filters import both, filter_for, innermost
from sift_core.token_estimate import estimated_tokens
from sift_core.types import CandidatePool


def read_on(
    source: CandidateSource,
    chosen: Chosen,
    options: ChoiceOptions,
    *,
    room: int | None = None,
    filter: Any = None,
) -> Chosen:
    """Return a choice of which half of the chunks are those that follow the other half.

    The first half of `n_select` chunks is kept, rounded up. Each is joined with the chunk that
    begins where it ends, if the store has one. The next choices fill what is left.

    A choice stays as it is if its chunks have no "start" and "end", as `sift index` writes them. So
    it does with `max_per_document`, and where the store is not of this library.

    If the store refuses the fetch, the choice stays as it is, and a `ReadAloneWarning` says why. A
    Qdrant server may demand indexes of the metadata.

    Costs one fetch with a filter by metadata, of which `timings` has the seconds as "read_on". A
    store without an index of metadata looks at each document: Faiss at 20,000 in 80 ms, Qdrant's
    local mode in 0.8 s.

    Args:
        source: Where the candidates came from.
        chosen: The choice.
        options: What it obeyed. The result obeys `n_select` and `max_tokens`, too.
        room: Tokens that all chunks may have, if `max_tokens` is not less. Default: any number.
        filter: As for `search`.
    """
    timings = dict(chosen.timings)
    with timed(timings, "read_on"):
        fetch = _fetch(source, chosen, options, filter)
        if fetch is not None:
            try:
                chosen = _joined(chosen, source.fetch(**fetch), options, room)
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
        fetch = _fetch(source, chosen, options, filter)
        if fetch is not None:
            try:
                found = await source.afetch(**fetch)
                chosen = await asyncio.to_thread(_joined, chosen, found, options, room)
            except CandidateSourceError as error:
                _warn(error)
    return replace(chosen, timings=timings)


def _fetch(
    source: CandidateSource, chosen: Chosen, options: ChoiceOptions, filter: Any
) -> dict[str, Any] | None:
    """Return the arguments of the fetch that finds what follows what is kept; None without any.

    It also finds chunks of one document that begin where a chunk of another ends.
    """
    if options.max_per_document is not None:
        return None
    if not isinstance(innermost(source), LexicalFetching):
        return None  # it may have a kind of filter of its own
    wanted: dict[str, list[tuple[str, int]]] = {}  # by the key that names documents
    for one in _kept(chosen, options).chunks.metadata:
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


def _kept(chosen: Chosen, options: ChoiceOptions) -> Chosen:
    return chosen.first((options.n_select + 1) // 2)


def _joined(
    chosen: Chosen, found: CandidatePool, options: ChoiceOptions, room: int | None
) -> Chosen:
    """Return the choice with what follows its chunks joined to them, as far as limits allow."""
    kept, count = _kept(chosen, options), options.count_tokens or estimated_tokens
    known, passages = set(kept.chunks.chunk_keys), list(kept.passages)
    n_left, limits = options.n_select - len(passages), (options.max_tokens, room)
    tokens_left = min((limit for limit in limits if limit is not None), default=math.inf)
    if tokens_left < math.inf:
        tokens_left -= sum(map(count, kept.chunks.texts))
    for i, passage in enumerate(kept.passages):
        following = _with_following(chosen.pool, passage, found, options)
        if not n_left or following is None:
            continue
        joined, key = following
        cost = count(joined.text) - count(passage.text)
        if cost <= tokens_left and key not in known:
            known.add(key)
            passages[i], n_left, tokens_left = joined, n_left - 1, tokens_left - cost
    for one in chosen.passages[len(passages) :][:n_left]:
        tokens_left -= count(one.text)
        if tokens_left < 0:
            break
        passages.append(one)
    return replace(chosen.first(len(passages)), passages=passages)


def _with_following(
    pool: CandidatePool, passage: Passage, found: CandidatePool, options: ChoiceOptions
) -> tuple[Passage, tuple[str, str]] | None:
    """Return a passage with what follows it, and the key of that chunk; None without any."""
    own = pool.place(passage.rows[0], options.document_key)
    end = pool.metadata[passage.rows[-1]].get("end")
    for row in range(len(found)):
        place = found.place(row, options.document_key)
        if (place.joinable_text, place.start) != (own.joinable_text, end):
            continue
        touching = passages_of([passage.text, found.texts[row]], [own, place], [0, 1])
        if len(touching) == 1:
            ids = [*(pool.document_ids[one] for one in passage.rows), found.document_ids[row]]
            where = {"end": found.metadata[row].get("end"), "chunks": ids}
            joined = replace(passage, text=touching[0].text, added=where)
            return joined, found.chunk_keys[row]
    return None
