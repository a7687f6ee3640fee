"""A table for a terminal or a Markdown file, with the numbers behind its cells."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markdown import Markdown

from sift_core.evaluation.statistics import Estimate

MISSING = "–"


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


def difference(estimate: Estimate, *, digits: int = 1) -> Cell:
    """Return a cell "-4.8 [-5.4, -4.1]": a difference and its interval; a dash where it is NaN."""
    if math.isnan(estimate.value):
        return missing()
    return Cell(text=estimate.text(digits, "+"), value=estimate)


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

    def show(self) -> None:
        """Print the table: rendered on a terminal, as Markdown elsewhere."""
        console, text = Console(), self.as_markdown()
        if console.is_terminal:
            console.print(Markdown(text))
        else:
            print(f"\n{text}")

    def as_markdown(self) -> str:
        """Return a Markdown table with the title above and the note below."""
        rows = [
            [f"**{cell.text}**" if cell.is_bold else cell.text for cell in row] for row in self.rows
        ]
        rule = [":--", *["--:"] * (len(self.heads) - 1)]
        lines = [_markdown_row(texts) for texts in (self.heads, rule, *rows)]
        note = ["", self.note] if self.note else []
        return "\n".join([f"**{_escaped(self.title)}**", "", *lines, *note]) + "\n"


def show_tables(tables: Iterable[Table], path: Path | None = None) -> None:
    """Print tables, and write them as Markdown to a file if there is a path."""
    shown = list(tables)
    for table in shown:
        table.show()
    if path is not None:
        path.write_text("\n".join(table.as_markdown() for table in shown), encoding="utf-8")


def _markdown_row(texts: Sequence[str]) -> str:
    return "| " + " | ".join(_escaped(text) for text in texts) + " |"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")
