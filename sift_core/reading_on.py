"""Reading on: a choice among the chunks that follow what is like the question.

A text before a cursor is like the text before a copy of what comes next. So the copy stands in the
chunk behind the one that is found.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from sift_core.checks import warn
from sift_core.choice import choose_checked
from sift_core.errors import CandidateSourceError, InvalidInputError, ReadAloneWarning
from sift_core.explanation import Chosen
from sift_core.options import ChoiceOptions
from sift_core.passages import Passage, passages_of, variances_of_passages
from sift_core.places import document_key_of
from sift_core.progress import timed
from sift_core.protocols import CandidateSource
from sift_core.sources.contract import LexicalFetching
from sift_core.sources.filtered import FilteredSource
from sift_core.sources.metadata_filters import both, filter_for, innermost
from sift_core.token_estimate import estimated_tokens
from sift_core.types import CandidatePool, FloatArray, Metadata, StopReason

N_FOLLOWED = 24  # candidates whose next chunks are fetched; 8, 16 and 32 find less or no more

Fetch: TypeAlias = Mapping[str, Any]
REFUSED = (CandidateSourceError, InvalidInputError)  # the latter: a filter of another kind


def read_on(
    source: CandidateSource,
    chosen: Chosen,
    options: ChoiceOptions,
    *,
    room: int | None = None,
    filter: Any = None,
) -> Chosen:
    """Return a choice among the most relevant candidates with the chunks that follow them.

    Each of the 24 most relevant candidates (`n_select` if it is more) is joined with the chunk that
    begins where it ends. It is as relevant as before, and has the embedding of what follows. So
    near-copies whose next chunks differ are no near-copies.

    Each chosen candidate and the chunk behind it are one passage, or more chunks where one pair
    begins with the end of another. `n_select` counts chunks, so that the last one may stand alone.
    Two pairs that touch stay two passages, also with `merge_neighbors`. The pool gets the chunks
    that follow as its last rows.

    The choice stays as it is if nothing follows, as chunks have no "start" and "end" in their
    metadata, which `sift index` writes. So it does with `max_per_document`, with an `n_select` of
    1 and for several queries, and where the store is not of this library.

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
        rows = _most_relevant(chosen, options)
        fetch = _fetch(source, rows, chosen, options, filter)
        if fetch is not None:
            try:
                found = source.fetch(**fetch)
                chosen = _chosen_again(source, rows, chosen, found, options, room)
            except REFUSED as error:
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
        rows = _most_relevant(chosen, options)
        fetch = _fetch(source, rows, chosen, options, filter)
        if fetch is not None:
            try:
                found = await source.afetch(**fetch)
                given = (source, rows, chosen, found, options, room)
                chosen = await asyncio.to_thread(_chosen_again, *given)
            except REFUSED as error:
                _warn(error)
    return replace(chosen, timings=timings)


def _most_relevant(chosen: Chosen, options: ChoiceOptions) -> list[int]:
    """Return the rows of the candidates that are followed, the most relevant first."""
    relevance = _relevance(chosen)
    order = np.argsort(-relevance, kind="stable")
    rows: list[int] = order[: max(N_FOLLOWED, options.n_select)].tolist()
    return rows


def _relevance(chosen: Chosen) -> FloatArray:
    """Return the relevance of the candidates to the one query, shape (n,)."""
    if chosen.relevance is None:
        return chosen.pool.similarities
    relevance: FloatArray = np.atleast_2d(chosen.relevance)[0]
    return relevance


def _fetch(
    source: CandidateSource,
    rows: Sequence[int],
    chosen: Chosen,
    options: ChoiceOptions,
    filter: Any,
) -> Fetch | None:
    """Return the arguments of the fetch that finds what follows some rows; None without any.

    It also finds chunks of one document that begin where a chunk of another ends.
    """
    if options.max_per_document is not None or options.n_select < 2 or chosen.query.also:
        return None
    if not isinstance(innermost(source), LexicalFetching):
        return None  # it may have a kind of filter of its own
    wanted: dict[str, list[tuple[str, int]]] = {}  # by the key that names documents
    for row in rows:
        about = chosen.pool.metadata[row]
        key, end = document_key_of(about, options.document_key), _end_of(about)
        if key is not None and isinstance(about[key], str) and end is not None:
            wanted.setdefault(key, []).append((about[key], end))
    if not wanted:
        return None
    key, places = max(wanted.items(), key=lambda item: len(item[1]))
    documents, starts = (sorted(set(column)) for column in zip(*places, strict=True))
    return {
        "query": chosen.query,
        "n_candidates": len(documents) * len(starts),
        "filter": both(filter, filter_for(source, {"start": starts, key: documents})),
    }


def _end_of(metadata: Metadata) -> int | None:
    """Return where a chunk ends in its text; None if its metadata does not say it."""
    end = metadata.get("end")
    return end if isinstance(end, int) else None


def _warn(error: Exception) -> None:
    warn(
        f"what follows the chosen chunks is not read, since the store could not be asked for it: "
        f"{error}; a Qdrant server that demands indexes needs one of the keys in its metadata",
        ReadAloneWarning,
    )


