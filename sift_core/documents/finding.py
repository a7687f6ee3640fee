"""Which files there are to read, under which names, and which are left out at first sight."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from sift_core.documents import FORMAT_OF_SUFFIX
from sift_core.documents.skipped import SkippedPath, SkipReason
from sift_core.errors import InvalidInputError

HTML_SUFFIXES = (".html", ".htm", ".xhtml")
PDF_SUFFIX = ".pdf"
SUFFIXES = (*FORMAT_OF_SUFFIX, *HTML_SUFFIXES, PDF_SUFFIX)
MAX_BYTES = 50_000_000  # a guess: a thousand pages of PDF with figures; text as long is a dump

_CACHE_FOLDERS = {"__pycache__", "node_modules", "site-packages", "venv"}


@dataclass(frozen=True, kw_only=True)
class FoundFile:
    """A file to read.

    Args:
        path: Where it is.
        source: Its name in document ids and metadata: the path relative to the base, with "/".
        n_bytes: Its size.
        is_named: Whether it was named itself rather than found in a folder.
    """

    path: Path
    source: str
    n_bytes: int
    is_named: bool = False


@dataclass(frozen=True, kw_only=True)
class FoundFiles:
    """What lies at some paths.

    Args:
        files: To be read, each once, in the order of the paths; a folder's by name.
        skipped: What is left out without opening it.
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
    (`__pycache__`, `node_modules`, `site-packages`, virtual environments), links to folders (so
    that a loop is no danger), suffixes that are not read, and what is larger than `max_bytes`. What
    is named itself is not left out for its name: a file of an unknown suffix is read as text.

    Args:
        paths: Files and folders.
        base: The folder that names are relative to; the current one if left out. A file has the
            same name whichever path leads to it, so two paths never collide, and the same call
            from the same place gives the same names.
        max_bytes: The largest file to read, in bytes.

    Raises:
        InvalidInputError: If there is nothing at a path, or it is no path.
    """
    search = _Search(Path(os.path.abspath(base or ".")), max_bytes)
    for path in paths:
        if not os.fspath(path):
            raise InvalidInputError("a path to read must not be empty; the current folder is .")
        search.add(Path(os.path.abspath(path)), given=os.fspath(path))
    return FoundFiles(files=tuple(search.files.values()), skipped=tuple(search.skipped.values()))


class _Search:
    """Collects files and what is left out, each once."""

    def __init__(self, base: Path, max_bytes: int) -> None:
        self._base = base
        self._max_bytes = max_bytes
        self.files: dict[Path, FoundFile] = {}
        self.skipped: dict[str, SkippedPath] = {}

    def add(self, path: Path, *, given: str) -> None:
        """Take in what a path leads to."""
        if path.is_dir():
            self._add_folder(path)
        elif os.path.lexists(path):
            self._add_file(path, is_named=True)
        else:
            raise InvalidInputError(
                f"there is no file or folder {given!r}; correct the path (the current folder is "
                f"{os.getcwd()!r})"
            )

    def _add_folder(self, root: Path) -> None:
        for folder, subfolders, names in os.walk(root, onerror=self._could_not_list):
            here = Path(folder)
            for name in sorted(subfolders):
                if reason := _why_not_enter(here / name):
                    subfolders.remove(name)
                    self._skip(here / name, reason, is_folder=True)
            subfolders.sort()
            for name in sorted(names):
                if name.startswith("."):
                    self._skip(here / name, SkipReason.HIDDEN)
                else:
                    self._add_file(here / name, is_named=False)

    def _add_file(self, path: Path, *, is_named: bool) -> None:
        if path in self.files:
            return
        suffix = path.suffix.lower()
        if suffix not in SUFFIXES and not is_named:
            self._skip(path, SkipReason.UNKNOWN_SUFFIX, suffix or "no suffix")
            return
        try:
            status = path.stat()
        except OSError as error:  # a link to nothing or in a circle; rights
            self._skip(path, SkipReason.UNREADABLE, error.strerror or str(error))
            return
        if not stat.S_ISREG(status.st_mode):  # a pipe would be waited for
            self._skip(path, SkipReason.UNREADABLE, "no regular file")
        elif status.st_size > self._max_bytes:
            self._skip(path, SkipReason.TOO_LARGE, f"{status.st_size / 1e6:,.1f} MB")
        elif status.st_size == 0:
            self._skip(path, SkipReason.EMPTY)
        else:
            source = self._source(path)
            try:
                source.encode()
            except UnicodeEncodeError:  # no document id can hold it
                self._skip(path, SkipReason.UNREADABLE, "its name is not UTF-8")
                return
            self.skipped.pop(source, None)  # found in a folder first, then named itself
            self.files[path] = FoundFile(
                path=path, source=source, n_bytes=status.st_size, is_named=is_named
            )

    def _could_not_list(self, error: OSError) -> None:
        self._skip(Path(error.filename), SkipReason.UNREADABLE, error.strerror or "", True)

    def _skip(
        self, path: Path, reason: SkipReason, detail: str = "", is_folder: bool = False
    ) -> None:
        source = self._source(path) + "/" * is_folder
        self.skipped[source] = SkippedPath(source=source, reason=reason, detail=detail)

    def _source(self, path: Path) -> str:
        try:
            return Path(os.path.relpath(path, self._base)).as_posix()
        except ValueError:  # another drive of Windows
            return path.as_posix()


def _why_not_enter(folder: Path) -> SkipReason | None:
    """Return why a folder below a named one is left out; None where it is not."""
    if folder.name.startswith("."):
        return SkipReason.HIDDEN
    if folder.name in _CACHE_FOLDERS or (folder / "pyvenv.cfg").is_file():
        return SkipReason.CACHE
    return SkipReason.LINK if folder.is_symlink() else None
