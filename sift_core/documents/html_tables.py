"""Tables of a page as Markdown can write them: no table in another, all rows as long."""

from __future__ import annotations

import copy
from typing import Any

_MAX_ADDED = 10_000  # columns in one table, so that few bytes do not become gigabytes
_MAX_REPEATED = 200  # characters
_PARTS = ["thead", "tbody", "tfoot", "tr", "td", "th"]
_CELLS = ["td", "th"]


def level_tables(page: Any) -> None:
    r"""Make the tables of a page fit Markdown.

    A table around others only sets them in their places, so its cells become blocks. A cell that
    spans rows stands in each of them, up to 200 characters of it. "|" in a cell becomes "\|".
    """
    outer = {id(table) for inner in page.find_all("table") for table in inner.find_parents("table")}
    parts = [part for part in page.find_all(_PARTS) if id(part.find_parent("table")) in outer]
    for part in [*parts, *(table for table in page.find_all("table") if id(table) in outer)]:
        part.name = "div"
    for table in page.find_all("table"):
        _repeat_over_rows(table)
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


def _repeated(cell: Any) -> Any:
    """Return a cell for a row below; it is empty where the text is long."""
    copied = copy.copy(cell)
    if len(cell.get_text()) > _MAX_REPEATED:
        copied.clear()
    return copied


def _span(cell: Any, name: str) -> int:
    """Return over how many rows or columns a cell reaches."""
    value = cell.get(name, "")
    return max(1, min(1000, int(value))) if value.isascii() and value.isdigit() else 1
