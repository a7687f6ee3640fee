"""From texts to the documents of an index."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, get_args

from sift_core.checks import as_count, check_text
from sift_core.documents.cutting import Cutter, TextFormat
from sift_core.documents.headings import Heading, markdown_headings, path_at, rst_headings
from sift_core.documents.tables import header_at, leave_room_for_header, markdown_tables
from sift_core.errors import InvalidInputError
from sift_core.places import REPEATED_KEY
from sift_core.types import Document, Metadata

FORMAT_OF_SUFFIX: dict[str, TextFormat] = {
    ".md": "markdown",
    ".markdown": "markdown",
    ".rst": "rst",
    ".py": "python",
    ".pyi": "python",
    ".txt": "text",
}

_HEADINGS: dict[TextFormat, Callable[[str], list[Heading]]] = {
    "markdown": markdown_headings,
    "rst": rst_headings,
}


class Chunker:
    r"""Cuts a text into documents of at most one size, at the best places that it has.

    Those are, best first: headings by level, blocks (paragraphs, list items, tables, code
    blocks; functions and statements; directives and literal blocks), lines, sentences,
    words, characters. What fits is kept whole, and neighbours are joined up to the size. A
    heading alone, or marks without a word, go with what follows; so does a last line that opens
    it ("as follows:", "**Warning**", a tag), where it fits. A first line that closes something
    goes with what precedes. What is shorter than an eighth of a chunk is joined to a
    neighbour, or takes some of its text (never of a block that fits, nor from under another
    heading), where either can be.

    Nothing is lost but whitespace at both ends: the chunks hold every other character once, in
    order. A chunk that begins in the rows of a Markdown table starts with the table's header again,
    unless that takes more than half a chunk; "start" and "end" leave the header out, and
    "n_repeated" is its length. The cut is
    deterministic, by semantic-text-splitter and tree-sitter's grammars. Takes about a second for
    1 MB; but minutes where 100 kB of Python or reStructuredText are one deeply nested expression,
    as in some generated files.

    Args:
        max_characters: The largest chunk, >= 1, in characters, or in what `size` counts.
        size: What to count instead of characters (rounded up), for instance a tokenizer's length:
            `lambda text: len(tokenizer.encode(text).ids)`. Called some ten times a chunk. A
            single character that counts more than `max_characters` is a chunk of its own.

    Attributes:
        max_size: The largest chunk.
        size: What counts it; None for characters.

    Raises:
        InvalidInputError: If an argument is out of its range.

    Example:
        >>> pets = "# Cats\n\nThey purr.\n\n# Dogs\n\nThey bark."
        >>> chunks = Chunker(30).split(pets, format="markdown", document_id="pets.md")
        >>> [(chunk.document_id, chunk.text) for chunk in chunks]
        [('pets.md#0', '# Cats\n\nThey purr.'), ('pets.md#1', '# Dogs\n\nThey bark.')]
    """

    def __init__(
        self, max_characters: int = 1000, *, size: Callable[[str], float] | None = None
    ) -> None:
        self.max_size: int = as_count("max_characters", max_characters, minimum=1)
        if not (size is None or callable(size)):
            raise InvalidInputError(
                f"`size` must be a function of a text, got {type(size).__name__}"
            )
        self.size = size
        # Rounded up: the splitter takes whole numbers only.
        self._count = len if size is None else lambda text: math.ceil(size(text))

    def split(
        self, text: str, *, format: TextFormat, document_id: str, metadata: Metadata | None = None
    ) -> list[Document]:
        """Return the chunks of a text, in order; none of a text without a visible character.

        A chunk's text has no whitespace at its end, and at its start only the indentation
        of its first line.

        Args:
            text: The text.
            format: What it is written in: "markdown", "rst", "python" or "text".
            document_id: Name of the whole; its chunks are `{document_id}#0`, `#1`, ....
            metadata: What every chunk's metadata should hold besides "source" (the
                `document_id`), "start" and "end" (offsets: `text[start:end]` is the chunk
                before its ends were trimmed) and, in Markdown and reStructuredText below a
                heading, "heading": the titles above its first line, outermost first (a line
                like one inside an HTML comment counts as one).

        Raises:
            InvalidInputError: If an argument cannot be used, or `metadata` has a key that
                chunks add.
        """
        check_text("text", text)
        check_text("document_id", document_id)
        if format not in get_args(TextFormat):
            raise InvalidInputError(
                f"`format` must be one of {', '.join(get_args(TextFormat))}, got {format!r}"
            )
        for key in ("source", "start", "end", "heading", REPEATED_KEY):
            if key in (metadata or {}):
                raise InvalidInputError(f"chunks have a {key!r} of their own; rename yours")
        headings = _HEADINGS[format](text) if format in _HEADINGS else []
        cutter = Cutter(text, format, headings, capacity=self.max_size, count=self._count)
        chunks: list[Document] = []
        tables = [
            table
            for table in (markdown_tables(text) if format == "markdown" else [])
            if 2 * self._count(text[table.start : table.body]) <= self.max_size
        ]
        spans = cutter.spans()
        for table in tables:
            spans = leave_room_for_header(
                text,
                spans,
                table,
                capacity=self.max_size,
                count=self._count,
                split=lambda span, size: cutter.split(span, "text", size),
            )
        for start, end in spans:
            added: dict[str, Any] = {"source": document_id, "start": start, "end": end}
            if path := path_at(headings, _visible(text, start)):
                added["heading"] = path
            if header := header_at(text, tables, start):
                added[REPEATED_KEY] = len(header)
            chunks.append(
                Document(
                    document_id=f"{document_id}#{len(chunks)}",
                    text=header + _trimmed(text, start, end),
                    metadata={**(metadata or {}), **added},
                )
            )
        return chunks


def _visible(text: str, start: int) -> int:
    """Return the offset of the first character from `start` on that is not whitespace."""
    match = re.compile(r"\S").search(text, start)
    return match.start() if match else len(text)


def _trimmed(text: str, start: int, end: int) -> str:
    """Return a span without whitespace at its ends but for its first line's indentation."""
    visible = _visible(text, start)
    line = 1 + max(text.rfind(mark, start, visible) for mark in "\r\n")
    if line == 0:  # no line starts here, unless the span itself does
        line = start if start == 0 or text[start - 1] in "\r\n" else visible
    return text[line:end].rstrip()
