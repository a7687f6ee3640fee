"""One file: its bytes, its text by its format, its chunks, or why there are none."""

from __future__ import annotations

import codecs
import os
import tokenize
from bisect import bisect_right
from dataclasses import replace
from io import BytesIO
from itertools import accumulate

from sift_core.documents.chunker import FORMAT_OF_SUFFIX, Chunker
from sift_core.documents.cutting import TextFormat
from sift_core.documents.finding import (
    HTML_SUFFIXES,
    MAX_BYTES,
    PDF_SUFFIX,
    FoundFile,
    SkipError,
    SkippedPath,
    SkipReason,
    broken,
)
from sift_core.errors import InvalidInputError, MissingDependencyError
from sift_core.types import Document


def read_file(file: FoundFile, chunker: Chunker) -> list[Document] | SkippedPath:
    """Return the chunks of one file, at least one, or why there are none.

    Ids are `{source}#0`, `#1`, ...; metadata has what `Chunker.split` adds and, of a PDF, "page",
    where the chunk begins, counted from 1, and "last_page", where it ends.
    """
    try:
        chunks = _chunks(file, content_of(file), chunker)
        if not chunks:
            raise SkipError(SkipReason.EMPTY, "only whitespace")
    except SkipError as error:
        return SkippedPath(source=file.source, reason=error.reason, detail=error.detail)
    except MissingDependencyError as error:
        return SkippedPath(source=file.source, reason=SkipReason.MISSING_PACKAGE, detail=str(error))
    return chunks


def _chunks(file: FoundFile, content: bytes, chunker: Chunker) -> list[Document]:
    suffix = file.path.suffix.lower()
    format: TextFormat = FORMAT_OF_SUFFIX.get(suffix, "text")
    starts: list[int] = []
    if suffix == PDF_SUFFIX:
        pages = _pages_of_pdf(content)
        text = "\n\n".join(pages)
        starts = [0, *accumulate(len(page) + 2 for page in pages[:-1])]
    elif suffix in HTML_SUFFIXES:
        from sift_core.documents.html import markdown_of_html

        text, format = markdown_of_html(content), "markdown"
    else:
        text = _text(content, format)
    try:
        chunks = chunker.split(text, format=format, document_id=file.source)
    except InvalidInputError as error:  # half a surrogate pair, which an escape can bring in
        raise SkipError(SkipReason.ENCODING, str(error)) from error
    for i, chunk in enumerate(chunks if starts else ()):
        first, last = chunk.metadata["start"], chunk.metadata["end"] - 1
        numbers = {
            "page": bisect_right(starts, first),
            "last_page": bisect_right(starts, max(last, first)),
        }
        chunks[i] = replace(chunk, metadata={**chunk.metadata, **numbers})
    return chunks


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


def _pages_of_pdf(content: bytes) -> list[str]:
    """Return the text of each page of a PDF; one that is encrypted with no password is read.

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
        texts = [page.extract_text() for page in reader.pages]
    except SkipError:
        raise
    except DependencyError as error:
        raise SkipError(
            SkipReason.ENCRYPTED, "pip install cryptography, if it has no password"
        ) from error
    # pypdf raises errors of its own, and whatever a broken file leads to in its middle: KeyError,
    # TypeError, ValueError, RecursionError, zlib.error ... One broken file must not end a run.
    except Exception as error:
        raise broken(error) from error
    # No store takes null characters and halves of surrogate pairs.
    pages = [text.replace("\0", "").encode("utf-8", "replace").decode().strip() for text in texts]
    if not any(pages):
        raise SkipError(SkipReason.NO_TEXT, f"{len(pages)} pages")
    return pages


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