def _chosen_again(
    source: CandidateSource,
    rows: Sequence[int],
    chosen: Chosen,
    found: CandidatePool,
    options: ChoiceOptions,
    room: int | None,
) -> Chosen:
    """Return a choice among some rows with what follows them; the old one if nothing does."""
    pool = _with_new(chosen.pool, found)
    count = options.count_tokens or estimated_tokens
    limit = min((one for one in (options.max_tokens, room) if one is not None), default=math.inf)
    candidates = replace(chosen.pool, relevance=_relevance(chosen)).take(rows)
    texts, embeddings = list(candidates.texts), candidates.embeddings.copy()
    next_of: dict[int, int] = {}
    for i, (row, behind) in enumerate(zip(rows, _next_rows(pool, rows, options), strict=True)):
        text = None if behind is None else _joined_text(pool, [row, behind], options)
        if behind is None or text is None or (limit < math.inf and count(text) > limit):
            continue
        together = replace(candidates.take([i]), texts=[text])
        if isinstance(source, FilteredSource) and not source.keeps(together):
            continue  # two chunks may show together what neither shows alone
        next_of[row], texts[i], embeddings[i] = behind, text, pool.embeddings[behind]
    if not next_of:
        return chosen
    candidates = replace(candidates, texts=texts, embeddings=embeddings)
    options = replace(options, merge_neighbors=False)
    again = choose_checked(candidates, chosen.query, options, room, len(candidates))
    return _as_passages(pool, rows, chosen, again, next_of, options)


def _with_new(pool: CandidatePool, found: CandidatePool) -> CandidatePool:
    """Return a pool with what was found and is not in it, but for chunks without a vector."""
    known = set(pool.chunk_keys)
    keys = enumerate(found.chunk_keys)
    new = [i for i, key in keys if key not in known and found.embeddings[i].any()]
    return CandidatePool.concatenate([pool, found.take(new)])


def _next_rows(
    pool: CandidatePool, rows: Sequence[int], options: ChoiceOptions
) -> list[int | None]:
    """Return for each row the one that begins where it ends; None if none or several do.

    Several have different texts, as in two versions of a document under one name.
    """
    row_at: dict[Any, int | None] = {}
    for row in range(len(pool)):
        place = pool.place(row, options.document_key)
        key = (place.joinable_text, place.start)
        other = row_at.setdefault(key, row)
        if other is not None and pool.texts[other] != pool.texts[row]:
            row_at[key] = None
    places = [pool.place(row, options.document_key) for row in rows]
    return [
        None
        if place.joinable_text is None
        else row_at.get((place.joinable_text, _end_of(pool.metadata[row])))
        for row, place in zip(rows, places, strict=True)
    ]


def _joined_text(pool: CandidatePool, rows: Sequence[int], options: ChoiceOptions) -> str | None:
    """Return the text of some rows that follow one another; None if they do not touch."""
    places = [pool.place(row, options.document_key) for row in rows]
    found = passages_of([pool.texts[row] for row in rows], places, range(len(rows)))
    return found[0].text if len(found) == 1 else None


def _as_passages(
    pool: CandidatePool,
    rows: Sequence[int],
    chosen: Chosen,
    again: Chosen,
    next_of: Mapping[int, int],
    options: ChoiceOptions,
) -> Chosen:
    """Return the first choice with the passages of another one, which is among some rows.

    Args:
        pool: That of the first choice, then the chunks that follow.
        rows: Rows of the pool, among which the other one chose.
        chosen: The first choice, of which query, words and second fetch stay.
        again: The other one.
        next_of: Row of what follows, by row.
        options: Of the choice. No more chunks than `n_select` are read.
    """
    picked, taken = _taken([rows[i] for i in again.positions.tolist()], next_of, options.n_select)
    is_full = len(taken) == options.n_select
    passages = _chained(pool, taken, next_of, options)
    rank_of = {row: i for i, passage in enumerate(passages) for row in passage.rows}
    again = again.first(len(picked))
    relevance = pool.similarities.astype(float)
    relevance[: len(chosen.pool)] = _relevance(chosen)
    for row, behind in next_of.items():
        if behind >= len(chosen.pool):
            relevance[behind] = relevance[row]
    left_out = (replace(one, row=rows[one.row]) for one in again.left_out)
    return replace(
        chosen,
        pool=pool,
        relevance=relevance,
        positions=np.array([passage.first for passage in passages], dtype=np.intp),
        passages=passages,
        variances=variances_of_passages(
            again.variances, replace(again, positions=np.array(picked, dtype=np.intp)), passages
        ),
        stop_reason=StopReason.N_SELECT if is_full else again.stop_reason,
        bound_violations=again.bound_violations,
        stands_for=None,
        left_out=tuple(
            replace(one, rank=rank_of[picked[one.rank - 1]] + 1) if one.rank else one
            for one in left_out
            if one.row not in taken
        ),
    )


def _taken(
    chosen: Sequence[int], next_of: Mapping[int, int], n_select: int
) -> tuple[list[int], list[int]]:
    """Return the first rows of a choice that are read, and these with what follows, each once.

    At most `n_select` are read, so that nothing may follow the last one.
    """
    picked: list[int] = []
    taken: list[int] = []
    for row in chosen:
        if len(taken) == n_select:
            break
        picked.append(row)
        pair = [row, next_of[row]] if row in next_of else [row]
        new = [one for one in pair if one not in taken]
        taken += new[: n_select - len(taken)]
    return picked, taken


def _chained(
    pool: CandidatePool, taken: Sequence[int], next_of: Mapping[int, int], options: ChoiceOptions
) -> list[Passage]:
    """Return rows as passages, in order of the first of each: each row with what follows it."""
    before: dict[int, int] = {}
    for row in taken:
        if next_of.get(row) in taken:
            before.setdefault(next_of[row], row)
    behind = {row: one for one, row in before.items()}
    passages = []
    for row in taken:
        if row in before:
            continue
        chain = [row]
        while chain[-1] in behind:
            chain.append(behind[chain[-1]])
        text = _joined_text(pool, chain, options)
        assert text is not None  # each touches the one before it
        first = min(chain, key=taken.index)
        passages.append(Passage(rows=tuple(chain), first=first, text=text))
    return sorted(passages, key=lambda passage: taken.index(passage.first))
