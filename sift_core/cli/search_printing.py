"""What `sift search` prints: the chunks, the columns of a comparison, and σ² in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sift_core.answering.policy import VariancePolicy
from sift_core.cli.search_methods import Column
from sift_core.cli.showing_chunks import LEGEND, print_chunks, repeats_of
from sift_core.cli.showing_text import explained, say, source_of, sparkline

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

SIDE_BY_SIDE_WIDTH = 100  # columns of a terminal; in narrower ones the names would be stumps


def print_search(
    console: Console, column: Column, *, n_candidates: int, n_lines: int | None
) -> None:
    """Print what SIFT chose, and how certain it makes the answer.

    Args:
        console: Where.
        column: The choice.
        n_candidates: How many there were to choose from.
        n_lines: Lines of text of each chunk at most; None for all.
    """
    print_chunks(console, column.chunks, n_lines=n_lines)
    say(console, "")
    for line in variance_lines(column.question_variances.tolist()):
        say(console, line)
    say(console, f"{_counts(column)}, chosen from {n_candidates} candidates.")
    if column.n_redundant:
        say(console, LEGEND, style="dim")


def print_comparison(console: Console, columns: Mapping[str, Column]) -> None:
    """Print columns beside one another, or below one another where the terminal is narrow.

    Args:
        console: Where.
        columns: The columns by name, one of them "sift".
    """
    from rich.table import Table

    shown = list(columns.values())
    nearest = set(columns["nearest"].positions.tolist())
    if console.width < SIDE_BY_SIDE_WIDTH:
        for column in shown:
            say(console, column.title, style="bold")
            for line in _lines(column, console.width, nearest):
                console.print(line, soft_wrap=True)
            say(console, f"{_below(column)}\n")
    else:
        width = (console.width - 2 * (len(shown) - 1)) // len(shown)
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_footer=True)
        for column in shown:
            table.add_column(
                column.title,
                _below(column),
                no_wrap=True,
                header_style="bold",
                footer_style="",
                width=width,
            )
        cells = [_lines(column, width, nearest) for column in shown]
        for row in range(max(len(lines) for lines in cells)):
            table.add_row(*(lines[row] if row < len(lines) else "" for lines in cells))
        console.print(table)
    say(console, f"{LEGEND}.", style="dim")
    say(
        console,
        "+ not among the nearest neighbours; σ²: what stays uncertain about the question.",
        style="dim",
    )


def variance_lines(variances: Sequence[float]) -> list[str]:
    """Return how σ² at the question falls, as a sparkline, numbers and words.

    Args:
        variances: Before the first and after every chunk, in the paper's setting.
    """
    share = explained(variances)
    n = len(variances) - 1
    chunks = "this chunk explains" if n == 1 else f"these {n} chunks explain"
    lines = [
        f"σ² at the question {sparkline(variances)} {variances[0]:.2f} → {variances[-1]:.2f}: "
        f"{chunks} {share:.0%} of what is uncertain about it."
    ]
    if n and share < VariancePolicy().min_explained:
        lines.append(
            f"Less than {VariancePolicy().min_explained:.0%}: the index may have little about this."
        )
    return lines


def _lines(column: Column, width: int, nearest: set[int]) -> list[Text]:
    """Return a line a chunk: rank, mark, similarity and the end of its source."""
    from rich.text import Text

    lines = []
    chunks = column.chunks
    for i, repeat in enumerate(repeats_of(chunks.embeddings)):
        mark = "" if repeat is None else repeat.mark
        new = " " if int(column.positions[i]) in nearest else "+"
        head = f"{i + 1:>2} {mark:<3}{new}{chunks.similarities[i]:.2f} "
        room = max(width - len(head), 8)
        source = source_of(chunks.metadata[i], chunks.document_ids[i], room)
        lines.append(Text(head + source, style="dim" if repeat else ""))
    return lines


def _below(column: Column) -> str:
    return f"{_counts(column)}\nσ² {column.question_variances[-1]:.2f}"


def _counts(column: Column) -> str:
    """Return how many chunks there are, and how many of them repeat an earlier one, and how."""
    n, n_copies = len(column.chunks), column.n_copies
    n_alike = column.n_redundant - n_copies
    parts = [f"{n} {'chunk' if n == 1 else 'chunks'}"]
    if n_copies:
        parts.append(f"{n_copies} {'copy' if n_copies == 1 else 'copies'} ≡")
    parts.append(f"{n_alike or 'none'} alike{' ≈' if n_alike else ''}")
    return ", ".join(parts)
