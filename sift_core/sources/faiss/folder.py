"""A folder that holds an index, its documents and the embedder's name, and is never half new.

    manifest.json             names the documents file; replacing it switches to a new state
    documents-<token>.sqlite  documents, what is known about the index, changes since its file
    index-<token>.faiss       the index, named by the documents file
    folder.lock               held by whoever saves

Files of these names that nothing refers to were left by a process that died; the next save
deletes them, and no others.
"""

from __future__ import annotations

import json
import os
import re
import uuid
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from sift_core.errors import CandidateSourceError
from sift_core.sources.faiss.entries import (
    entry_ids,
    starting_form,
)
from sift_core.sources.faiss.search import faiss
from sift_core.sources.faiss.sqlite_changes import IndexState, Row
from sift_core.sources.faiss.sqlite_documents import SQLiteDocuments
from sift_core.sources.faiss.sqlite_file import SQLiteFile

MANIFEST = "manifest.json"
FORMAT = 1
_TOKEN = "[0-9a-f]{12}"
_OURS = re.compile(
    rf"index-{_TOKEN}\.faiss|documents-{_TOKEN}\.sqlite(-journal)?|manifest-{_TOKEN}\.json"
)
BLOCK = 1 << 20


def save_folder(
    folder: Path,
    index: Any,
    rows: Iterable[Row],
    *,
    embedder_name: str | None,
    source: Path | None = None,
) -> None:
    """Write a state and switch to it; the one that was there is deleted afterwards.

    Args:
        folder: Created if it is missing, with its parents.
        index: Any CPU index.
        rows: The documents of its entries; may be fewer where some were removed.
        embedder_name: Model behind the vectors.
        source: The documents file that `rows` are read from, if any; never deleted.

    Raises:
        CandidateSourceError: If it cannot be written; what was there is as before.
    """
    token = uuid.uuid4().hex[:12]
    index_path = folder / f"index-{token}.faiss"
    documents_path = folder / f"documents-{token}.sqlite"
    manifest_path = folder / f"manifest-{token}.json"
    index = starting_form(index)
    with os_failures("save into", folder):
        folder.mkdir(parents=True, exist_ok=True)
        with folder_lock(folder):
            current_documents(folder)  # refuses to replace the manifest of something else
            try:
                state = replace(write_index(index, index_path), embedder_name=embedder_name)
                _write_documents(documents_path, rows, state, index)
                _write_manifest(manifest_path, documents_path.name)
                sync_folder(folder)
                os.replace(manifest_path, folder / MANIFEST)
                sync_folder(folder)
            except BaseException:
                if current_documents(folder) != documents_path:
                    delete_files([index_path, documents_path, manifest_path])
                raise
            sweep(folder, source)


def write_index(index: Any, path: Path) -> IndexState:
    """Write an index file durably; return what a state must know of it.

    Raises:
        CandidateSourceError: If it cannot be written; there is no file then.
    """
    checksum = size = 0

    def write(block: bytes) -> None:
        nonlocal checksum, size
        checksum = zlib.crc32(block, checksum)
        size += file.write(block)

    try:
        with os_failures("write", path), path.open("xb") as file:
            # Faiss' own writer does not notice that the disk is full when it closes a file.
            faiss.write_index(index, faiss.PyCallbackIOWriter(write, BLOCK))
            file.flush()
            os.fsync(file.fileno())
            sync_folder(path.parent)
    except RuntimeError as error:
        delete_files([path])
        raise CandidateSourceError(
            f"Faiss could not write {type(index).__name__} to {str(path)!r}: {error}; its type "
            f"cannot be saved"
        ) from error
    except BaseException:
        delete_files([path])
        raise
    return IndexState(
        dimension=index.d, snapshot=path.name, snapshot_bytes=size, snapshot_crc=checksum
    )


