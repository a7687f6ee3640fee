"""What `sift index` remembers of files, so that those that did not change are not read again.

It lies beside a store in a folder. It speeds things up and decides nothing: a file counts as
unchanged if its bytes are those of last time and the store still holds all its chunks.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import sift_core
from sift_core.cli.index_writing import NOT_NOW
from sift_core.cli.stores import StoreAddress
from sift_core.documents import FileReading, FoundFile, FoundFiles, SkippedPath, SkipReason
from sift_core.sources import content_id

NAME = "files.json"
_PACKAGES = (  # whose next version may cut or read otherwise
    "beautifulsoup4",
    "markdownify",
    "pypdf",
    "semantic-text-splitter",
    "sift-rerank",
    "tokenizers",
)


@dataclass(frozen=True, kw_only=True)
class _File:
    """One file as it was read.

    Args:
        content: Digest of its bytes.
        chunks: Digest of the content ids of its chunks; None where it was left out.
        reason: Name of the `SkipReason`; None where it was read.
        detail: Of the reason.
    """

    content: str
    chunks: str | None = None
    reason: str | None = None
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class Recalled:
    """What is known before any file is read.

    Args:
        to_read: Files that are new or changed; with everything that is known to be left out.
        unchanged: Content ids of the chunks of every file that is stored as it is.
    """

    to_read: FoundFiles
    unchanged: Mapping[str, frozenset[str]]


class FileMemory:
    """What was read into one store; empty where nothing is remembered, or of other readers.

    Args:
        address: The store. Nothing is kept for a server.
        embedder_name: The model, by which chunks are cut.
    """

    def __init__(self, address: StoreAddress, embedder_name: str) -> None:
        self._path = None if address.is_server else Path(address.location, NAME)
        self._readers = {"embedder": embedder_name, "collection": address.collection, **_readers()}
        self._files = self._loaded()
        self._seen: dict[str, str] = {}

    def recall(self, found: FoundFiles, stored: Mapping[str, str]) -> Recalled:
        """Return which of the found files need to be read; each one's bytes are hashed.

        Args:
            found: Files.
            stored: File of each stored chunk, by content id.
        """
        if self._path is None:
            return Recalled(to_read=found, unchanged={})
        ids_of: dict[str, set[str]] = {}
        for key, source in stored.items():
            ids_of.setdefault(source, set()).add(key)
        to_read: list[FoundFile] = []
        skipped = list(found.skipped)
        unchanged: dict[str, frozenset[str]] = {}
        for file in found.files:
            content = self._seen[file.source] = _digest_of(file)
            known = self._files.get(file.source)
            ids = frozenset(ids_of.get(file.source, ()))
            if known is None or known.content != content:
                to_read.append(file)
            elif known.reason is not None and not ids:
                reason = SkipReason[known.reason]
                skipped.append(SkippedPath(source=file.source, reason=reason, detail=known.detail))
            elif ids and known.chunks == _digest(ids):
                unchanged[file.source] = ids
            else:
                to_read.append(file)
        return Recalled(
            to_read=FoundFiles(files=tuple(to_read), skipped=tuple(skipped)), unchanged=unchanged
        )

    def remember(self, reading: FileReading, unchanged: Iterable[str]) -> None:
        """Keep what was read, now that all of it is stored; a disk that is full is no error.

        Args:
            reading: What was read since `recall`.
            unchanged: Files that were not read again.
        """
        if self._path is None:
            return
        ids_of: dict[str, set[str]] = {}
        for document in reading.documents:
            ids_of.setdefault(document.metadata["source"], set()).add(content_id(document))
        files = {source: self._files[source] for source in unchanged}
        for source, ids in ids_of.items():
            files[source] = _File(content=self._seen[source], chunks=_digest(ids))
        for path in reading.skipped:
            content = self._seen.get(path.source)
            if content and path.reason not in NOT_NOW:
                files[path.source] = _File(
                    content=content, reason=path.reason.name, detail=path.detail
                )
        record = {
            "readers": self._readers,
            "files": {source: asdict(file) for source, file in files.items()},
        }
        new = self._path.with_name(f"{NAME}.new")
        with suppress(OSError):
            new.write_text(json.dumps(record), encoding="utf-8")
            os.replace(new, self._path)

    def _loaded(self) -> dict[str, _File]:
        if self._path is None:
            return {}
        try:
            record: Any = json.loads(self._path.read_text(encoding="utf-8"))
            if record["readers"] != self._readers:
                return {}
            files = {source: _File(**file) for source, file in record["files"].items()}
            known = {*SkipReason.__members__, None}
            return files if all(file.reason in known for file in files.values()) else {}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}  # none yet, or no file of ours: everything is read


def _digest_of(file: FoundFile) -> str:
    """Return the digest of a file's bytes; "" where it cannot be read, which its reader tells."""
    try:
        return sha256(file.path.read_bytes()).hexdigest()
    except OSError:
        return ""


def _digest(ids: Iterable[str]) -> str:
    return sha256("\n".join(sorted(ids)).encode()).hexdigest()


def _readers() -> dict[str, str]:
    """Return what decides how a file becomes chunks: our own modules and others' versions."""
    own = sha256()
    for package in ("chunking", "reading"):
        for path in sorted(Path(sift_core.__file__).with_name(package).glob("*.py")):
            own.update(path.read_bytes())
    versions = {"sources": own.hexdigest()}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "missing"
    return versions
