"""From files and folders to chunks, and what was left out."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass

from sift_core.documents.budget import Budget, BudgetReader
from sift_core.documents.chunker import Chunker
from sift_core.documents.file_dates import FileDates
from sift_core.documents.finding import MAX_BYTES, FoundFile, FoundFiles, SkippedPath, find_files
from sift_core.types import Document

_BUDGET = Budget()


@dataclass(frozen=True, kw_only=True)
class FileReading:
    """What was read at some paths.

    Args:
        documents: Chunks, in the order of the files and of their text.
        sources: Names of the files that they are from, each once, in order.
        skipped: What was not read, and why. A file of which some pages were left out is among the
            sources, too.
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
    budget: Budget | None = _BUDGET,
) -> FileReading:
    r"""Return the chunks of files and folders, and what was left out.

    Markdown, reStructuredText, Python and plain text are cut as they are; of HTML the main content
    becomes Markdown first (extra `files`), of PDF the text is taken (extra `files`). Word,
    PowerPoint, Excel, EPUB (extra `office`) and notebooks become Markdown. What lacks its extra is
    left out. All chunks are held in memory: some 1.5 times the text. Text is UTF-8,
    UTF-16 with a byte order mark, or what a Python file declares; its line ends become "\n", so
    that a checkout on Windows gives the same chunks. Front matter (YAML between lines of "---",
    TOML between lines of "+++") is in no chunk, but its title becomes a heading.

    Args:
        paths: Files and folders.
        chunker: What cuts; `Chunker()` if left out.
        base: As for `find_files`.
        max_bytes: The largest file to read, in bytes.
        budget: What one file may take, in time and memory. With None there is no limit.

    Raises:
        InvalidInputError: If there is nothing at a path.

    Example:
        >>> reading = read_files([folder / "ferry.md"], base=folder)
        >>> [document.document_id for document in reading.documents], reading.skipped
        (['ferry.md#0'], ())
    """
    found = find_files(paths, base=base, max_bytes=max_bytes)
    return read_found(found, chunker or Chunker(), budget=budget)


def read_found(
    found: FoundFiles,
    chunker: Chunker | Callable[[], Chunker],
    *,
    budget: Budget | None = _BUDGET,
    on_file: Callable[[FoundFile], object] | None = None,
    with_dates: bool = False,
) -> FileReading:
    """Return what `read_files` returns, of files that were found before.

    Args:
        found: What `find_files` returned.
        chunker: What cuts, or makes what cuts; the latter is called while the process starts that
            reads, for which a tokenizer that takes its time to load leaves time.
        budget: What one file may take, in time and memory. With None there is no limit. PDF, HTML,
            reStructuredText, Office files, EPUB, notebooks, and other files over 8 kB, are read in
            a process of their own.
        on_file: Called with each file after it was read, for a progress bar.
        with_dates: Whether a file that states no date gets that of Git's last commit of it, or
            else its own time. Default: False.

    Example:
        >>> reading = read_found(find_files([folder / "ferry.md"]), Chunker(500))
        >>> reading.documents[0].text.splitlines()[-1]
        'The ferry sails at nine.'
    """
    skipped = list(found.skipped)
    documents: list[Document] = []
    sources: list[str] = []
    dates = FileDates(found.files) if with_dates else None
    with closing(BudgetReader(found.files, budget)) as reader:
        cutter = chunker if isinstance(chunker, Chunker) else chunker()
        for file in found.files:
            chunks, left_out = reader.read(file, cutter)
            if on_file is not None:
                on_file(file)
            if left_out is not None:
                skipped.append(left_out)
            if chunks:
                documents += chunks if dates is None else dates.dated(chunks, file)
                sources.append(file.source)
    return FileReading(documents=tuple(documents), sources=tuple(sources), skipped=tuple(skipped))
