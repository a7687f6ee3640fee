"""Candidates that a rule of the choice left out, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from sift_core.passages import Passage
from sift_core.selection.limits import Limits
from sift_core.types import CandidatePool, FloatArray, Selection

__all__ = ["LeftOut"]

Reason: TypeAlias = Literal["near_copy", "older", "max_per_document", "max_tokens"]

N_NAMES = 3  # documents that a line names
_WORDS = {
    "near_copy": ("near-copy left out", "near-copies left out"),
    "older": ("older version left out", "older versions left out"),
    "max_per_document": ("left out by max_per_document",) * 2,
    "max_tokens": ("left out by max_tokens",) * 2,
}


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """A candidate that a rule left out.

    Args:
        row: Its row in the pool.
        document_id: Its identifier.
        source: The name of its document, or else its identifier.
        reason: "near_copy" of a chosen passage; "older" for such a copy with an earlier date than
            the passage, by `newest`; "max_per_document" or "max_tokens" for one of the most
            relevant candidates whose document is full, or which is longer than what is left.
        rank: Of the passage that it is a copy of, from 1. Default: a limit left it out.
    """

    row: int
    document_id: str
    source: str
    reason: Reason
    rank: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {name: value for name, value in vars(self).items() if name != "row"}


def find_left_out(
    pool: CandidatePool,
    selection: Selection,
    passages: Sequence[Passage],
    *,
    relevance: FloatArray | None,
    limits: Limits | None,
    newness: FloatArray | None,
    n_select: int,
    document_key: str | None = None,
) -> tuple[LeftOut, ...]:
    """Return the near-copies of what was chosen, then what limits kept from the most relevant.

    Args:
        pool: The n candidates.
        selection: What was chosen of them.
        passages: The same as passages.
        relevance: Of the candidates, shape (n,), or (m, n) of m queries. Default: cosines.
        limits: The limits that the choice obeyed. Default: none.
        newness: Dates, shape (n,), if the newest of near-copies was chosen. Default: it was not.
        n_select: How many of the most relevant distinct candidates to check against the limits.
        document_key: Metadata key that names a document. Default: as for `place_of`.
    """
    rank_of = {row: i + 1 for i, passage in enumerate(passages) for row in passage.rows}
    stands_for = selection.stands_for
    copies = np.arange(len(pool)) if stands_for is None else stands_for
    found: list[tuple[int, Reason, int | None]] = []
    for row in np.flatnonzero(copies != np.arange(len(pool))).tolist():
        chosen = int(copies[row])
        if row not in rank_of and chosen in rank_of:
            is_older = newness is not None and newness[row] < newness[chosen]
            found.append((row, "older" if is_older else "near_copy", rank_of[chosen]))
    if limits is not None:
        values = pool.similarities if relevance is None else np.atleast_2d(relevance).max(axis=0)
        order = np.argsort(-np.asarray(values), kind="stable").tolist()
        first = [row for row in order if copies[row] == row][:n_select]
        others = (row for row in first if row not in rank_of)
        found += [(row, reason, None) for row, reason in _limited(others, limits, list(rank_of))]
    return tuple(
        LeftOut(
            row=row,
            document_id=pool.document_ids[row],
            source=str(pool.place(row, document_key).document or pool.document_ids[row]),
            reason=reason,
            rank=rank,
        )
        for row, reason, rank in found
    )


def _limited(
    rows: Iterable[int], limits: Limits, chosen: Sequence[int]
) -> Iterable[tuple[int, Reason]]:
    """Yield the rows that do not fit beside what was chosen, with the limit that says so."""
    groups, costs = limits.groups, limits.costs
    n_of = Counter(groups[row] for row in chosen) if groups is not None else Counter()
    left = None
    if costs is not None and limits.budget is not None:
        left = limits.budget - sum(costs[row] for row in chosen)
    for row in rows:
        if groups is not None and n_of[groups[row]] >= (limits.max_per_group or 0):
            yield row, "max_per_document"
        elif costs is not None and left is not None and costs[row] > left:
            yield row, "max_tokens"


def left_out_line(left_out: Iterable[LeftOut]) -> str:
    """Return what was left out and why in one line; empty if nothing was.

    It reads such as "5 near-copies left out: policy-2019.md, policy-2020.md and 3 more".
    """
    parts = []
    by_reason: dict[str, list[str]] = {}
    for one in left_out:
        by_reason.setdefault(one.reason, []).append(one.source)
    for reason, sources in by_reason.items():
        names = list(dict.fromkeys(sources))
        more = len(names) - N_NAMES
        shown = ", ".join(names[:N_NAMES]) + (f" and {more} more" if more > 0 else "")
        parts.append(f"{len(sources)} {_WORDS[reason][len(sources) > 1]}: {shown}")
    return "; ".join(parts)
