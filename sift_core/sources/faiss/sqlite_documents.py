"""Documents in one SQLite file, by the ids of a Faiss index: the text side of `FaissSource`."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import ItemsView, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from operator import itemgetter
from pathlib import Path
from types import TracebackType

import numpy as np

from sift_core.checks import as_count
from sift_core.errors import CandidateSourceError, InvalidInputError
from sift_core.sources.content_ids import content_id
from sift_core.sources.faiss.sqlite_changes import (
    SCHEMA,
    Change,
    IndexState,
    Row,
    Transaction,
    save_state,
)
from sift_core.sources.faiss.sqlite_file import SQLiteFile
from sift_core.types import Document

FORMAT = 1
_APPLICATION_ID = 0x53494654  # "SIFT", in the header of the file
_ROW = "id, content_id, document_id, text, metadata"
_IDS_A_LOOKUP = 900  # SQLite's builds allow 999 parameters or more


class SQLiteDocuments(Mapping[int, Document]):
    """A mapping from Faiss ids to documents, kept in one file rather than in memory.

    Fill it once with `update`, or pass it to a `FaissSource` and let that write. Looking
    up 200 documents takes about a millisecond. Any number of threads may use one object,
    one at a time inside; any number of processes may read one file while one writes to it.
    What a finished call wrote survives the death of the process, and of the machine where
    the disk keeps what it was told to sync. On network file systems SQLite's locks, and so
    this promise, are only as good as theirs.

    Args:
        path: The file, created if it is missing; ":memory:" for one without a file.

    Raises:
        CandidateSourceError: If the file cannot be opened or is another kind of file.
    """

    def __init__(self, path: str | os.PathLike[str] = ":memory:") -> None:
        self._open(None if os.fspath(path) == ":memory:" else Path(path).absolute(), create=True)

    @classmethod
    def existing(cls, path: str | os.PathLike[str]) -> SQLiteDocuments:
        """Return the documents in a file, which is not created where it is missing.

        A file that may not be written is opened for reading.

        Raises:
            CandidateSourceError: If the file is missing or empty, or as above.
        """
        documents = cls.__new__(cls)
        documents._open(Path(path).absolute(), create=False)
        return documents

    def _open(self, path: Path | None, *, create: bool) -> None:
        self._file = SQLiteFile(path, create=create)
        try:
            self._prepare_schema()
        except BaseException:
            self.close()
            raise

    def _prepare_schema(self) -> None:
        if self._file.pragma("application_id") != _APPLICATION_ID:
            with self._file.transaction() as connection:
                # Another process may have created it since.
                if self._file.pragma("application_id") != _APPLICATION_ID:
                    self._create_schema(connection)
        found = self._file.pragma("user_version")
        if found != FORMAT:
            raise CandidateSourceError(
                f"{self._file} has format {found}, this version of sift-rerank reads {FORMAT}; "
                f"upgrade sift-rerank"
            )

    def _create_schema(self, connection: sqlite3.Connection) -> None:
        if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise CandidateSourceError(
                f"{self._file} is the SQLite file of another application; pass another path"
            )
        for statement in SCHEMA.split(";")[:-1]:
            connection.execute(statement)
        save_state(connection, IndexState())
        connection.execute(f"PRAGMA user_version = {FORMAT}")
        connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")

    @property
    def path(self) -> Path | None:
        """The file; None for documents in memory."""
        return self._file.path

    def close(self) -> None:
        """Close the file; further calls fail, except this one."""
        self._file.close()

    def __repr__(self) -> str:
        return f"SQLiteDocuments({':memory:' if self.path is None else str(self.path)!r})"

    def __enter__(self) -> SQLiteDocuments:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __len__(self) -> int:
        """Return the number of documents; O(n), a millisecond for 100,000."""
        count: int = self._file.read("SELECT count(*) FROM documents")[0][0]
        return count

    def __getitem__(self, key: int) -> Document:
        """Return the document of a Faiss id.

        Raises:
            KeyError: If there is none.
            CandidateSourceError: If the file cannot be read.
        """
        is_id = isinstance(key, int | np.integer) and 0 <= key < 2**63
        document = self.get_many([key])[0] if is_id else None
        if document is None:
            raise KeyError(key)
        return document

    def __iter__(self) -> Iterator[int]:
        """Yield the ids, rising; a thousand are in memory at a time."""
        for ids in self._file.pages("documents", "id"):
            for (found,) in ids:
                yield found

    def items(self) -> ItemsView[int, Document]:
        """Return a view of ids and documents that reads a thousand at a time."""
        return _Items(self)

    def rows(self) -> Iterator[Row]:
        """Yield all ids, content ids and documents; a thousand are in memory at a time."""
        for page in self._file.pages("documents", _ROW):
            for key, content, *columns in page:
                yield key, content, _document(*columns)

    def get_many(self, ids: Sequence[int]) -> list[Document | None]:
        """Return the document of each id, None where there is none.

        Raises:
            CandidateSourceError: If the file cannot be read.
        """
        keys = [int(key) for key in ids]
        found = {key: document for key, _, document in self._rows_of(keys)}
        return [found.get(key) for key in keys]

    def rows_of(self, ids: Sequence[int]) -> list[Row]:
        """Return id, content id and document of those ids that have one, by rising id."""
        return sorted(self._rows_of([int(key) for key in ids]), key=itemgetter(0))

    def _rows_of(self, ids: list[int]) -> Iterator[Row]:
        for start in range(0, len(ids), _IDS_A_LOOKUP):
            part = ids[start : start + _IDS_A_LOOKUP]
            marks = ",".join("?" * len(part))
            statement = f"SELECT {_ROW} FROM documents WHERE id IN ({marks})"
            for key, content, *columns in self._file.read(statement, part):
                yield key, content, _document(*columns)

    def content_ids(self) -> set[str]:
        """Return the content ids of all documents, about 100 bytes each."""
        return {
            content
            for page in self._file.pages("documents", "id, content_id")
            for _, content in page
        }

    @classmethod
    def from_documents(
        cls, path: str | os.PathLike[str], documents: Iterable[Document]
    ) -> SQLiteDocuments:
        """Return documents stored under the ids 0, 1, ... in a file, which must be new or empty.

        Raises:
            CandidateSourceError: If the file cannot be written.
            InvalidInputError: If it holds documents, or JSON cannot hold the metadata of one.
        """
        stored = cls(path)
        if len(stored):
            stored.close()
            raise InvalidInputError(
                f"{str(path)!r} holds documents already; open it with SQLiteDocuments(path)"
            )
        stored.update(enumerate(documents))
        return stored

    def update(
        self,
        documents: Mapping[int, Document] | Iterable[tuple[int, Document]],
        *,
        batch_size: int = 1000,
    ) -> None:
        """Store documents under Faiss ids; those that are there under such ids are replaced.

        One transaction a batch, so a call that is killed has stored whole batches, and
        memory holds one.

        Args:
            documents: Ids >= 0 and documents, for instance `enumerate(documents)`.
            batch_size: Documents in one transaction, >= 1.

        Raises:
            CandidateSourceError: If the file cannot be written; earlier batches are stored.
            InvalidInputError: If an id is no integer >= 0, or JSON cannot hold the metadata.
        """
        batch_size = as_count("batch_size", batch_size, minimum=1)
        pairs = iter(documents.items() if isinstance(documents, Mapping) else documents)
        while batch := list(islice(pairs, batch_size)):
            rows = [_checked_row(key, document) for key, document in batch]
            with self.transaction() as transaction:
                transaction.insert(rows)

    def remove(self, ids: Iterable[int]) -> None:
        """Delete the documents of these ids; those that are not there are ignored.

        Raises:
            CandidateSourceError: If the file cannot be written; then none is deleted.
        """
        with self.transaction() as transaction:
            transaction.delete(int(key) for key in ids)

    def state(self) -> IndexState:
        """Return what the file knows about its index."""
        return IndexState(**json.loads(self._file.read("SELECT json FROM state")[0][0]))

    def changes(self, *, after: int = 0) -> Iterator[Change]:
        """Yield the logged changes of the index, oldest first, a thousand in memory at a time.

        Args:
            after: Sequence number of the last change that is not wanted.
        """
        for page in self._file.pages("changes", "sequence, id, vector", after=after):
            for sequence, key, blob in page:
                vector = None if blob is None else np.frombuffer(blob, dtype="<f4")
                yield Change(sequence=sequence, key=key, vector=vector)

    def compact(self) -> None:
        """Give the space of a log that was cleared back, where that is worth it."""
        self._file.compact()

    def has_changes(self) -> bool:
        """Return whether anything is logged."""
        return bool(self._file.read("SELECT 1 FROM changes LIMIT 1"))

    @contextmanager
    def alone(self) -> Iterator[IndexState]:
        """Keep other writers out without changing anything; yields the state.

        Raises:
            CandidateSourceError: If another process writes for too long.
        """
        with self._file.transaction():
            yield self.state()

    @contextmanager
    def transaction(self, *, generation: int | None = None) -> Iterator[Transaction]:
        """Change the file: all that is done within, or nothing, durably.

        Args:
            generation: The generation that the caller knows; None to take any.

        Raises:
            CandidateSourceError: If the file cannot be written, was replaced by another
                since it was opened, or has another generation.
        """
        with self._file.transaction() as connection:
            state = self.state()
            if generation not in (None, state.generation):
                raise CandidateSourceError(
                    f"{self._file} was changed by something else since this source read it "
                    f"(generation {state.generation}, known {generation}); load the source again"
                )
            transaction = Transaction(connection, state)
            yield transaction
            transaction.state = replace(transaction.state, generation=state.generation + 1)
            save_state(connection, transaction.state)


class _Items(ItemsView[int, Document]):
    """Ids and documents, read in pages rather than one by one."""

    _mapping: SQLiteDocuments

    def __iter__(self) -> Iterator[tuple[int, Document]]:
        return ((key, document) for key, _, document in self._mapping.rows())


def _document(document_id: str, text: str, metadata: str) -> Document:
    return Document(
        document_id=document_id,
        text=text,
        metadata={} if metadata == "{}" else json.loads(metadata),
    )


def _checked_row(key: object, document: object) -> Row:
    key = as_count("document's Faiss id", key, minimum=0)
    if key >= 2**63:
        raise InvalidInputError(f"a document's Faiss id must fit 64 bits, got {key}")
    if not isinstance(document, Document):
        raise InvalidInputError(
            f"`documents` must be of type Document, got {type(document).__name__} for id {key}"
        )
    return key, content_id(document), document
