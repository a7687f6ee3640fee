"""A table for a terminal or a Markdown file, with the numbers behind its cells."""

from __future__ import annotations

import math
import textwrap
import unicodedata
from dataclasses import dataclass, replace

from sift_core.evaluation.statistics import Estimate

MISSING = "–"
_NOTE_WIDTH = 100


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One cell.

    Args:
        text: What is shown, on one line.
        is_bold: Whether it stands out.
        value: The number or word behind it; None where nothing was measured.
        standard_error: Of `value`; None where it has none.
        low: Lower end of its confidence interval; None where it has none.
        high: Upper end.
    """

    text: str
    is_bold: bool = False
    value: float | str | None = None
    standard_error: float | None = None
    low: float | None = None
    high: float | None = None


def word(text: str) -> Cell:
    """Return a cell with a word of anybody's: on one line, without control characters."""
    plain = "".join(letter for letter in " ".join(text.split()) if letter.isprintable())
    return Cell(text=plain, value=text)


def count(n: int) -> Cell:
    """Return a cell with a whole number."""
    return Cell(text=f"{n:,}", value=n)


def missing() -> Cell:
    """Return the cell of something that nobody measured."""
    return Cell(text=MISSING)


def number(value: float, digits: int = 3) -> Cell:
    """Return a cell with a number alone, or a dash where it is NaN."""
    return missing() if math.isnan(value) else Cell(text=f"{value:.{digits}f}", value=value)


def with_error(estimate: Estimate, *, is_bold: bool = False, digits: int = 1) -> Cell:
    """Return a cell "73.5 (0.6)": a mean and its standard error."""
    error = estimate.standard_error
    shown = MISSING if math.isnan(error) else f"{error:.{digits}f}"
    return _cell(estimate, f"{estimate.value:.{digits}f} ({shown})", is_bold=is_bold)


def with_interval(estimate: Estimate, *, is_bold: bool = False, digits: int = 1) -> Cell:
    """Return a cell "48.1 [41.0, 55.2]", or a dash where the value is NaN."""
    if math.isnan(estimate.value):
        return missing()
    numbers = [f"{one:.{digits}f}" for one in (estimate.value, estimate.low, estimate.high)]
    cell = _cell(estimate, _bracketed(estimate, numbers), is_bold=is_bold)
    return replace(cell, standard_error=None)


def difference(estimate: Estimate, *, digits: int = 1) -> Cell:
    """Return a cell "-4.8 [-5.4, -4.1]": a difference and its confidence interval."""
    # + 0.0 gives what rounds to 0 the sign +
    numbers = [
        f"{round(one, digits) + 0.0:+.{digits}f}"
        for one in (estimate.value, estimate.low, estimate.high)
    ]
    return _cell(estimate, _bracketed(estimate, numbers))


@dataclass(frozen=True, kw_only=True)
class Table:
    """A title, column heads, rows of cells and a note that says how to read them.

    Args:
        title: One line.
        heads: One a column, all different.
        rows: Each as long as `heads`. The first column is the row's name.
        note: Below the table; may be empty.
    """

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""

    def as_text(self) -> str:
        """Return lines for a terminal; an asterisk stands for bold."""
        columns = [self._aligned(position) for position in range(len(self.heads))]
        lines = ["  ".join(cells).rstrip() for cells in zip(*columns, strict=True)]
        lines.insert(1, "-" * max(map(_width, lines)))
        note = ["", *textwrap.wrap(self.note, _NOTE_WIDTH)] if self.note else []
        return "\n".join([self.title, "", *lines, *note]) + "\n"

    def as_markdown(self) -> str:
        """Return a Markdown table with the title above and the note below."""
        rows = [
            [f"**{cell.text}**" if cell.is_bold else cell.text for cell in row] for row in self.rows
        ]
        rule = [":--", *["--:"] * (len(self.heads) - 1)]
        lines = [_markdown_row(list(texts)) for texts in (self.heads, rule, *rows)]
        note = ["", self.note] if self.note else []
        return "\n".join([f"**{_escaped(self.title)}**", "", *lines, *note]) + "\n"

    def as_records(self) -> list[dict[str, float | str | None]]:
        """Return one mapping a row, for JSON: numbers unrounded, None where there is none.

        A column "NN" has, where its cells have them, "NN standard error", "NN low" and
        "NN high" beside it.
        """
        return [
            {
                name: value
                for head, cell in zip(self.heads, row, strict=True)
                for name, value in _fields(head, cell).items()
            }
            for row in self.rows
        ]

    def _aligned(self, position: int) -> list[str]:
        """Return the head and cells of a column, all of one width."""
        cells = [row[position] for row in self.rows]
        mark = " " if any(cell.is_bold for cell in cells) else ""
        texts = [self.heads[position] + mark]
        texts += [cell.text + ("*" if cell.is_bold else mark) for cell in cells]
        width = max(map(_width, texts))
        padded = [(text, " " * (width - _width(text))) for text in texts]
        return [text + pad if position == 0 else pad + text for text, pad in padded]


def _cell(of: Estimate, text: str, *, is_bold: bool = False) -> Cell:
    return Cell(
        text=text,
        is_bold=is_bold,
        value=of.value,
        standard_error=_number(of.standard_error),
        low=_number(of.low),
        high=_number(of.high),
    )


def _bracketed(of: Estimate, numbers: list[str]) -> str:
    value, low, high = numbers
    return f"{value} [{MISSING}]" if math.isnan(of.low) else f"{value} [{low}, {high}]"


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


def _fields(head: str, cell: Cell) -> dict[str, float | str | None]:
    fields: dict[str, float | str | None] = {head: cell.value}
    for name in ("standard_error", "low", "high"):
        extra = getattr(cell, name)
        if extra is not None:
            fields[f"{head} {name.replace('_', ' ')}"] = extra
    return fields


def _width(text: str) -> int:
    """Return columns on a terminal: the hat of σ̂ has none of its own."""
    return sum(not unicodedata.combining(letter) for letter in text)


def _markdown_row(texts: list[str]) -> str:
    return "| " + " | ".join(_escaped(text) for text in texts) + " |"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")
