"""Texts of documents and models made fit for a terminal, and where a chunk comes from."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

# Control characters but tab and newline, which begin escape sequences, and marks that turn the
# direction of writing: a document must neither steer the terminal nor look like another one.
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

# How files of other indexers call what `sift index` calls "source".
_SOURCE_KEYS = ("source", "file_path", "path", "file_name", "url", "title")

# Of files that `sift index` reads; "gzip.open", of another indexer, has none.
_SUFFIX = re.compile(r"(?<=.)\.(md|markdown|rst|txt|py|html?|pdf)(?=(#\d+)?$)", re.IGNORECASE)

LEAST_TITLE = 12  # columns, below which the stump of a heading says nothing

_LEVELS = "▁▂▃▄▅▆▇█"


def plain(text: str) -> str:
    """Return a text without the characters that steer a terminal; tabs and line ends stay."""
    return _STEERING.sub("", text)


def one_line(text: str) -> str:
    """Return a text in one line, safe for a terminal."""
    return " ".join(plain(text).split())


def shortened(text: str, width: int, *, keep_end: bool = False) -> str:
    """Return a line that takes at most `width` columns, with an ellipsis where it was cut.

    Args:
        text: One line.
        width: Columns of a terminal, >= 1; a wide character takes two.
        keep_end: Whether the end stays instead of the beginning.
    """
    from rich.cells import cell_len, set_cell_size

    if cell_len(text) <= width:
        return text
    if keep_end:
        return "…" + set_cell_size(text[::-1], width - 1).rstrip()[::-1]
    return set_cell_size(text, width - 1).rstrip() + "…"


def source_of(metadata: Mapping[str, Any], document_id: str, width: int) -> str:
    """Return where a chunk comes from in one line: file and number, headings, page.

    Args:
        metadata: The chunk's: "source", "heading" and "page" as `sift index` writes them, or
            what other indexers call them.
        document_id: Stands for the file where the metadata names none. One like "guide.md#3"
            tells a file's chunks apart.
        width: Columns that it takes at most. Where not all fits, first the outer headings go,
            then the end of the innermost, then the outer folders, then the file's suffix.
    """
    named = (metadata.get(key) for key in _SOURCE_KEYS)
    file = next((name for name in named if isinstance(name, str) and name), document_id)
    if document_id.startswith(f"{file}#"):
        file = document_id
    heading = metadata.get("heading") or ()
    titles = [heading] if isinstance(heading, str) else [str(title) for title in heading]
    if metadata.get("page") is not None:
        titles.append(f"p. {metadata['page']}")
    parts = [one_line(part) for part in (file, *titles)]
    whole = " > ".join(parts)
    if len(parts) > 2 and shortened(whole, width) != whole:
        whole = " > ".join([parts[0], "…", parts[-1]])
    if len(parts) > 1 and len(parts[0]) + LEAST_TITLE <= width:
        return shortened(whole, width)
    return _short_file(parts[0], width)


def _short_file(file: str, width: int) -> str:
    """Return a file's name with what tells it from others: never the middle of a folder's name."""
    name = file.rsplit("/", 1)[-1]
    if not name.split("#")[0]:  # the address of a folder
        return shortened(file, width, keep_end=True)
    bare = _SUFFIX.sub("", name)
    folders = file.split("/")[:-1]
    ends = ["/".join(["…", *folders[i:], name]) for i in range(1, len(folders) + 1)]
    for shown in (file, *ends, name, bare):
        if shortened(shown, width) == shown:
            return shown
    return shortened(bare, width, keep_end=True)


def sparkline(variances: Sequence[float]) -> str:
    """Return a bar a variance; a full one is as high as the first, which is the highest.

    Args:
        variances: Not empty, none negative.
    """
    first = variances[0] or 1.0
    levels = [min(max(int(v / first * len(_LEVELS)), 0), len(_LEVELS) - 1) for v in variances]
    return "".join(_LEVELS[level] for level in levels)


def explained(variances: Sequence[float]) -> float:
    """Return which share of the first variance is gone after the last, in [0, 1]."""
    return 1.0 - variances[-1] / variances[0] if variances[0] else 0.0


def number_or_none(value: float) -> float | None:
    """Return a number that JSON can hold; None for NaN and infinity."""
    return float(value) if math.isfinite(value) else None


def stdout_console() -> Console:
    """Return the console for results: no colours in a pipe or with NO_COLOR set."""
    from rich.console import Console

    return Console(highlight=False, emoji=False, markup=False)


def stderr_console() -> Console:
    """Return the console for notes and status lines, which is silent about status in a pipe."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, emoji=False, markup=False)


def say(console: Console, text: str, *, style: str = "") -> None:
    """Print words of our own, wrapped at words; in a pipe without COLUMNS a line stays one."""
    has_width = console.is_terminal or "COLUMNS" in os.environ
    console.print(text, style=style, soft_wrap=not has_width)


def working(text: str) -> Status:
    """Return a line on stderr that says what takes its time, and vanishes; none in a pipe."""
    return stderr_console().status(text)


def print_json(record: Any, *, one_a_line: bool = False) -> None:
    """Print a record as one JSON document on stdout.

    Args:
        record: What JSON can hold; of metadata, anything else is written as its text.
        one_a_line: Whether it takes one line (JSON lines).
    """
    import json

    import typer

    indent = None if one_a_line else 2
    typer.echo(json.dumps(record, indent=indent, allow_nan=False, default=str))
