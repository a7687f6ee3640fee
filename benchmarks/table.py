"""A table for a terminal or a Markdown file, with the numbers behind its cells."""

from __future__ import annotations

import math
import textwrap
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from sift_core.evaluation.statistics import Estimate

MISSING = "–"
_NOTE_WIDTH = 100


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One cell.

    Args:
        text: What is shown, on one line.
        is_bold: Whether it stands out.
        value: What is behind it; None where nothing was measured.
    """

    text: str
    is_bold: bool = False
    value: Estimate | float | str | None = None


def word(text: str) -> Cell:
    """Return a cell with a word of anybody's: on one line, without control characters."""
    plain = "".join(letter for letter in " ".join(text.split()) if letter.isprintable())
    return Cell(text=plain, value=text)


def missing() -> Cell:
    """Return the cell of something that nobody measured."""
    return Cell(text=MISSING)


def number(value: float, digits: int = 3) -> Cell:
    """Return a cell with a number alone, or a dash where it is NaN."""
    return missing() if math.isnan(value) else Cell(text=f"{value:.{digits}f}", value=value)


def with_interval(
    estimate: Estimate, *, is_bold: bool = False, digits: int = 1, sign: str = ""
) -> Cell:
    """Return a cell "48.1 [41.0, 55.2]", or a dash where the value is NaN.

    `sign` "+" is written before what is not negative.
    """
    if math.isnan(estimate.value):
        return missing()
    return Cell(text=estimate.text(digits, sign), is_bold=is_bold, value=estimate)


def difference(estimate: Estimate, *, digits: int = 1) -> Cell:
    """Return a cell "-4.8 [-5.4, -4.1]": a difference and its confidence interval."""
    return with_interval(estimate, digits=digits, sign="+")


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
        lines = [_markdown_row(texts) for texts in (self.heads, rule, *rows)]
        note = ["", self.note] if self.note else []
        return "\n".join([f"**{_escaped(self.title)}**", "", *lines, *note]) + "\n"

    def _aligned(self, position: int) -> list[str]:
        """Return the head and cells of a column, all of one width."""
        cells = [row[position] for row in self.rows]
        mark = " " if any(cell.is_bold for cell in cells) else ""
        texts = [self.heads[position] + mark]
        texts += [cell.text + ("*" if cell.is_bold else mark) for cell in cells]
        width = max(map(_width, texts))
        padded = [(text, " " * (width - _width(text))) for text in texts]
        return [text + pad if position == 0 else pad + text for text, pad in padded]


def _width(text: str) -> int:
    """Return columns on a terminal: the hat of σ̂ has none of its own."""
    return sum(not unicodedata.combining(letter) for letter in text)


def _markdown_row(texts: Sequence[str]) -> str:
    return "| " + " | ".join(_escaped(text) for text in texts) + " |"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")