def current_documents(folder: Path) -> Path | None:
    """Return the documents file that a folder's manifest names; None where there is none.

    Raises:
        CandidateSourceError: If the manifest is no manifest, or of a newer format.
    """
    try:
        text = (folder / MANIFEST).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    try:
        manifest = json.loads(text)
        found, name = manifest["format"], manifest["documents"]
    except (ValueError, TypeError, KeyError) as error:
        raise CandidateSourceError(
            f"{str(folder / MANIFEST)!r} is no manifest of this library, or damaged: {error!r}; "
            f"restore it, or save into another folder"
        ) from error
    if found != FORMAT:
        raise CandidateSourceError(
            f"{str(folder)!r} has format {found!r}, this version of sift-rerank reads {FORMAT}; "
            f"upgrade sift-rerank"
        )
    if not isinstance(name, str) or Path(name).name != name:
        raise CandidateSourceError(
            f"{str(folder / MANIFEST)!r} names {name!r}, which is no file of its folder; restore it"
        )
    return folder / name


def is_saved_in(folder: Path, home: Path | None) -> bool:
    """Return whether a source that was loaded from `home` lives in `folder`."""
    return home is not None and folder.is_dir() and folder.samefile(home)


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Be the only one who saves into a folder; a process that dies lets go.

    Raises:
        CandidateSourceError: If another one holds it for longer than ten seconds.
    """
    lock = SQLiteFile(folder / "folder.lock", create=True)  # its locks work everywhere
    try:
        with lock.transaction():
            yield
    finally:
        lock.close()


def sweep(folder: Path, source: Path | None = None) -> None:
    """Delete files of earlier states; hold the folder's lock meanwhile.

    Only names with a token as `save_folder` makes them: whatever else is there stays.

    Args:
        folder: Where they are.
        source: A documents file that stays too if it is there, with its index.
    """
    current = current_documents(folder)
    if current is None:
        return
    kept = _files_of(current)
    if source is not None and source.exists() and source.parent.samefile(folder):
        kept |= _files_of(source)
    delete_files(
        path
        for path in sorted(folder.iterdir())
        if _OURS.fullmatch(path.name) and path.name not in kept
    )


def _files_of(path: Path) -> set[str | None]:
    documents = SQLiteDocuments.existing(path)
    try:
        return {path.name, f"{path.name}-journal", documents.state().snapshot}
    finally:
        documents.close()


def sweep_snapshots(documents: SQLiteDocuments) -> None:
    """Delete index files of a documents file without a folder that it does not name any more.

    Only those with names made from the file's own: a copy of it may need others. Other
    writers wait meanwhile.

    Raises:
        CandidateSourceError: If another process writes for too long; nothing is deleted then.
    """
    if documents.path is None:
        return
    home = documents.path.parent
    ours = re.compile(rf"{re.escape(documents.path.name)}\.index-{_TOKEN}\.faiss")
    with documents.alone() as state:
        delete_files(
            path
            for path in sorted(home.iterdir())
            if ours.fullmatch(path.name) and path.name != state.snapshot
        )


def delete_files(paths: Iterable[Path]) -> None:
    """Delete files where that is possible; Windows keeps one that another process reads."""
    for path in paths:
        with suppress(OSError):
            path.unlink()


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable, where the system has a call for that."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_documents(path: Path, rows: Iterable[Row], state: IndexState, index: Any) -> None:
    documents = SQLiteDocuments(path)
    try:
        with documents.transaction() as transaction:
            transaction.insert(rows)
            n_documents = transaction.count()
            next_id = max(transaction.state.next_id, int(entry_ids(index).max(initial=-1)) + 1)
            transaction.state = replace(
                state, next_id=next_id, n_removed=index.ntotal - n_documents
            )
    finally:
        documents.close()


def _write_manifest(path: Path, documents: str) -> None:
    with path.open("x", encoding="utf-8") as file:
        json.dump({"format": FORMAT, "documents": documents}, file)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def os_failures(verb: str, path: Path) -> Iterator[None]:
    """Raise the system's errors as ours."""
    try:
        yield
    except OSError as error:
        raise CandidateSourceError(
            f"could not {verb} {str(path)!r}: {error}; is there space, and may this user do that?"
        ) from error
