"""Chosen chunks that stand beside one another in a document, as one passage in reading order."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from sift_core.types import CandidatePool, FloatArray, Metadata, Selection

# Where metadata says at which character of its document a chunk starts: `sift index`, LangChain's,
# LlamaIndex' and Haystack's splitters.
START_KEYS = ("start", "start_index", "start_char_idx", "split_idx_start")
TOUCHING = 8  # characters at most between two chunks that touch: what splitters trim


@dataclass(frozen=True)
class Place:
    """Where a chunk stands.

    Args:
        document: The text that it was cut from, by any name; of two texts never the same.
        start: Its first character there, >= 0.
    """

    document: Hashable
    start: int


@dataclass(frozen=True, kw_only=True)
class Passage:
    """Chunks of one document in reading order, as one text.

    Args:
        rows: Their positions among the candidates; those that fill a gap were not chosen.
        first: The one of them that was chosen first.
        text: The chunks' text. What a splitter trimmed between two is a blank line, or a new line
            where that was one character.
    """

    rows: tuple[int, ...]
    first: int
    text: str


def place_of(document: Hashable | None, metadata: Metadata) -> Place | None:
    """Return where a chunk stands by its metadata; None where that is not said.

    A "page" is taken for a text of its own, as loaders of PDFs have it, unless there is a
    "last_page": `sift index` counts through all pages.

    Args:
        document: The file, page or address that it is of; None for a document of its own.
        metadata: Has its first character under one of `START_KEYS`.
    """
    if document is None:
        return None
    if metadata.get("page") is not None and "last_page" not in metadata:
        document = (document, str(metadata["page"]))
    for key in START_KEYS:
        start = metadata.get(key)
        if isinstance(start, int) and not isinstance(start, bool) and start >= 0:
            return Place(document, start)
    return None


def passages_of(
    texts: Sequence[str],
    places: Sequence[Place | None],
    chosen: Sequence[int],
    *,
    size: Callable[[int, str], int] = lambda row, text: 0,
    max_tokens: float = math.inf,
    max_per_document: float = math.inf,
) -> list[Passage]:
    """Return the chosen chunks as passages, in order of the first choice in each.

    Chunks are joined where they overlap or touch, or where a candidate that was not chosen stands
    between them and touches both. Two that should overlap and differ there are left as they are;
    so are all of a document of which two candidates start at one place with different texts, since
    their places are not of one text.

    Takes O(n) time for n candidates, and a count of tokens for each join if there is a limit.

    Args:
        texts: n candidates.
        places: Where they stand, n; None for what has no neighbours.
        chosen: Positions in order of choice.
        size: Tokens of a text in the place of a candidate's, such as with its metadata.
        max_tokens: What all passages may have together. No join makes them more; if the
            chosen are more already, those that do not fit in order of choice stay alone.
        max_per_document: How many chunks of one document may be among them, what fills gaps
            counted.
    """
    return _Joining(texts, places, chosen, size, max_tokens, max_per_document).passages()


class _Joining:
    """One call of `passages_of`: the tokens that are left fall from join to join."""

    def __init__(
        self,
        texts: Sequence[str],
        places: Sequence[Place | None],
        chosen: Sequence[int],
        size: Callable[[int, str], int],
        max_tokens: float,
        max_per_document: float,
    ) -> None:
        self._texts, self._places, self._size = texts, places, size
        self._max_per_document = max_per_document
        self._rank = {row: i for i, row in enumerate(dict.fromkeys(chosen))}
        self._left = max_tokens
        self._fits: set[int] = set()
        for row in self._rank:
            tokens = self._tokens((row,))
            if tokens <= self._left:
                self._left -= tokens
                self._fits.add(row)

    def passages(self) -> list[Passage]:
        passages: list[Passage] = []
        seen: set[Hashable] = set()
        for row in self._rank:
            place = self._places[row]
            if place is None or row not in self._fits:
                passages.append(self._passage((row,)))
            elif place.document not in seen:
                seen.add(place.document)
                passages += [self._passage(rows) for rows in self._runs(place.document)]
        return sorted(passages, key=lambda passage: self._rank[passage.first])

    def _runs(self, document: Hashable) -> list[tuple[int, ...]]:
        """Return the chosen rows of a document, and what fills gaps, in runs that touch."""
        rows = self._in_order.get(document, [])
        chosen = [row for row in rows if row in self._fits]
        if not self._is_one_text(rows):
            return [(row,) for row in chosen]
        n_kept = len(chosen)
        runs: list[tuple[int, ...]] = [(chosen[0],)]
        for row in chosen[1:]:
            last = runs[-1][-1]
            fillers: list[tuple[int, ...]] = [()]  # of which one may stand between the two
            if not self._touch(last, row):
                is_full = n_kept >= self._max_per_document
                fillers = [] if is_full else [(one,) for one in self._between(rows, last, row)]
            for filler in fillers:
                joined = (*runs[-1], *filler, row)
                more = self._tokens(joined) - self._tokens(runs[-1]) - self._tokens((row,))
                if more <= self._left:
                    self._left -= max(more, 0)
                    n_kept += len(filler)
                    runs[-1] = joined
                    break
            else:
                runs.append((row,))
        return runs

    @cached_property
    def _in_order(self) -> dict[Hashable, list[int]]:
        """The rows of each document, in reading order."""
        found: dict[Hashable, list[tuple[int, int]]] = {}
        for row, place in enumerate(self._places):
            if place is not None:
                found.setdefault(place.document, []).append((place.start, row))
        return {name: [row for _, row in sorted(pairs)] for name, pairs in found.items()}

    def _is_one_text(self, rows: Sequence[int]) -> bool:
        for one, other in pairwise(rows):
            a, b = self._texts[one], self._texts[other]
            if self._start(one) == self._start(other) and not (a.startswith(b) or b.startswith(a)):
                return False
        return True

    def _between(self, rows: Sequence[int], one: int, other: int) -> list[int]:
        """Return the rows that were not chosen and touch both."""
        among = rows[rows.index(one) + 1 : rows.index(other)]
        return [
            row
            for row in among
            if row not in self._rank and self._touch(one, row) and self._touch(row, other)
        ]

    def _touch(self, one: int, other: int) -> bool:
        gap = self._gap(one, other)
        if gap >= 0:
            return gap <= TOUCHING
        a, b = self._texts[one], self._texts[other]
        return -gap < min(len(a), len(b)) and a.endswith(b[:-gap])

    def _gap(self, one: int, other: int) -> int:
        return self._start(other) - self._start(one) - len(self._texts[one])

    def _start(self, row: int) -> int:
        place = self._places[row]
        assert place is not None  # only rows with a place have neighbours
        return place.start

    def _tokens(self, rows: tuple[int, ...]) -> int:
        return 0 if self._left == math.inf else self._size(self._first(rows), self._joined(rows))

    def _passage(self, rows: tuple[int, ...]) -> Passage:
        return Passage(rows=rows, first=self._first(rows), text=self._joined(rows))

    def _first(self, rows: tuple[int, ...]) -> int:
        return min(rows, key=lambda row: self._rank.get(row, len(self._rank)))

    def _joined(self, rows: tuple[int, ...]) -> str:
        text = self._texts[rows[0]]
        for one, other in pairwise(rows):
            gap = self._gap(one, other)
            text += ("", "\n", "\n\n")[min(max(gap, 0), 2)] + self._texts[other][max(-gap, 0) :]
        return text


def with_passages(
    pool: CandidatePool,
    selection: Selection,
    passages: Sequence[Passage],
    *,
    metadata_of: Callable[[Passage], Metadata] | None = None,
) -> tuple[CandidatePool, Selection]:
    """Return a choice of passages, those of several chunks as further rows of its pool.

    Such a row has the id, embedding and scores of the chunk that was chosen first.

    Args:
        pool: What was chosen from; its rows stay where they are.
        selection: The choice of chunks.
        passages: Of `passages_of` for it.
        metadata_of: The metadata of a passage of several chunks; `passage_metadata` if None.

    Returns:
        The pool, and the choice: σ² falls by what all chunks of a passage have told.
    """
    joined = [passage for passage in passages if len(passage.rows) > 1]
    if not joined:
        return pool, selection
    told = [metadata_of(one) if metadata_of else passage_metadata(pool, one) for one in joined]
    n = len(pool)
    rows = pool.take([*range(n), *(passage.first for passage in joined)])
    row_of = {passage: n + i for i, passage in enumerate(joined)}
    extended = replace(
        rows,
        texts=[*pool.texts, *(passage.text for passage in joined)],
        metadata=[*pool.metadata, *told],
    )
    return extended, replace(
        selection,
        positions=np.array([row_of.get(one, one.first) for one in passages], dtype=np.intp),
        variances=variances_of_passages(selection.variances, selection, passages),
    )


def passage_metadata(pool: CandidatePool, passage: Passage) -> Metadata:
    """Return the metadata of the chunk that a passage begins with, up to where it ends.

    "chunks" has the ids of all its chunks, in reading order.
    """
    begins, ends = pool.metadata[passage.rows[0]], pool.metadata[passage.rows[-1]]
    where = {key: ends[key] for key in ("end", "last_page") if key in begins and key in ends}
    return {**begins, **where, "chunks": [pool.document_ids[row] for row in passage.rows]}


def variances_of_passages(
    variances: FloatArray, selection: Selection, passages: Sequence[Passage]
) -> FloatArray:
    """Return variances that fall passage by passage, shape (p + 1,), from those by chunk.

    Args:
        variances: Before the first of k chunks and after each, shape (k + 1,).
        selection: The choice of these chunks.
        passages: p passages of it.
    """
    passage_of = {row: i for i, passage in enumerate(passages) for row in passage.rows}
    falls = np.zeros(len(passages))
    for row, fall in zip(selection.positions.tolist(), -np.diff(variances), strict=True):
        falls[passage_of[row]] += fall
    after = variances[0] - np.cumsum(falls[:-1])
    return np.array([variances[0], *after, variances[-1]])
