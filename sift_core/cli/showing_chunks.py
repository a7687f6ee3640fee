"""Chunks on a terminal and in JSON: source, similarity, and which of them repeat others."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sift_core.cli.showing_text import number_or_none, one_line, plain, shortened, source_of
from sift_core.types import CandidatePool, FloatArray

if TYPE_CHECKING:
    from rich.console import Console

# As README.md and the demo define "redundant"; two chunks this close say mostly the same.
REDUNDANT_COSINE = 0.8

# Versions of one text by MiniLM: the demo holds back passages by this. A guess by eye.
COPY_COSINE = 0.95

# A chunk of Markdown often begins with its headings, which stand in the line above it already.
_HEADING_LINES = re.compile(r"\A(?:\s*#{1,6}\s.*\n)+")

LEGEND = (
    f"≡ nearly a copy of an earlier chunk (cosine ≥ {COPY_COSINE}), "
    f"≈ alike (≥ {REDUNDANT_COSINE}), which may add something"
)


@dataclass(frozen=True, kw_only=True)
class Repeat:
    """The earlier chunk that a chunk is most like.

    Args:
        rank: Of the earlier chunk, from 1.
        cosine: Of the two, >= `REDUNDANT_COSINE`.
    """

    rank: int
    cosine: float

    @property
    def is_copy(self) -> bool:
        """Return whether it hardly differs."""
        return self.cosine >= COPY_COSINE

    @property
    def mark(self) -> str:
        """Return the sign and the rank, such as "≈3"."""
        return f"{'≡' if self.is_copy else '≈'}{self.rank}"


def repeats_of(embeddings: FloatArray) -> list[Repeat | None]:
    """Return for each chunk the earlier one that it repeats; None where it repeats none.

    Args:
        embeddings: In order of choice, shape (k, d), no row all zero.
    """
    rows = np.asarray(embeddings, dtype=np.float64)
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    cosines = rows @ rows.T
    found: list[Repeat | None] = []
    for i in range(len(rows)):
        earlier = int(np.argmax(cosines[i, :i])) if i else 0
        is_repeat = i > 0 and cosines[i, earlier] >= REDUNDANT_COSINE
        repeat = Repeat(rank=earlier + 1, cosine=min(float(cosines[i, earlier]), 1.0))
        found.append(repeat if is_repeat else None)
    return found


def chunk_records(chunks: CandidatePool) -> list[dict[str, Any]]:
    """Return the chunks for JSON, in order of choice and unshortened."""
    records = []
    for i, repeat in enumerate(repeats_of(chunks.embeddings)):
        nearest = None if repeat is None else {"rank": repeat.rank, "cosine": repeat.cosine}
        records.append(
            {
                "rank": i + 1,
                "document_id": chunks.document_ids[i],
                "similarity": number_or_none(float(chunks.similarities[i])),
                "near_duplicate_of": nearest,
                "text": chunks.texts[i],
                "metadata": dict(chunks.metadata[i]),
            }
        )
    return records


def print_chunks(
    console: Console, chunks: CandidatePool, *, counts: Sequence[int] = (), n_lines: int | None = 2
) -> None:
    """Print the chunks in order of choice: a line about each, then its text.

    Args:
        console: Where.
        chunks: The chunks.
        counts: How often each was taken; once where left out.
        n_lines: Lines of text of each at most, 0 for none; None for the whole text as it is.
    """
    from rich.text import Text

    width = console.width
    for i, repeat in enumerate(repeats_of(chunks.embeddings)):
        mark = "" if repeat is None else repeat.mark
        times = f" ×{counts[i]}" if counts and counts[i] > 1 else ""
        head = f"{i + 1:>3} {mark:<4}{chunks.similarities[i]:5.2f}  "
        room = max(width - len(head) - len(times), 8)
        source = source_of(chunks.metadata[i], chunks.document_ids[i], room)
        console.print(Text.assemble((head, "dim"), (source + times, "bold")), soft_wrap=True)
        for text_line in _text_lines(console, chunks.texts[i], n_lines):
            console.print(Text(f"    {text_line}"), soft_wrap=True)


def _text_lines(console: Console, text: str, n_lines: int | None) -> list[str]:
    """Return the lines of a text: the first few of it joined, or all as they are."""
    from rich.text import Text

    if n_lines is None:
        return plain(text).splitlines()
    width = max(console.width - 4, 8)
    body = _HEADING_LINES.sub("", text) or text
    lines = [line.plain.rstrip() for line in Text(one_line(body)).wrap(console, width)]
    if len(lines) <= n_lines:
        return lines[:n_lines]
    last = shortened(" ".join(lines[n_lines - 1 : n_lines + 1]), width) if n_lines else ""
    return [*lines[: max(n_lines - 1, 0)], *([last] if last else [])]
