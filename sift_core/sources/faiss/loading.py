"""Reading an index and its documents from a folder, with all that was written since."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import numpy as np

from sift_core.errors import CandidateSourceError, InvalidInputError
from sift_core.sources.faiss.entries import add_entries, entry_ids, remove_entries, takes_ids
from sift_core.sources.faiss.folder import BLOCK, MANIFEST, current_documents, os_failures
from sift_core.sources.faiss.search import check_ids_complete, faiss
from sift_core.sources.faiss.sqlite_changes import Change, IndexState
from sift_core.sources.faiss.sqlite_documents import SQLiteDocuments
from sift_core.types import IntArray

_CHANGES_AT_ONCE = 4096


@dataclass(frozen=True, kw_only=True, eq=False)
class OpenedIndex:
    """What was read from disk.

    Args:
        index: With all changes applied.
        documents: Open.
        state: What `documents` says about the index, as of the last change applied.
        n_documents: Their number in that state.
        folder: Where a manifest names the documents; None for a documents file by itself.
    """

    index: Any
    documents: SQLiteDocuments
    state: IndexState
    n_documents: int
    folder: Path | None


def open_index(place: Path) -> OpenedIndex:
    """Read what `save_folder` wrote into a folder, or what belongs to a documents file.

    A save by another process may replace the files while they are read: then they are read
    once more. Takes the time to read the index file twice, once for its checksum.

    Raises:
        CandidateSourceError: If a file is missing, damaged, of a newer format, or does not
            belong to the others.
    """
    for _ in range(2):
        try:
            with os_failures("load", place):
                return _open(place)
        except _Vanished as error:
            vanished = error
    raise CandidateSourceError(
        f"{str(vanished)!r} is missing, which {str(place)!r} needs; restore it, or save or index "
        f"again"
    ) from vanished


def check_have_entries(index: Any, ids: IntArray) -> None:
    """Refuse ids of documents that have no vector.

    Raises:
        CandidateSourceError: Naming the first and both counts; or if a change of the index was
            interrupted, so that it holds vectors without ids.
    """
    try:
        check_ids_complete(index)
    except RuntimeError as error:
        raise CandidateSourceError(str(error)) from error
    missing = ids[~np.isin(ids, entry_ids(index))]
    if len(missing):
        raise CandidateSourceError(
            f"the index of {index.ntotal} vectors does not belong to its {len(ids)} documents: "
            f"document {missing[0]} has no vector, nor have {len(missing) - 1} others; load or "
            f"save both together"
        )


def agreed_name(given: str | None, documents: SQLiteDocuments, state: IndexState) -> str | None:
    """Return the name of the embedder, from whoever knows it.

    Raises:
        InvalidInputError: If both know it and differ.
    """
    stored = state.embedder_name
    if None not in (given, stored) and given != stored:
        raise InvalidInputError(
            f"the vectors that belong to {str(documents.path)!r} were made by {stored!r}, not by "
            f"{given!r}; embed queries with that model, or index again"
        )
    return given or stored


def check_has_all(
    index: Any, documents: SQLiteDocuments, state: IndexState, n_documents: int
) -> None:
    """Refuse an index that lacks what a source has written beside these documents.

    Raises:
        InvalidInputError: If it has fewer vectors, or of another dimension.
    """
    if state.snapshot is None:
        return
    if index.ntotal < n_documents or state.dimension != index.d:
        raise InvalidInputError(
            f"the index holds {index.ntotal} vectors of {index.d} dimensions, but a source has "
            f"written {n_documents} documents with vectors of {state.dimension} dimensions to "
            f"{str(documents.path)!r}; open that with FaissSource.load"
        )


class _Vanished(Exception):
    """A file that was named is not there."""


def _open(place: Path) -> OpenedIndex:
    folder = place if place.is_dir() else None
    path = place if folder is None else current_documents(folder)
    if path is None:
        raise CandidateSourceError(
            f"{str(place)!r} holds no saved source: it has no {MANIFEST}; is it the right folder?"
        )
    try:
        documents = SQLiteDocuments.existing(path)
    except CandidateSourceError:
        if not path.exists():
            raise _Vanished(path) from None
        raise
    try:
        snapshot = documents.state()
        index = _read_index(path.parent, documents, snapshot)
        state, n_documents = _replay(index, documents, snapshot.snapshot)
    except BaseException:
        documents.close()
        raise
    return OpenedIndex(
        index=index, documents=documents, state=state, n_documents=n_documents, folder=folder
    )


def _read_index(folder: Path, documents: SQLiteDocuments, state: IndexState) -> Any:
    """Return the index in the file that the documents name."""
    if state.snapshot is None:
        raise CandidateSourceError(
            f"{str(documents.path)!r} belongs to no index yet; construct a FaissSource from an "
            f"index and these documents"
        )
    path = folder / state.snapshot
    try:
        _check_file(path, state)
        return faiss.read_index(str(path))
    except FileNotFoundError as error:
        raise _Vanished(path) from error
    except RuntimeError as error:
        if not path.exists():
            raise _Vanished(path) from error
        raise CandidateSourceError(
            f"Faiss {faiss.__version__} could not read {str(path)!r}: {error}; was it written by a "
            f"newer Faiss?"
        ) from error


def _check_file(path: Path, state: IndexState) -> None:
    checksum = size = 0
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            checksum = zlib.crc32(block, checksum)
            size += len(block)
    if (size, checksum) != (state.snapshot_bytes, state.snapshot_crc):
        difference = (
            f"it has {size} bytes, {state.snapshot_bytes} were written"
            if size != state.snapshot_bytes
            else "its contents differ"
        )
        raise CandidateSourceError(
            f"index file {str(path)!r} is not the one that was saved with these documents: "
            f"{difference}; it was cut short, damaged or swapped: restore it, or index again"
        )


def _replay(index: Any, documents: SQLiteDocuments, snapshot: str | None) -> tuple[IndexState, int]:
    """Apply the logged changes; return the state that they lead to, and its documents' number.

    Holds no lock, since adding to a graph takes long: what another process writes meanwhile
    is applied in another round.
    """
    last = 0
    while True:
        state = documents.state()
        if state.snapshot != snapshot:
            raise _Vanished(snapshot)
        for run in _runs(documents.changes(after=last)):
            last = run[-1].sequence
            _apply(index, run)
        ids = np.fromiter(documents, dtype=np.int64)
        if documents.state().generation == state.generation:
            check_have_entries(index, ids)
            return state, len(ids)


def _runs(changes: Iterator[Change]) -> Iterator[list[Change]]:
    """Yield neighbouring changes of one kind together, some thousand at most."""
    for _, group in groupby(changes, key=lambda change: change.vector is None):
        while run := list(islice(group, _CHANGES_AT_ONCE)):
            yield run


def _apply(index: Any, run: Sequence[Change]) -> None:
    ids = np.array([change.key for change in run], dtype=np.int64)
    if run[0].vector is None:
        remove_entries(index, ids)
    elif takes_ids(index) or ids[0] == index.ntotal:
        add_entries(index, ids, np.stack([change.vector for change in run]))  # type: ignore[misc]
    else:
        raise CandidateSourceError(
            f"the index of {index.ntotal} vectors does not belong to its documents: the first "
            f"vector added later has id {ids[0]}; restore both files"
        )
