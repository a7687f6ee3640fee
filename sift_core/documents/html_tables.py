"""Tables of a page as Markdown can write them: no table in another, all rows as long."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from sift_core.documents.tables import Cell, header_length, joined_header, text_cell

_MAX_ADDED = 10_000  # columns in one table, so that few bytes do not become gigabytes
_MAX_REPEATED = 200  # characters
_MAX_HEADER = 20  # rows
_MAX_WIDTH = 200  # columns of a table of which the header is joined
_REPEATED = "data-repeated"  # marks a cell that began in a row above
_PARTS = ["thead", "tbody", "tfoot", "tr", "td", "th"]
_CELLS = ["td", "th"]
_LINES = {"br", "p", "div", "li"}


def level_tables(page: Any) -> None:
    r"""Make the tables of a page fit Markdown.

    A table around others only sets them in their places, so its cells become blocks. A cell that
    spans rows stands in each of them, up to 200 characters of it. A first row of one cell over all
    columns becomes a line above the table, and a header of several rows has one: "Q1 Jan". "|" in a
    cell becomes "\|".
    """
    outer = {id(table) for inner in page.find_all("table") for table in inner.find_parents("table")}
    parts = [part for part in page.find_all(_PARTS) if id(part.find_parent("table")) in outer]
    for part in [*parts, *(table for table in page.find_all("table") if id(table) in outer)]:
        part.name = "div"
    for table in page.find_all("table"):
        _repeat_over_rows(table)
        _lift_titles(table)
        _join_header(table)
        for text in table.find_all(string=lambda text: "|" in text):
            if text.find_parent(_CELLS):
                text.replace_with(text.replace("|", "\\|"))


def _repeat_over_rows(table: Any) -> None:
    """Put a cell that spans rows into each of them."""
    if not table.find(_CELLS, rowspan=True):
        return
    open_cells: dict[int, tuple[int, Any]] = {}  # by column: rows left, and the cell
    n_added = 0
    for row in table.find_all("tr"):
        column, cells = 0, iter(row.find_all(_CELLS, recursive=False))
        cell = next(cells, None)
        while cell is not None or any(other >= column for other in open_cells):
            n_rows, above = open_cells.pop(column, (0, None))
            if above is not None and n_added < _MAX_ADDED:
                added = _repeated(above)
                n_added += _span(added, "colspan")
                if cell is None:
                    row.append(added)
                else:
                    cell.insert_before(added)
            elif cell is not None:
                above, n_rows = cell, _span(cell, "rowspan")
                cell = next(cells, None)
            width = 1 if above is None else _span(above, "colspan")
            if n_rows > 1:
                open_cells[column] = (n_rows - 1, above)
            column += width


def _lift_titles(table: Any) -> None:
    """Put first rows of one cell over several columns above a table, where they are lines."""
    rows = table.find_all("tr")
    while len(rows) > 1:
        row = rows.pop(0)
        cells = row.find_all(_CELLS, recursive=False)
        if len(cells) != 1 or _span(cells[0], "colspan") == 1:
            return
        line = cells[0].extract()
        line.name = "div"
        table.insert_before(line)
        row.decompose()


def _join_header(table: Any) -> None:
    """Write the rows of a header as one, without which only the first would be the header."""
    rows = table.find_all("tr", limit=_MAX_HEADER)
    cells = [row.find_all(_CELLS, recursive=False) for row in rows]
    marked = len(table.thead.find_all("tr") if table.thead else [*takewhile(_is_header, rows)])
    grid = [_by_column(row) for row in cells]
    length = header_length(grid, marked=marked if marked < len(rows) else 1)
    width = max((_width(row) for row in grid), default=0)
    if length < 2 or width > _MAX_WIDTH:
        return
    blank = copy.copy(next(cell for row in cells for cell in row))
    blank.clear()
    blank.attrs, blank.name = {}, "th"
    rows[0].clear()
    for text in joined_header(grid[:length], range(width)):
        joined = copy.copy(blank)
        joined.string = text
        rows[0].append(joined)
    for row in rows[1:length]:
        row.decompose()


def _width(row: dict[int, Cell]) -> int:
    return max((column + cell.n_columns for column, cell in row.items()), default=0)


def _is_header(row: Any) -> bool:
    return row.find("th") is not None and row.find("td") is None


def _by_column(cells: Sequence[Any]) -> dict[int, Cell]:
    """Return the cells of a row by their first columns."""
    found, column = {}, 0
    for cell in cells:
        n_columns, is_repeated = _span(cell, "colspan"), cell.has_attr(_REPEATED)
        found[column] = text_cell(_line(cell), n_columns=n_columns, is_repeated=is_repeated)
        column += n_columns
    return found


def _line(cell: Any) -> str:
    """Return the text of a cell in one line, in which its paragraphs stay apart."""
    parts = (
        (" " if one.name in _LINES else "") if one.name else str(one) for one in cell.descendants
    )
    return " ".join("".join(parts).split())


def _repeated(cell: Any) -> Any:
    """Return a cell for a row below; it is empty where the text is long."""
    copied = copy.copy(cell)
    copied[_REPEATED] = ""
    if len(cell.get_text()) > _MAX_REPEATED:
        copied.clear()
    return copied


def _span(cell: Any, name: str) -> int:
    """Return over how many rows or columns a cell reaches."""
    value = cell.get(name, "")
    return max(1, min(1000, int(value))) if value.isascii() and value.isdigit() else 1
