"""Workbooks as Markdown, by openpyxl: a heading and tables for each sheet."""

from __future__ import annotations

import re
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date, datetime, time, timedelta
from typing import Any

from sift_core.documents.finding import SkipError, broken
from sift_core.documents.office.number_formats import as_shown
from sift_core.documents.office.package import (
    each_element,
    etree,
    no_text,
    open_package,
    parse_xml,
    rewritten,
    title_of,
)
from sift_core.documents.scripts import in_one_line
from sift_core.documents.tables import Cell, table_with_header
from sift_core.errors import MissingDependencyError

try:
    import openpyxl
    from openpyxl.utils import range_boundaries
except ImportError as error:
    raise MissingDependencyError("openpyxl", extra="office") from error

_MAIN = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_SIDES = {"superscript": 1, "subscript": -1}
_ESCAPED = re.compile("_x(?:00[01][0-9A-F]|FFF[EF])_", re.IGNORECASE)  # what XML cannot hold


_Row = dict[int, Cell]  # by column
_NUMBERS = (int, float, date, time, timedelta)


def markdown_of_xlsx(content: bytes) -> str:
    """Return the text of a workbook as Markdown: a heading and tables for each sheet.

    The first row of a table is its header, joined with the next where its cells are merged over
    columns. An empty row ends a table, unless the next one has
    numbers in its first row and so no header of its own. A row with one filled cell above a header
    is a line of text. Numbers stand as they are shown, dates as ISO 8601, formulas as their last
    result. A cell that is merged over several rows has its value in each of them. Left out are
    hidden sheets, comments and charts. Hidden rows and columns are read.

    Args:
        content: The file.

    Raises:
        SkipError: If it is encrypted, broken, no workbook, or has no text.
    """
    package = open_package(content, ".xlsx")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what openpyxl cannot write again is not written
            book = openpyxl.load_workbook(
                rewritten(package, _with_scripts_apart),
                read_only=True,
                data_only=True,
                keep_links=False,
            )
            parts = [part for sheet in book.worksheets for part in _sheet(package, sheet)]
    except SkipError:
        raise
    except Exception as error:  # openpyxl raises whatever a broken file leads to
        raise broken(error) from error
    if not parts:
        raise no_text(package)
    title = title_of(package)
    return "\n\n".join([*([f"# {title}"] if title else []), *parts])


def _sheet(package: zipfile.ZipFile, sheet: Any) -> Iterator[str]:
    """Yield the parts of a sheet's text: its name, and tables and lines of text."""
    if sheet.sheet_state != "visible":
        return
    sheet.reset_dimensions()  # those that the file states may be wrong, and endless
    is_named = False
    for block in _blocks(_rows(sheet, _merged_ranges(package, sheet))):
        if not is_named:
            is_named = True
            yield f"## {sheet.title}"
        yield from _texts(block)


def _rows(sheet: Any, merged: Sequence[tuple[int, int, int, int]]) -> Iterator[_Row]:
    """Yield the rows of a sheet, by column; empty ones as well, but never two in a row."""
    below: dict[int, tuple[int, Cell]] = {}  # by column: where a merged cell ends, and what it is
    first = {(row, column): (last - column + 1, end) for column, row, last, end in merged}
    was_empty = True
    for number, cells in enumerate(sheet.iter_rows(), start=1):
        row = {
            cell.column: Cell(
                text=text,
                n_columns=first.get((number, cell.column), (1, 0))[0],
                is_number=isinstance(cell.value, _NUMBERS),
            )
            for cell in cells
            if cell.value is not None and (text := _text(cell))
        }
        if row:
            kept = {column: cell for column, (last, cell) in below.items() if number <= last}
            below |= {
                column: (first[number, column][1], replace(cell, is_repeated=True))
                for column, cell in row.items()
                if (number, column) in first
            }
            row = kept | row
        if row or not was_empty:
            yield row
        was_empty = not row


def _blocks(rows: Iterator[_Row]) -> Iterator[list[_Row]]:
    """Yield the rows of each table; a table whose first row has numbers goes on with the last."""
    block: list[_Row] = []
    is_open = False
    for row in rows:
        if row and block and not is_open and not any(cell.is_number for cell in row.values()):
            yield block
            block = []
        block += [row] if row else []
        is_open = bool(row)
    if block:
        yield block


def _texts(block: list[_Row]) -> Iterator[str]:
    """Yield the lines above a table, and the table."""
    columns = sorted({column for row in block for column in row})
    first = 0
    while len(columns) > 1 and first < len(block) and len(block[first]) == 1:
        yield next(iter(block[first].values())).text
        first += 1
    rows = block[first:]
    if rows and len(columns) == 1:
        yield "\n\n".join(cell.text for row in rows for cell in row.values())
    elif rows:
        yield table_with_header(rows, columns)


def _text(cell: Any) -> str:
    """Return what a cell shows."""
    value = cell.value
    match value:
        case bool():
            return str(value).upper()
        case int() | float():
            return as_shown(value, cell.number_format)
        case datetime() if value.time() == time():
            return value.date().isoformat()
        case datetime():
            return value.isoformat(sep=" ", timespec="auto" if value.second else "minutes")
        case timedelta():
            return _duration(value)
        case date() | time():
            return str(value)
        case _:
            return _ESCAPED.sub(" ", str(value)).strip()


def _duration(value: timedelta) -> str:
    """Return a duration in hours, minutes and seconds: "30:05:00"."""
    minutes, seconds = divmod(round(abs(value.total_seconds())), 60)
    sign = "-" if value < timedelta() else ""
    return f"{sign}{minutes // 60}:{minutes % 60:02}:{seconds:02}"


def _merged_ranges(package: zipfile.ZipFile, sheet: Any) -> list[tuple[int, int, int, int]]:
    """Return first column, first row, last column and last row of what is merged."""
    found = []

    def take(name: str, attributes: dict[str, str]) -> None:
        if name == "mergeCell":
            found.append(range_boundaries(attributes["ref"]))

    each_element(package, sheet._worksheet_path, take)
    return found


def _with_scripts_apart(name: str, part: bytes) -> bytes:
    """Return a part in which superscripts and subscripts of rich text are written in the text."""
    if b"vertAlign" not in part or not name.startswith(("xl/sharedStrings", "xl/worksheets/")):
        return part
    root = parse_xml(part)
    for string in root.iter(f"{_MAIN}si", f"{_MAIN}is"):
        runs = string.findall(f"{_MAIN}r")
        text = in_one_line((run.findtext(f"{_MAIN}t") or "", _side(run)) for run in runs)
        if runs:
            string[:] = []
            etree.SubElement(string, f"{_MAIN}t").text = text
    return bytes(etree.tostring(root, encoding="utf-8", xml_declaration=True))


def _side(run: Any) -> int:
    align = run.find(f"{_MAIN}rPr/{_MAIN}vertAlign")
    return 0 if align is None else _SIDES.get(align.get("val"), 0)
