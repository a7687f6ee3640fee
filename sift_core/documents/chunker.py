"""From texts, files and folders to the documents of an index."""

from __future__ import annotations

import math
import os
import tokenize
import warnings
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, get_args

from sift_core.checks import as_count, check_text
from sift_core.documents.boundaries import Span
from sift_core.documents.headings import Heading, markdown_headings, path_at, rst_headings
from sift_core.documents.spans import VISIBLE, SpanCutter, TextFormat
from sift_core.errors import InvalidInputError
from sift_core.types import Document, Metadata

FORMAT_OF_SUFFIX: dict[str, TextFormat] = {
    ".md": "markdown",
    ".markdown": "markdown",
    ".rst": "rst",
    ".py": "python",
    ".pyi": "python",
    ".txt": "text",
}

_ADDED_KEYS = ("source", "start", "end", "heading")
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
    it ("as follows:"), where it fits. What is shorter than an eighth of a chunk is joined to a
    neighbour, or takes some of its text (of a paragraph or list, never of a function or of a
    fenced block of code that fits, nor from under another heading), where either can be.

    Nothing is lost or repeated but whitespace at both ends: without overlap, the chunks hold
    every other character once, in order. The cut is deterministic, by semantic-text-splitter
    and tree-sitter's grammars. Takes about a second for 1 MB; but minutes where 100 kB of
    Python or reStructuredText are one deeply nested expression, as in some generated files.

    Args:
        max_characters: The largest chunk, >= 1, in characters, or in what `size` counts.
        overlap: How much of the chunk before is repeated at a chunk's start, at most, from
            the start of a line or else of a word; 0 <= overlap < max_characters. Counts
            towards `max_characters`.
        size: What to count instead of characters (rounded up), for instance a tokenizer's length:
            `lambda text: len(tokenizer.encode(text).ids)`. Called some ten times a chunk. A
            single character that counts more than `max_characters` is a chunk of its own.

    Raises:
        InvalidInputError: If an argument is out of its range.

    Example:
        >>> pets = "# Cats\n\nThey purr.\n\n# Dogs\n\nThey bark."
        >>> chunks = Chunker(30).split(pets, format="markdown", document_id="pets.md")
        >>> [(chunk.document_id, chunk.text) for chunk in chunks]
        [('pets.md#0', '# Cats\n\nThey purr.'), ('pets.md#1', '# Dogs\n\nThey bark.')]
    """

    def __init__(
        self,
        max_characters: int = 1000,
        *,
        overlap: int = 0,
        size: Callable[[str], float] | None = None,
    ) -> None:
        max_characters = as_count("max_characters", max_characters, minimum=1)
        self._overlap = as_count("overlap", overlap, minimum=0)
        if self._overlap >= max_characters:
            raise InvalidInputError(
                f"`overlap` must be < `max_characters` = {max_characters}, got {overlap}"
            )
        if not (size is None or callable(size)):
            raise InvalidInputError(
                f"`size` must be a function of a text, got {type(size).__name__}"
            )
        self._capacity = max_characters - self._overlap
        self._count: Callable[[str], int] = len if size is None else _whole(size)

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
        given = dict(metadata or {})
        for key in _ADDED_KEYS:
            if key in given:
                raise InvalidInputError(f"chunks have a {key!r} of their own; rename yours")
        headings = _HEADINGS[format](text) if format in _HEADINGS else []
        cutter = SpanCutter(text, format, headings, capacity=self._capacity, count=self._count)
        chunks: list[Document] = []
        before: Span | None = None
        for start, end in cutter.spans():
            first = cutter.overlap_start(before, start, self._overlap) if before else start
            added: dict[str, Any] = {"source": document_id, "start": first, "end": end}
            if path := path_at(headings, _visible(text, start)):
                added["heading"] = path
            chunks.append(
                Document(
                    document_id=f"{document_id}#{len(chunks)}",
                    text=_trimmed(text, first, end),
                    metadata={**given, **added},
                )
            )
            before = (start, end)
        return chunks

    def split_file(self, path: str | Path, *, root: str | Path | None = None) -> list[Document]:
        r"""Return the chunks of a file, cut by its suffix's format (`FORMAT_OF_SUFFIX`).

        The text is UTF-8, or what a Python file declares. Its line ends become "\n", so that
        a checkout on Windows gives the same documents; offsets count that text.

        Args:
            path: The file.
            root: The folder that ids are relative to, with "/" on every system; the file's
                own folder if left out.

        Raises:
            InvalidInputError: If the file cannot be read as text, has no known suffix or does
                not lie under `root`.
        """
        path = Path(path)
        root = path.parent if root is None else Path(root)
        format = FORMAT_OF_SUFFIX.get(path.suffix.lower())
        if format is None:
            raise InvalidInputError(
                f"{path} must have one of the suffixes {', '.join(FORMAT_OF_SUFFIX)}; read other "
                f"files yourself and call `split`"
            )
        try:
            document_id = path.relative_to(root).as_posix()
        except ValueError as error:
            raise InvalidInputError(f"{path} must lie under `root`, {root}") from error
        return self.split(_read(path, format), format=format, document_id=document_id)

    def split_folder(
        self, folder: str | Path, *, skip_unreadable: bool = False
    ) -> Iterator[Document]:
        """Yield the chunks of all files with a known suffix in a folder and those below it.

        Holds one file at a time. A folder's files come before its subfolders, both by name.
        Left out are hidden files and folders (".git"), and links to folders, so that a loop
        of links is no danger; links to files are followed.

        Args:
            folder: Where to look.
            skip_unreadable: Whether to go on, with a UserWarning, after a file or folder that
                cannot be read. The default is an error, since `index_documents` deletes what
                is no longer there.

        Raises:
            InvalidInputError: If `folder` is no folder, at once; if a file or folder cannot be
                read, when it is reached.
        """
        root = Path(folder)
        if not root.is_dir():
            raise InvalidInputError(f"`folder` must be a folder, got {root}")
        return self._split_folder(root, skip_unreadable)

    def _split_folder(self, root: Path, skip_unreadable: bool) -> Iterator[Document]:
        def give_up(error: OSError) -> None:
            if not skip_unreadable:
                raise _unreadable(error.filename, error) from error
            _warn(_unreadable(error.filename, error))

        for folder, subfolders, names in os.walk(root, onerror=give_up):
            subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
            for name in sorted(names):
                path = Path(folder, name)
                if name.startswith(".") or path.suffix.lower() not in FORMAT_OF_SUFFIX:
                    continue
                try:
                    chunks = self.split_file(path, root=root)
                except InvalidInputError as error:
                    if not skip_unreadable:
                        raise
                    _warn(error)
                else:
                    yield from chunks


def _whole(size: Callable[[str], float]) -> Callable[[str], int]:
    """Return a count that rounds up: the splitter takes whole numbers only."""
    return lambda text: math.ceil(size(text))


def _visible(text: str, start: int) -> int:
    """Return the offset of the first character from `start` on that is not whitespace."""
    match = VISIBLE.search(text, start)
    return match.start() if match else len(text)


def _trimmed(text: str, start: int, end: int) -> str:
    """Return a span without whitespace at its ends but for its first line's indentation."""
    visible = _visible(text, start)
    line = 1 + max(text.rfind(mark, start, visible) for mark in "\r\n")
    if line == 0:  # no line starts here, unless the span itself does
        line = start if start == 0 or text[start - 1] in "\r\n" else visible
    return text[line:end].rstrip()


def _read(path: Path, format: TextFormat) -> str:
    """Return a file's text with line ends as Python makes them.

    Raises:
        InvalidInputError: If it is no regular file, or holds no text.
    """
    if not path.is_file():  # a pipe would be waited for
        raise InvalidInputError(f"{path} must be a file that exists, and no pipe or device")
    encoding = "utf-8-sig"
    try:
        content = path.read_bytes()
        if format == "python":
            encoding, _ = tokenize.detect_encoding(BytesIO(content).readline)
        text = content.decode(encoding)
    except (OSError, UnicodeError, LookupError, SyntaxError) as error:
        raise _unreadable(path, error) from error
    if "\0" in text:
        raise InvalidInputError(f"{path} must be text, but holds null characters; is it binary?")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _unreadable(path: object, error: Exception) -> InvalidInputError:
    return InvalidInputError(
        f"{path} could not be read: {error}; mend it, move it away, or pass `skip_unreadable=True` "
        f"to `split_folder`"
    )


def _warn(error: InvalidInputError) -> None:
    warnings.warn(f"left out: {error}", UserWarning, stacklevel=3)
