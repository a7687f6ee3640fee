"""Chosen chunks that stand beside one another in a document, as one passage in reading order."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from sift_core.places import Place
from sift_core.types import CandidatePool, FloatArray, Metadata, Selection

TOUCHING = 8  # characters at most between two chunks that touch: what splitters trim


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


def passages_of(
    texts: Sequence[str],
    places: Sequence[Place],
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
        places: Where they stand, n. A chunk without a start has no neighbours.
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
        places: Sequence[Place],
        chosen: Sequence[int],
        size: Callable[[int, str], int],
        max_tokens: float,
        max_per_document: float,
    ) -> None:
        self._texts, self._places, self._size = texts, places, size
        self._own_texts = [
            text[place.n_repeated :] for text, place in zip(texts, places, strict=True)
        ]
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
            text = self._places[row].joinable_text
            if text is None or row not in self._fits:
                passages.append(self._passage((row,)))
            elif text not in seen:
                seen.add(text)
                passages += [self._passage(rows) for rows in self._runs(text)]
        return sorted(passages, key=lambda passage: self._rank[passage.first])

    def _runs(self, text: Hashable) -> list[tuple[int, ...]]:
        """Return the chosen rows of a text, and what fills gaps, in runs that touch."""
        rows = self._in_order.get(text, [])
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
        """The rows of each text, in reading order."""
        found: dict[Hashable, list[tuple[int, int]]] = {}
        for row, place in enumerate(self._places):
            if (text := place.joinable_text) is not None:
                found.setdefault(text, []).append((self._start(row), row))
        return {name: [row for _, row in sorted(pairs)] for name, pairs in found.items()}

    def _is_one_text(self, rows: Sequence[int]) -> bool:
        for one, other in pairwise(rows):
            a, b = self._own_texts[one], self._own_texts[other]
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
        a, b = self._own_texts[one], self._own_texts[other]
        return -gap < min(len(a), len(b)) and a.endswith(b[:-gap])

    def _gap(self, one: int, other: int) -> int:
        return self._start(other) - self._start(one) - len(self._own_texts[one])

    def _start(self, row: int) -> int:
        start = self._places[row].start
        assert start is not None  # only rows with a start have neighbours
        return start

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
            text += ("", "\n", "\n\n")[min(max(gap, 0), 2)] + self._own_texts[other][max(-gap, 0) :]
        return text


def passage_metadata(pool: CandidatePool, passage: Passage) -> Metadata:
    """Return the metadata of the chunk that a passage begins with, up to where it ends.

    "chunks" has the ids of all its chunks, in reading order.
    """
    begins, ends = pool.metadata[passage.rows[0]], pool.metadata[passage.rows[-1]]
    where = {key: ends[key] for key in ("end", "last_page") if key in begins and key in ends}
    return {**begins, **where, "chunks": [pool.document_ids[row] for row in passage.rows]}


def single_passages(texts: Sequence[str], selection: Selection) -> list[Passage]:
    """Return each choice as a passage of one chunk."""
    rows = selection.positions.tolist()
    return [Passage(rows=(row,), first=row, text=texts[row]) for row in rows]


def join_neighbors(
    texts: Sequence[str], places: Sequence[Place], selection: Selection, **limits: Any
) -> tuple[Selection, list[Passage]]:
    """Return a choice by passages: the first choice in each, and how σ² falls passage by passage.

    Args:
        texts: n candidates.
        places: Where they stand, n.
        selection: The choice of chunks.
        **limits: As for `passages_of`.
    """
    passages = passages_of(texts, places, selection.positions.tolist(), **limits)
    if all(len(passage.rows) == 1 for passage in passages):
        return selection, single_passages(texts, selection)
    joined = replace(
        selection,
        positions=np.array([passage.first for passage in passages], dtype=np.intp),
        variances=variances_of_passages(selection.variances, selection, passages),
    )
    return joined, passages


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
