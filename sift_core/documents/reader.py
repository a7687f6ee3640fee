"""From found files to documents."""

from __future__ import annotations

import codecs
import os
import tokenize
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from io import BytesIO

from sift_core.documents import FORMAT_OF_SUFFIX, Chunker, TextFormat
from sift_core.documents.finding import (
    HTML_SUFFIXES,
    MAX_BYTES,
    PDF_SUFFIX,
    FoundFile,
    FoundFiles,
    find_files,
)
from sift_core.documents.skipped import SkipError, SkippedPath, SkipReason
from sift_core.errors import InvalidInputError, MissingDependencyError
from sift_core.types import Document


@dataclass(frozen=True, kw_only=True)
class FileReading:
    """What was read at some paths.

    Args:
        documents: Chunks, in the order of the files and of their text.
        sources: Names of the files that they are from, each once, in order.
        skipped: What was not read, and why.
    """

    documents: tuple[Document, ...]
    sources: tuple[str, ...]
    skipped: tuple[SkippedPath, ...]


def read_files(
    paths: Iterable[str | os.PathLike[str]],
    *,
    chunker: Chunker | None = None,
    base: str | os.PathLike[str] | None = None,
    max_bytes: int = MAX_BYTES,
) -> FileReading:
    """Return the chunks of files and folders, and what was left out.

    Markdown, reStructuredText, Python and plain text are cut as they are; of HTML the main content
    becomes Markdown first (extra `files`), of PDF the text is taken (extra `files`); without that
    extra they are left out. All chunks are held in memory: some 1.5 times the text.

    Args:
        paths: Files and folders.
        chunker: What cuts; `Chunker()` if left out.
        base: As for `find_files`.
        max_bytes: The largest file to read, in bytes.

    Raises:
        InvalidInputError: If there is nothing at a path.
    """
    return read_found(find_files(paths, base=base, max_bytes=max_bytes), chunker or Chunker())


def read_found(
    found: FoundFiles, chunker: Chunker, *, on_file: Callable[[FoundFile], object] | None = None
) -> FileReading:
    """Return what `read_files` returns, of files that were found before.

    Args:
        found: What `find_files` returned.
        chunker: What cuts.
        on_file: Called with each file after it was read, for a progress bar.
    """
    skipped = list(found.skipped)
    documents: list[Document] = []
    sources: list[str] = []
    for file in found.files:
        chunks = read_file(file, chunker)
        if on_file is not None:
            on_file(file)
        if isinstance(chunks, SkippedPath):
            skipped.append(chunks)
        else:
            documents += chunks
            sources.append(file.source)
    return FileReading(documents=tuple(documents), sources=tuple(sources), skipped=tuple(skipped))


def read_file(file: FoundFile, chunker: Chunker) -> list[Document] | SkippedPath:
    """Return the chunks of one file, at least one, or why there are none.

    Ids are `{source}#0`, `#1`, ...; metadata has what `Chunker.split` adds and, of a PDF, "page",
    where the chunk begins, counted from 1, and "last_page", where it ends.
    """
    try:
        chunks = _chunks(file, chunker)
    except SkipError as error:
        return SkippedPath(source=file.source, reason=error.reason, detail=error.detail)
    except MissingDependencyError as error:
        return SkippedPath(source=file.source, reason=SkipReason.MISSING_PACKAGE, detail=str(error))
    if not chunks:
        return SkippedPath(source=file.source, reason=SkipReason.EMPTY, detail="only whitespace")
    return chunks


def _chunks(file: FoundFile, chunker: Chunker) -> list[Document]:
    try:
        content = file.path.read_bytes()
    except OSError as error:
        raise SkipError(SkipReason.UNREADABLE, error.strerror or str(error)) from error
    suffix = file.path.suffix.lower()
    if suffix == PDF_SUFFIX:
        return _pdf_chunks(content, file.source, chunker)
    if suffix in HTML_SUFFIXES:
        from sift_core.documents.html import markdown_of_html

        return _split(chunker, markdown_of_html(content), "markdown", file.source)
    format = FORMAT_OF_SUFFIX.get(suffix, "text")
    return _split(chunker, _text(content, format), format, file.source)


def _pdf_chunks(content: bytes, source: str, chunker: Chunker) -> list[Document]:
    from sift_core.documents.pdf import text_of_pdf

    pdf = text_of_pdf(content)
    return [
        replace(
            chunk,
            metadata={
                **chunk.metadata,
                "page": pdf.page_at(chunk.metadata["start"]),
                "last_page": pdf.page_at(max(chunk.metadata["end"] - 1, chunk.metadata["start"])),
            },
        )
        for chunk in _split(chunker, pdf.text, "text", source)
    ]


def _split(chunker: Chunker, text: str, format: TextFormat, source: str) -> list[Document]:
    try:
        return chunker.split(text, format=format, document_id=source)
    except InvalidInputError as error:  # half a surrogate pair, which an escape can bring in
        raise SkipError(SkipReason.ENCODING, str(error)) from error


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
    except (UnicodeError, LookupError, SyntaxError) as error:
        raise SkipError(SkipReason.ENCODING, f"{error}; save it as UTF-8") from error
    return text.replace("\r\n", "\n").replace("\r", "\n")
