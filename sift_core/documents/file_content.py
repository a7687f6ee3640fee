"""One file: its bytes, its text by its format, its chunks, or why there are none."""

from __future__ import annotations

import codecs
import math
import os
import re
import tokenize
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from io import BytesIO
from itertools import accumulate
from typing import Any, NamedTuple

from sift_core.checks import check_text
from sift_core.documents.chunker import FORMAT_OF_SUFFIX, Chunker
from sift_core.documents.cutting import TextFormat
from sift_core.documents.file_dates import date_of_content
from sift_core.documents.finding import (
    HTML_SUFFIXES,
    MAX_BYTES,
    NOTEBOOK_SUFFIX,
    OFFICE_SUFFIXES,
    PDF_SUFFIX,
    WITHOUT_MACROS,
    FoundFile,
    SkipError,
    SkippedPath,
    SkipReason,
    broken,
)
from sift_core.documents.front_matter import FrontMatter, front_matter, same_words
from sift_core.documents.headings import LONGEST_TITLE
from sift_core.documents.readable import readable, unhyphenated, without_inline_files
from sift_core.documents.scripts import lowered, raised
from sift_core.errors import InvalidInputError, MissingDependencyError
from sift_core.types import Document

_PAGED = (PDF_SUFFIX, ".pptx", ".pptm")
_SMALL = re.compile(r" *(\S{1,8})(\s*)")  # what may be an exponent or a footnote's mark


class FileContent(NamedTuple):
    """The chunks of a file, and what was left out: pages, or all of it if there is no chunk."""

    chunks: list[Document]
    skipped: SkippedPath | None = None


def read_file(file: FoundFile, chunker: Chunker) -> FileContent:
    """Return the chunks of one file and which of its pages have none, or why there is no chunk.

    Ids are `{source}#0`, `#1`, ...; metadata has what `Chunker.split` adds and, of a PDF
    or a presentation, "page", where the chunk begins, counted from 1, and "last_page", where it
    ends. A date that the file states stands under "date" and its kind under "date_kind".
    Front matter is in no chunk; its title is the outermost heading, see `_behind`.
    """
    try:
        return _read(file, content_of(file), chunker)
    except SkipError as error:
        reason, detail = error.reason, error.detail
    except MissingDependencyError as error:
        reason = SkipReason.MISSING_PACKAGE
        if file.path.suffix.lower() in OFFICE_SUFFIXES:
            reason = SkipReason.MISSING_OFFICE_PACKAGE
        detail = str(error)
    return FileContent([], SkippedPath(source=file.source, reason=reason, detail=detail))


def _read(file: FoundFile, content: bytes, chunker: Chunker) -> FileContent:
    suffix = file.path.suffix.lower()
    format, pages, pictures = _pages(content, suffix)
    text = "\n\n".join(pages)
    starts: list[int] = []
    if suffix in _PAGED:
        starts = [0, *accumulate(len(page) + 2 for page in pages[:-1])]
    is_written = suffix not in (PDF_SUFFIX, *HTML_SUFFIXES, *OFFICE_SUFFIXES)
    matter = front_matter(text) if is_written else None
    body = text[matter.end :] if matter else text
    try:
        check_text("text", text)
        date = date_of_content(content, text, suffix)
        chunks = chunker.split(body, format=format, document_id=file.source, metadata=date)
    except InvalidInputError as error:  # half a surrogate pair, which an escape can bring in
        raise SkipError(SkipReason.ENCODING, str(error)) from error
    if not chunks:
        raise SkipError(SkipReason.EMPTY, "only front matter" if matter else "only whitespace")
    if matter:
        chunks = _behind(matter, chunks)
    for i, chunk in enumerate(chunks if starts else ()):
        first, last = chunk.metadata["start"], chunk.metadata["end"] - 1
        numbers = {
            "page": bisect_right(starts, first),
            "last_page": bisect_right(starts, max(last, first)),
        }
        chunks[i] = replace(chunk, metadata={**chunk.metadata, **numbers})
    if not pictures:
        return FileContent(chunks)
    which = f"page{'s' * (len(pictures) > 1)} {', '.join(map(str, pictures))}"
    skipped = SkippedPath(source=file.source, reason=SkipReason.SOME_PAGES, detail=which)
    return FileContent(chunks, skipped)


def _behind(matter: FrontMatter, chunks: Sequence[Document]) -> list[Document]:
    """Return the chunks of what follows front matter with their places in the whole text.

    Its title stands above their headings, unless the text begins with the same as a heading.
    """
    title = matter.title[:LONGEST_TITLE]
    begins_with = chunks[0].metadata.get("heading", [""])[-1]
    placed = []
    for chunk in chunks:
        about = dict(chunk.metadata)
        about |= {key: about[key] + matter.end for key in ("start", "end")}
        path = about.get("heading", [])
        if title and not any(same_words(title, one) for one in (begins_with, *path[:1])):
            about["heading"] = [title, *path]
        placed.append(replace(chunk, metadata=about))
    return placed


def _pages(content: bytes, suffix: str) -> tuple[TextFormat, list[str], list[int]]:
    """Return the format of a file's text, its pages, and which of these are pictures alone.

    A file without pages is one page. Pages count from 1.
    """
    if suffix == PDF_SUFFIX:
        pages, pictures = _pages_of_pdf(content)
        return "text", unhyphenated(list(map(readable, pages))), pictures
    if suffix in (*HTML_SUFFIXES, NOTEBOOK_SUFFIX, *OFFICE_SUFFIXES):
        pages = [page.replace("\0", "") for page in _converted(content, suffix)]
        return "markdown", [without_inline_files(readable(page)) for page in pages], []
    format: TextFormat = FORMAT_OF_SUFFIX.get(suffix, "text")
    text = without_inline_files(_text(content, format))
    if format != "python":
        text = readable(text)
    return format, unhyphenated([text]) if format == "text" else [text], []


