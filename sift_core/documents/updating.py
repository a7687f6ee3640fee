"""What an index of files needs: which files changed since it was filled, and what to delete."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from sift_core.checks import as_count
from sift_core.documents.chunk_length import LEAST_TOKENS
from sift_core.documents.file_content import content_of
from sift_core.documents.finding import FoundFile, FoundFiles, SkipError, SkippedPath, SkipReason
from sift_core.documents.reader import FileReading
from sift_core.files import DAMAGE, seal, unseal, write_whole
from sift_core.sources.content_ids import content_id

MEMORY_NAME = "files.json"
NOT_NOW = (  # nothing is known of the file
    SkipReason.UNREADABLE,
    SkipReason.MISSING_OFFICE_PACKAGE,
    SkipReason.MISSING_PACKAGE,
)
_PACKAGES = (  # whose next version may cut or read otherwise
    "beautifulsoup4",
    "lxml",
    "mammoth",
    "markdownify",
    "openpyxl",
    "pypdf",
    "python-pptx",
    "semantic-text-splitter",
    "sift-rerank",
    "tokenizers",
)


class FileMemory:
    """What was read into one store; empty where nothing is remembered, or of other readers.

    The file has, for each file that was read, the digest of its bytes with the digest of its
    chunks' content ids, or with the reason why it was left out.

    It also has the length of chunks that was asked for last, which holds until another is.

    Args:
        folder: Of the store. With None nothing is remembered.
        embedder_name: The model, by which chunks are cut.
        collection: Name of the collection in the folder.
        chunk_tokens: Tokens of a chunk. Default: as many as the last time.

    Attributes:
        chunk_tokens: Greatest length of chunks in tokens; None if none was ever given.
        unchanged: After `recall`, content ids of the chunks of every file that is stored as it is.
    """

    def __init__(
        self,
        folder: str | None,
        embedder_name: str,
        *,
        collection: str,
        chunk_tokens: int | None = None,
    ) -> None:
        self._path = None if folder is None else Path(folder, MEMORY_NAME)
        self._readers = {"embedder": embedder_name, "collection": collection, **_readers()}
        self.chunk_tokens = chunk_tokens
        self.unchanged: dict[str, frozenset[str]] = {}
        self._files: dict[str, Any] = {}
        self._seen: dict[str, str] = {}  # digests of the files found now
        # None yet, damaged, or of another form: everything is read.
        with suppress(OSError, *DAMAGE):
            if self._path is not None and self._path.is_file():
                kept = unseal(self._path.read_bytes(), MEMORY_NAME)
                before = _chunk_tokens(kept, collection)
                self.chunk_tokens = chunk_tokens or before
                if kept["readers"] == self._readers and self.chunk_tokens == before:
                    self._files = dict(kept["files"])

    def recall(self, found: FoundFiles, stored: Mapping[str, str]) -> FoundFiles:
        """Return the files that are new or changed, with all that is known to be left out.

        Args:
            found: Files, whose bytes are hashed.
            stored: File of each stored chunk, by content id.
        """
        if self._path is None:
            return found
        ids_of: dict[str, set[str]] = {}
        for key, source in stored.items():
            ids_of.setdefault(source, set()).add(key)
        to_read: list[FoundFile] = []
        skipped = list(found.skipped)
        for file in found.files:
            self._seen[file.source] = _digest_of(file)
            ids = frozenset(ids_of.get(file.source, ()))
            match self._files.get(file.source):
                case {"content": content} if content != self._seen[file.source]:
                    to_read.append(file)
                case {"chunks": chunks, **about} if ids and chunks == _digest(ids):
                    self.unchanged[file.source] = ids
                    if pages := about.get("without_pages"):
                        reason, detail = SkipReason.SOME_PAGES, str(pages)
                        skipped.append(
                            SkippedPath(source=file.source, reason=reason, detail=detail)
                        )
                case {"reason": str(reason), "detail": str(detail)} if (
                    not ids and reason in SkipReason.__members__
                ):
                    left_out = SkipReason[reason]
                    skipped.append(SkippedPath(source=file.source, reason=left_out, detail=detail))
                case _:
                    to_read.append(file)
        return FoundFiles(files=tuple(to_read), skipped=tuple(skipped))

    def remember(self, reading: FileReading) -> None:
        """Keep what was read since `recall` and is stored now; a full disk is no error."""
        if self._path is None:
            return
        ids_of: dict[str, set[str]] = {}
        for document in reading.documents:
            ids_of.setdefault(document.metadata["source"], set()).add(content_id(document))
        files = {source: self._files[source] for source in self.unchanged}
        for source, ids in ids_of.items():
            files[source] = {"content": self._seen[source], "chunks": _digest(ids)}
        for path in reading.skipped:
            if path.reason is SkipReason.SOME_PAGES:
                files[path.source]["without_pages"] = path.detail
            elif path.reason not in NOT_NOW and (content := self._seen.get(path.source)):
                files[path.source] = {
                    "content": content,
                    "reason": path.reason.name,
                    "detail": path.detail,
                }
        record: dict[str, Any] = {"readers": self._readers, "files": files}
        if self.chunk_tokens is not None:
            record["chunk_tokens"] = self.chunk_tokens
        with suppress(OSError):
            write_whole(self._path, seal(record, MEMORY_NAME))


@dataclass(frozen=True, kw_only=True)
class UpdatePlan:
    """What makes a store equal to what was read.

    Args:
        wanted: Content ids of all chunks of files that could be read now, or did not change.
        files: The files whose text these chunks are.
        stale: File of each chunk to delete, by content id.
        kept_files: Files that are stored, could not be read now, and keep their chunks.
    """

    wanted: frozenset[str]
    files: frozenset[str]
    stale: Mapping[str, str]
    kept_files: frozenset[str]

    @classmethod
    def of(
        cls,
        reading: FileReading,
        stored: Mapping[str, str],
        unchanged: Mapping[str, frozenset[str]],
    ) -> UpdatePlan:
        """Return the plan.

        A file or folder that could not be read now (rights, a disk that is away, a package that is
        missing) has not vanished: what is stored of it stays.

        Args:
            reading: What was read.
            stored: File of each stored chunk, by content id.
            unchanged: Content ids of files that were not read, since they are stored as they are.
        """
        wanted = frozenset(map(content_id, reading.documents)).union(*unchanged.values())
        away = unreadable(reading.skipped)
        folders = tuple(place for place in away if place.endswith("/"))
        kept = frozenset(
            file for file in stored.values() if file in away or file.startswith(folders)
        )
        return cls(
            wanted=wanted,
            files=frozenset({*reading.sources, *unchanged}),
            stale={
                key: file for key, file in stored.items() if key not in wanted and file not in kept
            },
            kept_files=kept,
        )


def unreadable(skipped: Iterable[SkippedPath]) -> frozenset[str]:
    """Return the files and folders that were left out since they could not be read now."""
    return frozenset(path.source for path in skipped if path.reason in NOT_NOW)


def _chunk_tokens(kept: Mapping[str, Any], collection: str) -> int | None:
    """Return the length of chunks that this collection remembers; None if it has none."""
    length = kept.get("chunk_tokens")
    if length is None or kept["readers"].get("collection") != collection:
        return None
    return as_count("chunk_tokens", length, minimum=LEAST_TOKENS)


def _digest_of(file: FoundFile) -> str:
    """Return the digest of a file's bytes; "" where it cannot be read, which its reader tells."""
    try:
        return sha256(content_of(file)).hexdigest()
    except SkipError:
        return ""


def _digest(ids: Iterable[str]) -> str:
    return sha256("\n".join(sorted(ids)).encode()).hexdigest()


def _readers() -> dict[str, str]:
    """Return what decides how a file becomes chunks: our own modules and others' versions."""
    own = sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        own.update(path.read_bytes())
    versions = {"sources": own.hexdigest()}
    for package in _PACKAGES:
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    return versions
