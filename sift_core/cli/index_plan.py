"""What `sift index` reads, writes and deletes, decided before the first write.

What was read before is remembered beside a store in a folder. That speeds things up and decides
nothing: a file counts as unchanged if its bytes are those of last time and the store still holds
all its chunks.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import sift_core.documents
from sift_core.cli.stores import StoreAddress
from sift_core.documents import FileReading, FoundFiles, SkipReason
from sift_core.documents.finding import FoundFile, SkipError, SkippedPath
from sift_core.documents.reader import content_of
from sift_core.errors import InvalidInputError
from sift_core.files import seal, unseal, write_whole
from sift_core.sources import content_id

MEMORY_NAME = "files.json"
LEAST_TOKENS = 16  # of a chunk, below which hardly a sentence fits. A guess.
N_NAMES_SHOWN = 3
NOT_NOW = (SkipReason.UNREADABLE, SkipReason.MISSING_PACKAGE)  # nothing is known of the file
_PACKAGES = (  # whose next version may cut or read otherwise
    "beautifulsoup4",
    "markdownify",
    "pypdf",
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
        address: The store. Nothing is kept for a server.
        embedder_name: The model, by which chunks are cut.
        chunk_tokens: The length that is asked for now; None for that of the last time.

    Attributes:
        chunk_tokens: The length of chunks at most; None where none was ever asked for.
        unchanged: After `recall`, content ids of the chunks of every file that is stored as it is.
    """

    def __init__(
        self, address: StoreAddress, embedder_name: str, *, chunk_tokens: int | None = None
    ) -> None:
        self._path = None if address.is_server else Path(address.location, MEMORY_NAME)
        self._readers = {"embedder": embedder_name, "collection": address.collection, **_readers()}
        self.chunk_tokens = chunk_tokens
        self.unchanged: dict[str, frozenset[str]] = {}
        self._files: dict[str, Any] = {}
        self._seen: dict[str, str] = {}  # digests of the files found now
        with suppress(OSError, ValueError):  # none yet, or damaged: everything is read
            if self._path is not None and self._path.is_file():
                kept = unseal(self._path.read_bytes(), MEMORY_NAME)
                before = _chunk_tokens(kept, address)
                self.chunk_tokens = chunk_tokens or before
                if kept["readers"] == self._readers and self.chunk_tokens == before:
                    self._files = kept["files"]

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
                case {"chunks": chunks} if ids and chunks == _digest(ids):
                    self.unchanged[file.source] = ids
                case {"reason": reason, "detail": str(detail)} if (
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
            if path.reason not in NOT_NOW and (content := self._seen.get(path.source)):
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
class Plan:
    """What is to be done to make a store equal to what was read.

    Args:
        n_new: How many chunks will be embedded.
        stale: File of each chunk to delete, by content id.
        n_chunks_unread: Chunks of the files that did not change.
        n_files: Files whose text the store will hold, unreadable ones not counted.
        kept_files: Files that are stored, could not be read now, and keep their chunks.
        deleted_files: Stored files that lose all chunks: no longer there, not among the PATHs, or
            left out now.
    """

    n_new: int
    stale: Mapping[str, str]
    n_chunks_unread: int
    n_files: int
    kept_files: tuple[str, ...]
    deleted_files: tuple[str, ...]

    @classmethod
    def of(
        cls,
        reading: FileReading,
        stored: Mapping[str, str],
        unchanged: Mapping[str, frozenset[str]],
    ) -> Plan:
        """Return the plan.

        A file or folder that could not be read now (rights, a disk that is away, a package that is
        missing) has not vanished: what is stored of it stays.

        Args:
            reading: What was read.
            stored: File of each stored chunk, by content id.
            unchanged: Content ids of files that were not read, since they are stored as they are.
        """
        read = {content_id(document) for document in reading.documents}
        current = read.union(*unchanged.values())
        unreadable = tuple(path.source for path in reading.skipped if path.reason in NOT_NOW)
        kept = {
            file
            for file in stored.values()
            if file in unreadable or file.startswith(_folders(unreadable))
        }
        stale = {
            key: file for key, file in stored.items() if key not in current and file not in kept
        }
        files = {*reading.sources, *unchanged}
        return cls(
            n_new=len(current - stored.keys()),
            stale=stale,
            n_chunks_unread=len(current) - len(read),
            n_files=len(files),
            kept_files=tuple(sorted(kept)),
            deleted_files=tuple(sorted(set(stale.values()) - files)),
        )


def refuse_to_drop(address: StoreAddress, stored: Collection[str], found: FoundFiles) -> None:
    """Refuse to delete what is stored of files that are merely not among the PATHs.

    That is more often a mistake, and embedding them again takes its time.

    Args:
        address: The store.
        stored: The files that it has chunks of.
        found: What was found to read now.

    Raises:
        InvalidInputError: If a stored file is still there and not among those found, or none of
            the stored ones is.
    """
    names = {file.source for file in found.files} | {path.source for path in found.skipped}
    missing = sorted(set(stored) - names)
    if stored and len(missing) == len(stored):
        raise InvalidInputError(
            f"nothing in the index at {address} is of these PATHs; it holds {some_of(missing)}, "
            f"which would be deleted. Pass those PATHs as well, call it from the same folder as "
            f"then (names are relative to it), or take another --store"
        )
    unreadable = _folders([path.source for path in found.skipped if path.reason in NOT_NOW])
    outside = [
        file for file in missing if os.path.lexists(file) and not file.startswith(unreadable)
    ]
    if outside:
        raise InvalidInputError(
            f"the PATHs leave out {some_of(outside)}, which the index at {address} holds and which "
            f"{'is' if len(outside) == 1 else 'are'} still there. Pass those PATHs as well, or "
            f"--prune to delete them from the index"
        )


def some_of(names: Iterable[str]) -> str:
    """Return names in one line: the first few, with how many more there are."""
    shown = list(names)
    more = len(shown) - N_NAMES_SHOWN
    first = ", ".join(shown[:N_NAMES_SHOWN])
    return f"{first} and {more:,} more" if more > 0 else first


def _folders(sources: Sequence[str]) -> tuple[str, ...]:
    return tuple(source for source in sources if source.endswith("/"))


def _chunk_tokens(kept: Mapping[str, Any], address: StoreAddress) -> int | None:
    """Return the length of chunks that is remembered of this collection; None where none is."""
    length = kept.get("chunk_tokens")
    is_ours = kept["readers"].get("collection") == address.collection
    return length if is_ours and isinstance(length, int) and length >= LEAST_TOKENS else None


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
    for path in sorted(Path(*sift_core.documents.__path__).glob("*.py")):
        own.update(path.read_bytes())
    versions = {"sources": own.hexdigest()}
    for package in _PACKAGES:
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    return versions
