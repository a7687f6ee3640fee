"""What reaches the terminal: texts that cannot steer it, chunks, σ² as bars, and JSON."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from sift_core.cli.streams import one_line, plain, undecorated
from sift_core.errors import MissingDependencyError
from sift_core.explanation import Pick
from sift_core.places import document_of
from sift_core.repeats import COPY_COSINE, REDUNDANT_COSINE, Repeat
from sift_core.types import CandidatePool

try:
    from rich.cells import cell_len, set_cell_size
    from rich.console import Console
    from rich.segment import Segment
    from rich.status import Status
    from rich.table import Table
    from rich.text import Text
except ImportError as error:
    raise MissingDependencyError("rich", extra="cli") from error

LEGEND = (
    f"≡ nearly a copy of an earlier chunk (cosine ≥ {COPY_COSINE}), "
    f"≈ alike (≥ {REDUNDANT_COSINE}), which may add something"
)
LEAST_TITLE = 12  # columns, below which the stump of a heading says nothing

# A chunk of Markdown often begins with its headings, which stand in the line above it already.
_HEADING_LINES = re.compile(r"\A(?:\s*#{1,6}\s.*\n)+")

_STARTS = re.compile(r"([.!?])\s+|\n\s*")  # of a sentence, or else of a line
LEAST_STEM = 4  # letters of a word whose other endings are the same word

_LEVELS = "▁▂▃▄▅▆▇█"


class Terminal(Console):
    """A console without markup, on which no text that is printed can steer the terminal.

    It has no colours in a pipe or with NO_COLOR set.

    Args:
        stderr: Whether it is for notes and status lines rather than for results.
    """

    def __init__(self, *, stderr: bool = False) -> None:
        file = undecorated(sys.stderr if stderr else sys.stdout)
        super().__init__(file=file, highlight=False, emoji=False, markup=False)

    def render(self, *arguments: Any, **options: Any) -> Iterable[Segment]:
        """Yield the pieces of what is printed: clean, and without links, which Rich may find."""
        for piece in super().render(*arguments, **options):
            style = piece.style
            if style is not None and style.link:
                style = style.update_link(None)
            yield piece if piece.control else Segment(plain(piece.text), style)

    def say(self, text: str, *, style: str = "") -> None:
        """Print words of our own, wrapped at words; in a pipe without COLUMNS a line stays one."""
        self.print(text, style=style, soft_wrap=not self.has_width)

    @property
    def has_width(self) -> bool:
        """Whether lines must fit a width: on a terminal, or with COLUMNS set."""
        return self.is_terminal or "COLUMNS" in os.environ


class Working(Status):
    """A line on stderr that says what takes its time, and vanishes; none in a pipe.

    Attributes:
        notes: The console of the line. What it prints meanwhile stands above the line.
    """

    def __init__(self, text: str) -> None:
        self.notes: Terminal = Terminal(stderr=True)
        super().__init__(Text(one_line(text)), console=self.notes)

    def __enter__(self) -> Working:
        super().__enter__()
        return self

    def update(self, status: Any = None, **options: Any) -> None:
        """Say something else: a text, none of which is markup."""
        super().update(Text(one_line(status)), **options)


def write(text: str) -> None:
    """Write a piece of text to stdout at once, as it is but for what steers a terminal."""
    sys.stdout.write(plain(text))
    sys.stdout.flush()


def print_json(record: Any, *, one_a_line: bool = False) -> None:
    """Print a record as one JSON document on stdout.

    Args:
        record: What JSON can hold; of metadata, anything else is written as its text.
        one_a_line: Whether it takes one line (JSON lines).
    """
    indent = None if one_a_line else 2
    sys.stdout.write(json.dumps(record, indent=indent, allow_nan=False, default=str) + "\n")
    sys.stdout.flush()


def print_table(
    console: Terminal, heads: Sequence[str], rows: Iterable[Sequence[str]], *, title: str = ""
) -> None:
    """Print a table of words in the first column and numbers in the others.

    In a pipe without COLUMNS it takes the width that it needs; else cells break at spaces.

    Args:
        console: Where to print.
        heads: One a column.
        rows: Each as long as `heads`.
        title: A line above the table. Default: none.
    """
    table = Table(box=None, pad_edge=False, header_style="bold")
    for i, head in enumerate(heads):
        table.add_column(head, justify="right" if i else "left")
    for row in rows:
        table.add_row(*row)
    if not console.has_width:
        table.width = console.measure(table, options=console.options.update(width=10_000)).maximum
    if title:
        console.say(f"{title}\n", style="bold")
    console.print(table, crop=False)


def shortened(text: str, width: int, *, keep_end: bool = False) -> str:
    """Return a line that takes at most `width` columns, with an ellipsis where it was cut.

    Args:
        text: One line.
        width: Columns of a terminal, >= 1; a wide character takes two.
        keep_end: Whether the end stays instead of the beginning.
    """
    if cell_len(text) <= width:
        return text
    if keep_end:
        return "…" + set_cell_size(text[::-1], width - 1).rstrip()[::-1]
    return set_cell_size(text, width - 1).rstrip() + "…"


def counted(n: int, noun: str) -> str:
    """Return "1 chunk" or "1,234 chunks"."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def source_of(metadata: Mapping[str, Any], document_id: str, width: int) -> str:
    """Return where a chunk comes from in one line: file and number, headings, page.

    Args:
        metadata: The chunk's: "source", "heading" and "page" as `sift index` writes them, or
            what other indexers call them.
        document_id: Stands for the file where the metadata names none. One like "guide.md#3"
            tells a file's chunks apart.
        width: Columns that it takes at most. Where not all fits, the outer headings go first, and
            the file last.
    """
    file = document_of(metadata) or document_of(metadata, "title") or document_id
    if document_id.startswith(f"{file}#"):
        file = document_id
    heading = metadata.get("heading") or ()
    titles = [heading] if isinstance(heading, str) else [str(title) for title in heading]
    if metadata.get("page") is not None:
        titles.append(f"p. {metadata['page']}")
    parts = [one_line(part) for part in (file, *titles)]
    whole = " > ".join(parts)
    if len(parts) > 2 and cell_len(whole) > width:
        whole = " > ".join([parts[0], "…", parts[-1]])
    if len(parts) > 1 and cell_len(parts[0]) + LEAST_TITLE <= width:
        return shortened(whole, width)
    return shortened(parts[0], width, keep_end=True)


