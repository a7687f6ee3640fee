"""Jupyter notebooks as Markdown: text, code, and the texts that the code gave."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from sift_core.documents.finding import SkipError, SkipReason, broken

MAX_OUTPUT = 10_000  # characters of one output; more is a log

# What colours a terminal, names a window or makes a link of a text.
_ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")
_DISPLAYED = re.compile(r"<IPython\.[\w.]+ object>")  # stands for what a browser shows
_WIDGET = "application/vnd.jupyter.widget-view+json"
_IMAGES = ("png", "jpeg", "svg")  # of version 3
_FENCE = re.compile(r"`{3,}")


def markdown_of_ipynb(content: bytes) -> str:
    """Return the text of a notebook as Markdown.

    Cells of text stand as they are, code between fences, and below it what it printed or gave as
    text or as a table, up to `MAX_OUTPUT` characters each. Left out are images, widgets and what
    went to stderr; of an error its last line stays.

    Args:
        content: The file, in version 3 or 4 of the format.

    Raises:
        SkipError: If it is broken, no notebook, or has no text.
    """
    try:
        notebook = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise broken(error) from error
    cells = _cells(notebook)
    if cells is None:
        raise SkipError(SkipReason.BROKEN, "no notebook inside; is its suffix right?")
    about = _mapping(_mapping(notebook).get("metadata"))
    language = _language(about)
    text = "\n\n".join(
        part for cell in cells for part in _parts(_mapping(cell), language) if part.strip()
    )
    if not text:
        raise SkipError(SkipReason.EMPTY, f"{len(cells)} cells without text")
    return text


def _language(about: Mapping[str, Any]) -> str:
    """Return the language of a notebook's code by its metadata. Default: "python"."""
    info, kernel = _mapping(about.get("language_info")), _mapping(about.get("kernelspec"))
    named = _text(info.get("name")) or _text(kernel.get("language"))
    return re.sub(r"[^\w#+.-]", "", named) or "python"


def _cells(notebook: Any) -> list[Any] | None:
    """Return the cells of a notebook; None if it is none."""
    sheets = _mapping(notebook).get("worksheets")  # of version 3
    if isinstance(sheets, list):
        cells = [_mapping(sheet).get("cells") for sheet in sheets]
        return [cell for some in cells if isinstance(some, list) for cell in some]
    found = _mapping(notebook).get("cells")
    return found if isinstance(found, list) else None


def _parts(cell: Mapping[str, Any], language: str) -> Iterator[str]:
    """Yield the texts of a cell."""
    source = _text(cell.get("source", cell.get("input"))).replace("\0", "")
    match cell.get("cell_type"):
        case "code":
            yield _fenced(source.strip("\n"), str(cell.get("language") or language))
            outputs = cell.get("outputs")
            for output in outputs if isinstance(outputs, list) else ():
                yield _output(_mapping(output))
        case "heading":  # of version 3
            level = cell.get("level")
            yield f"{'#' * (level if isinstance(level, int) and 0 < level < 7 else 1)} {source}"
        case _:
            yield source.strip()


def _output(output: Mapping[str, Any]) -> str:
    """Return the text of what a cell of code gave; empty without any."""
    match output.get("output_type"):
        case "stream":
            is_error = "stderr" in (output.get("name"), output.get("stream"))
            return "" if is_error else _fenced(_text(output.get("text")))
        case "error" | "pyerr":
            return _fenced(f"{output.get('ename', '')}: {output.get('evalue', '')}")
    data = _mapping(output.get("data")) or output  # of version 3
    if _WIDGET in data:
        return ""
    html = _text(data.get("text/html", data.get("html")))
    plain = _text(data.get("text/plain", data.get("text")))
    is_displayed = bool(_DISPLAYED.fullmatch(plain.strip()))
    if ("<table" in html or is_displayed) and (converted := _of_html(html)):
        return _cut(converted)
    for kind in ("text/markdown", "text/latex", "latex"):
        if text := _text(data.get(kind)):
            return _cut(text)
    if any(kind.startswith("image/") or kind in _IMAGES for kind in data):
        return ""  # a picture's text is the name of its class
    return "" if is_displayed else _fenced(plain)


def _of_html(html: str) -> str:
    """Return an output as Markdown, so that tables keep their headers; "" if it has no text."""
    from sift_core.documents.html import markdown_of_html

    try:
        return markdown_of_html(html.encode("utf-8", "replace"), is_page=False)
    except SkipError:
        return ""


def _fenced(text: str, language: str = "") -> str:
    """Return code or plain text between fences that it does not close."""
    if not language:
        text = _cut(_as_shown(text).rstrip())
    if not text.strip():
        return ""
    longest = max(map(len, _FENCE.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def _as_shown(text: str) -> str:
    """Return what a terminal shows in the end; a step of a progress bar overwrites those before."""
    lines = _ANSI.sub("", text).replace("\r\n", "\n").split("\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)


def _cut(text: str) -> str:
    return text if len(text) <= MAX_OUTPUT else f"{text[:MAX_OUTPUT]} …"


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: Any) -> str:
    """Return a text, which the format has whole or as lines."""
    if isinstance(value, list):
        return "".join(line for line in value if isinstance(line, str))
    return value if isinstance(value, str) else ""
