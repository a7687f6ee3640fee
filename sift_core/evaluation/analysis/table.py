"""A table that a terminal, a Markdown file or a web page can show, with its numbers beside."""

from __future__ import annotations

import html
import math
import textwrap
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sift_core.errors import InvalidInputError
from sift_core.evaluation.analysis.statistics import Correlation
from sift_core.evaluation.statistics import Estimate

MISSING = "–"


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
    return Cell(text=_plain(text), value=text)


def count(n: int) -> Cell:
    """Return a cell with a whole number."""
    return Cell(text=f"{n:,}", value=n)


def missing() -> Cell:
    """Return the cell of something that nobody measured."""
    return Cell(text=MISSING)


def number(value: float | None, digits: int = 3) -> Cell:
    """Return a cell with a number alone, or a dash where it is None or NaN."""
    value = _number(value)
    return missing() if value is None else Cell(text=f"{value:.{digits}f}", value=value)


def with_error(estimate: Estimate, *, is_bold: bool = False, digits: int = 1) -> Cell:
    """Return a cell "73.5 (0.6)": a mean and its standard error."""
    error = _shown(estimate.standard_error, f".{digits}f")
    text = f"{estimate.value:.{digits}f} ({error})"
    return _cell(estimate, text, is_bold=is_bold, standard_error=estimate.standard_error)


def difference(estimate: Estimate, *, digits: int = 1) -> Cell:
    """Return a cell "-4.8 [-5.4, -4.1]": a difference and its confidence interval."""
    text = _with_interval(estimate, lambda value: _signed(value, digits))
    return _cell(estimate, text, standard_error=estimate.standard_error)


def coefficient(correlation: Correlation) -> Cell:
    """Return a cell "0.48 [0.41, 0.55]": a correlation and its confidence interval."""
    if math.isnan(correlation.value):
        return missing()
    return _cell(correlation, _with_interval(correlation, lambda value: f"{value:.2f}"))


@dataclass(frozen=True, kw_only=True)
class Table:
    """A title, column heads, rows of cells and a note that says how to read them.

    Args:
        title: One line.
        heads: One a column, all different.
        rows: Each as long as `heads`. The first column is the row's name.
        note: Below the table; may be empty.

    Raises:
        InvalidInputError: If a row has another length, or two heads are the same.
    """

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""

    def __post_init__(self) -> None:
        if len(set(self.heads)) < len(self.heads):
            raise InvalidInputError(f"`heads` must differ, got {list(self.heads)}")
        for row in self.rows:
            if len(row) != len(self.heads):
                raise InvalidInputError(
                    f"a row must have {len(self.heads)} cells like `heads`, got {len(row)}"
                )

    def as_text(self, *, max_width: int = 110) -> str:
        """Return lines for a terminal; an asterisk stands for bold.

        Args:
            max_width: Columns that would go beyond are put below, after the first column
                again. A first and one other column are kept together however wide they are.
        """
        columns = [self._aligned(position) for position in range(len(self.heads))]
        blocks: list[list[list[str]]] = []
        for column in columns[1:]:
            widths = sum(_width(other[0]) + 2 for other in blocks[-1]) if blocks else max_width
            if not blocks or widths + _width(column[0]) > max_width:
                blocks.append([columns[0]])
            blocks[-1].append(column)
        lines = [self.title]
        for block in blocks or [columns]:
            lines.append("")
            lines += ["  ".join(cells).rstrip() for cells in zip(*block, strict=True)]
            widest = max(_width(line) for line in lines[-len(self.rows) - 1 :])
            lines.insert(len(lines) - len(self.rows), "-" * widest)
        if self.note:
            lines += ["", *textwrap.wrap(self.note, max_width)]
        return "\n".join(lines) + "\n"

    def as_markdown(self) -> str:
        """Return a Markdown table with the title above and the note below."""
        lines = [f"**{_pipes(self.title)}**", "", _markdown_row(self.heads)]
        lines.append(_markdown_row([":--", *["--:"] * (len(self.heads) - 1)]))
        for row in self.rows:
            lines.append(
                _markdown_row([f"**{cell.text}**" if cell.is_bold else cell.text for cell in row])
            )
        if self.note:
            lines += ["", self.note]
        return "\n".join(lines) + "\n"

    def as_html(self) -> str:
        """Return one `<table>` element with the title as caption, and the note after it."""
        heads = "".join(f'<th scope="col">{html.escape(head)}</th>' for head in self.heads)
        body = "\n".join(f"<tr>{_html_row(row)}</tr>" for row in self.rows)
        note = f'\n<p class="note">{html.escape(self.note)}</p>' if self.note else ""
        return (
            f"<table>\n<caption>{html.escape(self.title)}</caption>\n"
            f"<thead><tr>{heads}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>{note}\n"
        )

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
        """The head and cells of a column, all of one width."""
        cells = [row[position] for row in self.rows]
        mark = " " if any(cell.is_bold for cell in cells) else ""
        texts = [self.heads[position] + mark]
        texts += [cell.text + ("*" if cell.is_bold else mark) for cell in cells]
        width = max(map(_width, texts))
        padding = [" " * (width - _width(text)) for text in texts]
        pairs = zip(texts, padding, strict=True)
        return [text + pad if position == 0 else pad + text for text, pad in pairs]


