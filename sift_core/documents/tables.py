"""Long tables of Markdown: every chunk of one begins with its header."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sift_core.documents.headings import Span, fences

# Two lines of a header, then rows, with or without marks at both ends.
_TABLE = re.compile(
    r"^[^|\n]*\|[^\n]*\n(?P<line>[ \t>|:]*-[-:| \t\r]*\n)(?:[^|\n]*\|[^\n]*(?:\n|\Z))+",
    re.MULTILINE,
)


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table that has rows below its header.

    Args:
        start: Offset of its header.
        body: Offset of its first row.
        end: Offset behind its last row.
    """

    start: int
    body: int
    end: int


def markdown_tables(text: str) -> list[Table]:
    """Return the tables of a Markdown text, in order. Those in blocks of code are none."""
    code = list(fences(text)) if "|" in text else []
    found = []
    for match in _TABLE.finditer(text):
        i = bisect_right(code, (match.start(), len(text)))
        is_code = i > 0 and match.start() < code[i - 1][1]
        if "|" in match["line"] and not is_code:
            found.append(Table(start=match.start(), body=match.end("line"), end=match.end()))
    return found


def header_at(text: str, tables: Sequence[Table], offset: int) -> str:
    """Return the header of the table in whose rows an offset lies; empty without any."""
    i = bisect_right(tables, offset, key=lambda table: table.body)
    if i and offset < tables[i - 1].end:
        return text[tables[i - 1].start : tables[i - 1].body]
    return ""


def leave_room_for_header(
    text: str,
    spans: Sequence[Span],
    table: Table,
    *,
    capacity: int,
    count: Callable[[str], int],
    split: Callable[[Span, int], list[Span]],
) -> list[Span]:
    """Return spans, of which those that begin in a table's rows fit together with its header.

    Args:
        text: The text.
        spans: Where it is cut.
        table: One table of it.
        capacity: The largest chunk, in what `count` counts.
        count: Size of a text.
        split: Cuts a part of the text at line ends, to at most a size.
    """
    first = bisect_right(spans, table.start, key=lambda span: span[0]) - 1
    last = bisect_right(spans, table.end - 1, key=lambda span: span[0]) - 1
    header = text[table.start : table.body]
    if first == last:
        return list(spans)
    start, cut = spans[first]
    place = text.rfind("\n", table.body, cut) + 1  # where the row starts that was cut
    parts = [(start, place)]
    if not place:  # the first chunk has no row
        place = table.body
        parts = [(start, table.start)] if text[start : table.start].strip() else []
    rows = split((place, table.end), capacity - count(header))
    if place == table.body:
        rows[0] = (table.start, rows[0][1])
    behind = (table.end, spans[last][1])
    joined = (rows[-1][0], behind[1])
    if count(header_at(text, [table], joined[0]) + text[slice(*joined)]) <= capacity:
        rows[-1] = joined
    elif text[slice(*behind)].strip():
        rows.append(behind)
    return [*spans[:first], *parts, *rows, *spans[last + 1 :]]


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    r"""Return a table of Markdown, of which the first row is the header.

    Args:
        rows: The cells' texts. Whitespace in one becomes a space, and "|" becomes "\|". A row that
            is shorter than the longest is filled up with empty cells.
    """
    width = max(map(len, rows))
    lines = [
        f"| {' | '.join(_cell(row[i] if i < len(row) else '') for i in range(width))} |"
        for row in rows
    ]
    return "\n".join([lines[0], f"|{' --- |' * width}", *lines[1:]])


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