def _converted(content: bytes, suffix: str) -> list[str]:
    """Return the pages of a file as Markdown. What reads its format is imported here."""
    match WITHOUT_MACROS.get(suffix, suffix):
        case ".docx":
            from sift_core.documents.office.word import markdown_of_docx

            return [markdown_of_docx(content)]
        case ".pptx":
            from sift_core.documents.office.slides import markdown_of_pptx

            return markdown_of_pptx(content)
        case ".xlsx":
            from sift_core.documents.office.sheets import markdown_of_xlsx

            return [markdown_of_xlsx(content)]
        case ".epub":
            from sift_core.documents.office.epub import markdown_of_epub

            return [markdown_of_epub(content)]
        case ".ipynb":
            from sift_core.documents.office.notebook import markdown_of_ipynb

            return [markdown_of_ipynb(content)]
        case _:
            from sift_core.documents.html import markdown_of_html

            return [markdown_of_html(content)]


def content_of(file: FoundFile) -> bytes:
    """Return the bytes of a file.

    Raises:
        SkipError: If it cannot be read, or has become endless since it was found.
    """
    limit = max(file.n_bytes, MAX_BYTES)
    try:
        with open(file.path, "rb", opener=_open_at_once) as opened:
            content = opened.read(limit + 1)
    except OSError as error:
        raise SkipError(SkipReason.UNREADABLE, error.strerror or str(error)) from error
    if len(content) > limit:
        raise SkipError(SkipReason.UNREADABLE, "it grew while it was read")
    return content


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # it may be a pipe by now


def _pages_of_pdf(content: bytes) -> tuple[list[str], list[int]]:
    """Return the text of each page of a PDF, and which pages have a picture and no text.

    A file that is encrypted with no password is read.

    Raises:
        SkipError: If it is encrypted, broken, or has no text, for instance since its pages were
            scanned.
        MissingDependencyError: If pypdf is not installed.
    """
    try:
        import pypdf
        from pypdf.errors import DependencyError
    except ImportError as error:
        raise MissingDependencyError("pypdf", extra="files") from error
    try:
        reader = pypdf.PdfReader(BytesIO(content))
        if reader.is_encrypted and not reader.decrypt(""):
            raise SkipError(SkipReason.ENCRYPTED, "needs a password")
        texts = [_page_text(page) for page in reader.pages]
        pictures = [
            number
            for number, (page, text) in enumerate(zip(reader.pages, texts, strict=True), start=1)
            if not text.strip() and page.images.keys()
        ]
    except SkipError:
        raise
    except DependencyError as error:
        raise MissingDependencyError("cryptography", extra="files") from error
    # pypdf raises errors of its own, and whatever a broken file leads to in its middle: KeyError,
    # TypeError, ValueError, RecursionError, zlib.error ... One broken file must not end a run.
    except Exception as error:
        raise broken(error) from error
    # No store takes null characters and halves of surrogate pairs.
    pages = [text.replace("\0", "").encode("utf-8", "replace").decode().strip() for text in texts]
    if not any(pages):
        raise SkipError(SkipReason.NO_TEXT, f"{len(pages)} pages")
    return pages, pictures


def _page_text(page: Any) -> str:
    """Return the text of a page of a PDF, in which small raised and lowered text is marked."""
    pieces: list[tuple[str, float, float]] = []

    def visit(text: str, outer: Any, matrix: Any, font: Any, size: float) -> None:
        height = matrix[5] * outer[3] + matrix[4] * outer[1] + outer[5]
        scale = math.hypot(matrix[2], matrix[3]) * math.hypot(outer[2], outer[3])
        pieces.append((text, height, size * scale))

    text: str = page.extract_text(visitor_text=visit)
    if "".join(piece for piece, _, _ in pieces) != text:
        return text
    marked, base_height, base_size = "", 0.0, 0.0
    for i, (piece, height, size) in enumerate(pieces):
        small, rise = _SMALL.fullmatch(piece), height - base_height
        before = marked.rstrip(" ")
        is_near = abs(rise) < 0.7 * base_size and 0.45 * base_size < size < 0.9 * base_size
        # The operator that raises text is not seen, but numbers right behind numbers are raised.
        is_seen = abs(rise) > 0.05 * base_size
        if not (small and before[-1:].strip() and is_near):
            marked += piece
            if piece.strip():
                base_height, base_size = height, size
        elif is_seen and rise < 0:
            marked = before + lowered(before, small[1]) + small[2]
        elif is_seen or (small[1].isdigit() and not before[-1].isalpha()):
            after = small[2] or "".join(one[0] for one in pieces[i + 1 : i + 2])
            marked = before + raised(before, small[1], after) + small[2]
        else:
            marked += piece
    return marked


def _text(content: bytes, format: TextFormat) -> str:
    r"""Return the text of a file, with "\n" at line ends.

    It is UTF-8, UTF-16 with a byte order mark, or what a Python file declares.
    """
    encoding = "utf-8-sig"
    try:
        if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            encoding = "utf-16"
        elif b"\0" in content:
            raise SkipError(SkipReason.BINARY)
        elif format == "python":
            encoding, _ = tokenize.detect_encoding(BytesIO(content).readline)
        text = content.decode(encoding)
        if "\0" in text:
            raise SkipError(SkipReason.BINARY)
    except (UnicodeError, LookupError, SyntaxError) as error:
        raise SkipError(SkipReason.ENCODING, f"{error}; save it as UTF-8") from error
    return text.replace("\r\n", "\n").replace("\r", "\n")
