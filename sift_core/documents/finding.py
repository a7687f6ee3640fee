"""Which files there are to read, under which names, and which are left out and why."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from sift_core.documents.chunker import FORMAT_OF_SUFFIX
from sift_core.errors import InvalidInputError

HTML_SUFFIXES = (".html", ".htm", ".xhtml")
PDF_SUFFIX = ".pdf"
NOTEBOOK_SUFFIX = ".ipynb"
WITHOUT_MACROS = {".docm": ".docx", ".pptm": ".pptx", ".xlsm": ".xlsx"}  # no macro is run
OFFICE_SUFFIXES = (".docx", ".pptx", ".xlsx", ".epub", *WITHOUT_MACROS)
SUFFIXES = (*FORMAT_OF_SUFFIX, *HTML_SUFFIXES, PDF_SUFFIX, NOTEBOOK_SUFFIX, *OFFICE_SUFFIXES)
MAX_BYTES = 50_000_000  # a guess: a thousand pages of PDF with figures; text as long is a dump

_CACHE_FOLDERS = {"__pycache__", "node_modules", "site-packages", "venv"}


class SkipReason(Enum):
    """Why a file or folder was not read; the value says it to a reader."""

    BINARY = "binary, no text"
    BROKEN = "broken"
    CACHE = "caches and installed packages"
    EMPTY = "empty"
    ENCODING = "no valid text in its encoding (save it as UTF-8)"
    ENCRYPTED = "encrypted (save a copy without its password or protection)"
    HIDDEN = "hidden"
    LINK = "links"
    MISSING_OFFICE_PACKAGE = "need a package of the extra office (sift doctor tells how)"
    MISSING_PACKAGE = "need a package of the extra files (sift doctor tells how)"
    NO_TEXT = "no text in it (scanned pages? ocrmypdf or another OCR adds text)"
    SOME_PAGES = "read without some pages, which are pictures (ocrmypdf or another OCR adds text)"
    TOO_COSTLY = "took too long or too much memory to read"
    TOO_LARGE = "too large"
    UNKNOWN_SUFFIX = "unknown suffix"
    UNREADABLE = "could not be read"


class SkipError(Exception):
    """Raised inside this package by what cannot read a file; never leaves it."""

    def __init__(self, reason: SkipReason, detail: str = "") -> None:
        super().__init__(detail or reason.value)
        self.reason = reason
        self.detail = detail


def broken(error: Exception) -> SkipError:
    """Return what says of a file that its format's reader failed with some error."""
    if isinstance(error, MemoryError):
        raise error
    detail = " ".join(str(error).split())[:200]
    return SkipError(SkipReason.BROKEN, f"{type(error).__name__}: {detail}")


@dataclass(frozen=True, kw_only=True)
class SkippedPath:
    """A file, or a folder with all that it holds, that was not read, or some pages of a file.

    Args:
        source: Its path as a document id would begin, with "/"; a folder's ends with one.
        reason: Why.
        detail: What exactly was wrong, or which pages; "" where the reason says it all.
    """

    source: str
    reason: SkipReason
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class FoundFile:
    """A file to read.

    Args:
        path: Where it is.
        source: Its name in document ids and metadata: the path relative to the base, with "/".
        n_bytes: Its size.
    """

    path: Path
    source: str
    n_bytes: int


@dataclass(frozen=True, kw_only=True)
class FoundFiles:
    """What lies at some paths.

    Args:
        files: To be read, each once, in the order of the paths; a folder's by name.
        skipped: What is left out without opening it.

    Example:
        >>> found = find_files([folder], base=folder)
        >>> [file.source for file in found.files], len(found.skipped)
        (['ferry.md', 'questions.txt'], 0)
    """

    files: tuple[FoundFile, ...]
    skipped: tuple[SkippedPath, ...]