def _cell(
    of: Estimate | Correlation,
    text: str,
    *,
    is_bold: bool = False,
    standard_error: float | None = None,
) -> Cell:
    return Cell(
        text=text,
        is_bold=is_bold,
        value=of.value,
        standard_error=_number(standard_error),
        low=_number(of.low),
        high=_number(of.high),
    )


def _plain(text: str) -> str:
    """The name of a domain may have a line's end, or what a terminal takes for an order.

    Blanks at its beginning stay: they indent a line below another.
    """
    blanks = " " * (len(text) - len(text.lstrip(" ")))
    words = "".join(" " if letter.isspace() else letter for letter in text).split()
    kinds = ("Cc", "Cf", "Cs")  # control, format (also what turns the direction), surrogates
    return blanks + "".join(
        letter for letter in " ".join(words) if unicodedata.category(letter) not in kinds
    )


def _width(text: str) -> int:
    """Columns on a terminal: the hat of σ̂ has none of its own."""
    return sum(not unicodedata.combining(letter) for letter in text)


def _signed(value: float, digits: int) -> str:
    """With its sign, and + where it rounds to 0."""
    return f"{round(value, digits) + 0.0:+.{digits}f}"


def _with_interval(of: Estimate | Correlation, write: Callable[[float], str]) -> str:
    interval = MISSING if math.isnan(of.low) else f"{write(of.low)}, {write(of.high)}"
    return f"{write(of.value)} [{interval}]"


def _number(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else value


def _shown(value: float, form: str) -> str:
    return MISSING if math.isnan(value) else f"{value:{form}}"


def _fields(head: str, cell: Cell) -> dict[str, float | str | None]:
    fields: dict[str, float | str | None] = {head: cell.value}
    for name in ("standard_error", "low", "high"):
        extra = getattr(cell, name)
        if extra is not None:
            fields[f"{head} {name.replace('_', ' ')}"] = extra
    return fields


def _markdown_row(texts: Sequence[str]) -> str:
    return "| " + " | ".join(_pipes(text) for text in texts) + " |"


def _pipes(text: str) -> str:
    return text.replace("|", "\\|")


def _html_row(row: Sequence[Cell]) -> str:
    texts = [
        f"<strong>{html.escape(cell.text)}</strong>" if cell.is_bold else html.escape(cell.text)
        for cell in row
    ]
    name = f'<th scope="row">{texts[0]}</th>'
    return name + "".join(f"<td>{text}</td>" for text in texts[1:])