def sparkline(variances: Sequence[float]) -> str:
    """Return a bar a variance; a full one is as high as the first, which is the highest.

    Args:
        variances: Not empty, none negative.
    """
    first = variances[0] or 1.0
    levels = [min(max(int(v / first * len(_LEVELS)), 0), len(_LEVELS) - 1) for v in variances]
    return "".join(_LEVELS[level] for level in levels)


def print_chunks(
    console: Terminal,
    chunks: CandidatePool,
    *,
    counts: Sequence[int] = (),
    n_lines: int = 2,
    picks: Sequence[Pick] = (),
    repeats: Sequence[Repeat | None],
) -> None:
    """Print the chunks in order of choice: a line about each, its text, and why it was chosen.

    Args:
        console: Where.
        chunks: The chunks.
        counts: How often each was taken; once where left out.
        n_lines: Lines of text of each at most.
        picks: Why each was chosen. Its text is printed from where it has the words of that.
            Default: texts are printed from their beginning, without words.
        repeats: The earlier chunk that each repeats, or None, which is marked.
    """
    for i, repeat in enumerate(repeats):
        mark = "" if repeat is None else repeat.mark
        times = f" ×{counts[i]}" if counts and counts[i] > 1 else ""
        head = f"{i + 1:>3} {mark:<4}{chunks.similarities[i]:5.2f}  "
        room = max(console.width - len(head) - len(times), 8)
        source = source_of(chunks.metadata[i], chunks.document_ids[i], room)
        console.print(Text.assemble((head, "dim"), (source + times, "bold")), soft_wrap=True)
        words = (*picks[i].shares, *picks[i].reached_by) if picks else ()
        for text_line in _text_lines(console, chunks.texts[i], n_lines, words):
            console.print(f"    {text_line}", soft_wrap=True)
        if picks and (reason := one_line(picks[i].reason)):
            room = max(console.width - 4, 8)
            console.print(f"    {shortened(reason, room)}", style="dim", soft_wrap=True)


def _text_lines(console: Terminal, text: str, n_lines: int, words: Sequence[str] = ()) -> list[str]:
    """Return a few lines of a text without its headings: its beginning, or where it has words."""
    if not n_lines:
        return []
    width = max(console.width - 4, 8)
    body = _HEADING_LINES.sub("", text) or text
    body = _from_words(body, words, (n_lines - 1) * width)
    lines = [line.plain.rstrip() for line in Text(one_line(body)).wrap(console, width)]
    if len(lines) <= n_lines:
        return lines
    return [*lines[: n_lines - 1], shortened(" ".join(lines[n_lines - 1 : n_lines + 1]), width)]


def _from_words(text: str, words: Sequence[str], length: int) -> str:
    """Return a text from the sentence, or else the line, from which on it has most of some words.

    Args:
        text: Any.
        words: Those that count most first. A longer word counts with any ending.
        length: Characters from there in which the words are sought. A shorter text is not cut.
    """
    if len(text) <= length or not words:
        return text
    found = [
        np.array([match.start() for match in re.finditer(_pattern(word), text, re.IGNORECASE)])
        for word in words
    ]
    starts = {match.end(): bool(match[1]) for match in _STARTS.finditer(text)} | {0: True}

    def merit(start: int) -> tuple[int, bool, int]:
        there = [bool(((at >= start) & (at < start + length)).any()) for at in found]
        return (
            sum(2 ** (len(words) - i) for i, has in enumerate(there) if has),
            starts[start],
            -start,
        )

    best = max(starts, key=merit)
    return f"… {text[best:]}" if best else text


def _pattern(word: str) -> str:
    return rf"\b{re.escape(word)}" + ("" if len(word) >= LEAST_STEM else r"\b")