def find_files(
    paths: Iterable[str | os.PathLike[str]],
    *,
    base: str | os.PathLike[str] | None = None,
    max_bytes: int = MAX_BYTES,
) -> FoundFiles:
    """Return the files at some paths: files themselves, and those in folders and below.

    In folders are left out, and listed: hidden files and folders, caches and installed packages
    (`__pycache__`, `node_modules`, `site-packages`, virtual environments), links (which may lead
    out of the folder, or in a loop), suffixes that are not read, what is larger than `max_bytes`,
    and what cannot be read. What is named itself is followed where it is a link, and not left out
    for its name: a file of an unknown suffix is read as text.

    Args:
        paths: Files and folders.
        base: The folder that names are relative to; the current one if left out. A file has the
            same name whichever path leads to it, so two paths never collide, and the same call
            from the same place gives the same names.
        max_bytes: The largest file to read, in bytes.

    Raises:
        InvalidInputError: If there is nothing at a path, it is no path, or paths are relative and
            the current folder was deleted.

    Example:
        >>> [file.source for file in find_files([folder], base=folder).files]
        ['ferry.md', 'questions.txt']
    """
    root = _absolute(base or ".")
    files: dict[str, FoundFile] = {}
    skipped: dict[str, SkippedPath] = {}
    for one in paths:
        given = os.fspath(one)
        if not given:
            raise InvalidInputError("a path to read must not be empty; the current folder is .")
        path = _absolute(given)
        if not os.path.lexists(path):
            raise InvalidInputError(
                f"there is no file or folder {given!r}; correct the path (names are relative to "
                f"{str(_absolute('.'))!r})"
            )
        is_folder = os.path.isdir(path)
        for found in _walk(path, root) if is_folder else [path]:
            if isinstance(found, Path):
                entry = _file(found, root, max_bytes, is_named=not is_folder)
            else:
                entry = found
            if isinstance(entry, FoundFile):
                files.setdefault(entry.source, entry)
            else:
                skipped.setdefault(entry.source, entry)
    left_out = (path for source, path in skipped.items() if source not in files)
    return FoundFiles(files=tuple(files.values()), skipped=tuple(left_out))


def _absolute(path: str | os.PathLike[str]) -> Path:
    try:
        return Path(os.path.abspath(path))
    except FileNotFoundError as error:
        raise InvalidInputError(
            "the current folder was deleted; change to one that exists (cd)"
        ) from error


def _walk(folder: Path, base: Path) -> Iterable[Path | SkippedPath]:
    """Yield the files in a folder and below, by name, and what is left out at first sight.

    Without recursion and `os.walk`, which end at some thousand folders in one another.
    """
    waiting = [folder]
    while waiting:
        here = waiting.pop()
        try:
            with os.scandir(here) as scanned:
                entries = sorted(scanned, key=lambda entry: entry.name)
        except OSError as error:  # rights, a name that is too long, a folder that vanished
            detail = error.strerror or str(error)
            source = f"{_source(here, base)}/"
            yield SkippedPath(source=source, reason=SkipReason.UNREADABLE, detail=detail)
            continue
        subfolders = []
        for entry in entries:
            path, reason = here / entry.name, None
            is_folder = _is_folder(entry)
            if entry.name.startswith((".", "~$")):  # Office names its locks "~$report.docx"
                reason = SkipReason.HIDDEN
            elif is_folder and (
                entry.name in _CACHE_FOLDERS or os.path.isfile(path / "pyvenv.cfg")
            ):
                reason = SkipReason.CACHE
            elif entry.is_symlink():
                reason = SkipReason.LINK
            if reason:
                mark = "/" if is_folder else ""
                yield SkippedPath(source=f"{_source(path, base)}{mark}", reason=reason)
            elif is_folder:
                subfolders.append(path)
            else:
                yield path
        waiting += reversed(subfolders)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry is a folder, by its parent's listing where that tells."""
    try:
        return entry.is_dir()
    except OSError:  # a link that cannot be followed
        return False


def _file(path: Path, base: Path, max_bytes: int, *, is_named: bool) -> FoundFile | SkippedPath:
    """Return a file, or why it is left out without opening it."""
    source = _source(path, base)

    def skip(reason: SkipReason, detail: str = "") -> SkippedPath:
        return SkippedPath(source=source, reason=reason, detail=detail)

    suffix = path.suffix.lower()
    if suffix not in SUFFIXES and not is_named:
        return skip(SkipReason.UNKNOWN_SUFFIX, suffix or "no suffix")
    try:
        status = path.stat()
        source.encode()
    except OSError as error:  # a link to nothing or in a circle; rights
        return skip(SkipReason.UNREADABLE, error.strerror or str(error))
    except UnicodeEncodeError:  # no document id can hold it
        return skip(SkipReason.UNREADABLE, "its name is not UTF-8")
    if not stat.S_ISREG(status.st_mode):  # a pipe would be waited for
        return skip(SkipReason.UNREADABLE, "no regular file")
    if status.st_size > max_bytes:
        return skip(SkipReason.TOO_LARGE, f"{status.st_size / 1e6:,.1f} MB")
    if status.st_size == 0:
        return skip(SkipReason.EMPTY)
    return FoundFile(path=path, source=source, n_bytes=status.st_size)


def _source(path: Path, base: Path) -> str:
    try:
        return Path(os.path.relpath(path, base)).as_posix()
    except ValueError:  # another drive of Windows
        return path.as_posix()
