"""Long tables of Markdown: every chunk of one begins with its header."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
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


_NUMBER = re.compile(r"\W*\d")
_MAX_HEADER = 5_000  # characters of a header that is joined from several rows


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A cell of a table, at its first column.

    Args:
        text: What it shows.
        n_columns: How many columns it is merged over. Default: 1.
        is_number: Whether it is a number, which names nothing. Default: False.
        is_repeated: Whether it is merged over rows and began in one above. Default: False.
    """

    text: str
    n_columns: int = 1
    is_number: bool = False
    is_repeated: bool = False


def text_cell(text: str, *, n_columns: int = 1, is_repeated: bool = False) -> Cell:
    """Return a cell of which only the text is known; one that begins with a digit is a number."""
    is_number = _NUMBER.match(text) is not None
    return Cell(text=text, n_columns=n_columns, is_number=is_number, is_repeated=is_repeated)


def table_with_header(rows: Sequence[Mapping[int, Cell]], columns: Sequence[int]) -> str:
    """Return a table of Markdown whose header has one row, joined from those that are its header.

    Args:
        rows: The cells of each row by their first columns.
        columns: Which columns there are, in order.
    """
    length = header_length(rows)
    body = [[row[one].text if one in row else "" for one in columns] for row in rows[length:]]
    return markdown_table([joined_header(rows[:length], columns), *body])


def header_length(rows: Sequence[Mapping[int, Cell]], *, marked: int = 1) -> int:
    """Return how many of the first rows are the header of a table.

    A row belongs to the header if the one above has a cell that is merged over columns, and the row
    names those columns: nothing stands below a filled cell of one column. A row of numbers does so
    if a cell that is merged over rows reaches into it. One row at least is left for the body. A
    header that would be longer than 5,000 characters has one row, since each chunk repeats it.

    Args:
        rows: The cells of each row by their first columns.
        marked: How many rows the document marks as the header. Default: 1.
    """
    length = max(1, marked)
    while length < len(rows) - 1 and _names_columns(rows[length], rows[length - 1]):
        length += 1
    n_characters = sum(
        len(cell.text) * cell.n_columns for row in rows[:length] for cell in row.values()
    )
    return length if n_characters <= _MAX_HEADER else 1


def _names_columns(row: Mapping[int, Cell], above: Mapping[int, Cell]) -> bool:
    behind = max(row, default=0) + 1
    filled = {
        column + i: cell
        for column, cell in above.items()
        if cell.text
        for i in range(min(cell.n_columns, behind - column))
    }
    own = {column: cell for column, cell in row.items() if cell.text and not cell.is_repeated}
    is_named = len(own) < sum(bool(cell.text) for cell in row.values()) or not any(
        cell.is_number for cell in own.values()
    )
    return (
        any(cell.n_columns > 1 and not cell.is_repeated for cell in above.values())
        and is_named
        and bool(own)
        and all(column not in filled or filled[column].n_columns > 1 for column in own)
    )


def joined_header(rows: Sequence[Mapping[int, Cell]], columns: Sequence[int]) -> list[str]:
    """Return the rows of a header as one: "Q1 Jan" below "Q1" merged over two columns.

    Args:
        rows: The cells of each row by their first columns.
        columns: Which columns there are, in order. In a header of one row, a cell that is merged
            over columns stands in the first of them alone.
    """
    is_joined, behind = len(rows) > 1, columns[-1] + 1
    spread = [
        {
            column + i: cell.text
            for column, cell in row.items()
            for i in range(min(cell.n_columns, behind - column) if is_joined else 1)
        }
        for row in rows
    ]
    return [
        " ".join(dict.fromkeys(filter(None, (row.get(column, "") for row in spread))))
        for column in columns
    ]


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
