"""Documents by Faiss id: whatever the caller keeps them in, or a table that can be written to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from sift_core.errors import CandidateSourceError, InvalidInputError
from sift_core.sources.content_ids import content_id
from sift_core.types import Document, IntArray, Metadata

Row: TypeAlias = tuple[int, str, Document]  # Faiss id, content id, document


class DocumentTable(Mapping[int, Document]):
    """A mapping in memory from Faiss ids to documents that also knows their content ids.

    Args:
        rows: What it holds at first. Several may have one content id: a collection of somebody's
            own may hold a document twice.
    """

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self._documents: dict[int, Document] = {}
        self._contents: dict[int, str] = {}
        self._keys: dict[str, list[int]] = {}
        for key, content, document in rows:
            self.put(key, content, document)

    def __getitem__(self, key: int) -> Document:
        """Return the document of a Faiss id."""
        return self._documents[key]

    def __iter__(self) -> Iterator[int]:
        """Iterate over the Faiss ids."""
        return iter(self._documents)

    def __len__(self) -> int:
        """Return the number of documents."""
        return len(self._documents)

    def get_many(self, keys: Iterable[int]) -> list[Document | None]:
        """Return the document of each id; None for one that is deleted."""
        return list(map(self._documents.get, keys))

    def put(self, key: int, content: str, document: Document) -> None:
        """Add a document."""
        self._documents[key] = document
        self._contents[key] = content
        self._keys.setdefault(content, []).append(key)

    def take_out(self, contents: Iterable[str]) -> list[int]:
        """Delete the documents with these content ids; return their Faiss ids."""
        keys = [key for content in contents for key in self._keys.pop(content, ())]
        for key in keys:
            del self._documents[key], self._contents[key]
        return keys

    def content_ids(self) -> set[str]:
        """Return the content ids of all documents."""
        return set(self._keys)

    def rows(self) -> Iterator[Row]:
        """Yield all documents with their ids."""
        for key, document in self._documents.items():
            yield key, self._contents[key], document


class DocumentLookup:
    """Reads documents from a sequence or a mapping, many at a time.

    Args:
        documents: A sequence for ids 0, 1, ..., or a mapping from ids; of `Document` or plain
            texts. A mapping's `get_many(ids)`, which returns a list with None for what is
            missing, is called instead of one lookup for each id.

    Raises:
        InvalidInputError: If it is neither.
    """

    def __init__(self, documents: Any) -> None:
        if isinstance(documents, str) or not isinstance(documents, Sequence | Mapping):
            raise InvalidInputError(
                f"`documents` must be a sequence or a mapping from Faiss ids to documents, got "
                f"{type(documents).__name__}"
            )
        self._documents = documents

    @property
    def table(self) -> DocumentTable | None:
        """The documents, where they can be written to; others may lack none that is asked for."""
        return self._documents if isinstance(self._documents, DocumentTable) else None

    def replace(self, table: DocumentTable) -> None:
        """Read from a table from now on."""
        self._documents = table

    def __len__(self) -> int:
        """Return the number of documents."""
        return len(self._documents)

    def get(self, ids: Sequence[int]) -> list[Document | None]:
        """Return the document of each id; None for one that was deleted from a table.

        Raises:
            CandidateSourceError: If another kind of store has no document of an id, or its
                `get_many` does not return one entry an id.
            InvalidInputError: If what is stored is neither a document nor a text.
        """
        if self.table is not None:
            return self.table.get_many(ids)
        get_many = getattr(self._documents, "get_many", None)
        found = self._one_by_one(ids) if get_many is None else list(get_many(ids))
        if len(found) != len(ids):
            raise CandidateSourceError(
                f"get_many of {type(self._documents).__name__} must return one entry an id, None "
                f"where it is missing; got {len(found)} for {len(ids)} ids"
            )
        if set(map(type, found)) == {Document}:
            return found
        return [
            document if isinstance(document, Document) else _as_document(key, document)
            for key, document in zip(ids, found, strict=True)
        ]

    def _one_by_one(self, ids: Sequence[int]) -> list[Any]:
        # Runs in C, where the processor waits for several cold documents at once.
        try:
            return list(map(self._documents.__getitem__, ids))
        except LookupError as error:
            missing = next(key for key in ids if not self._has(key))
            raise _no_document(missing) from error

    def _has(self, key: int) -> bool:
        try:
            self._documents[key]
        except LookupError:
            return False
        return True

    def ids(self, keep: Callable[[Metadata], bool] | None) -> IntArray:
        """Return the ids of all documents whose metadata `keep` accepts; of all without it.

        O(n): reads every document, and calls `keep` for each.
        """
        documents = self._documents
        if keep is None:
            every: Iterable[int] = documents if isinstance(documents, Mapping) else range(len(self))
            return np.fromiter(every, dtype=np.int64)
        pairs = documents.items() if isinstance(documents, Mapping) else enumerate(documents)
        return np.fromiter(
            (key for key, document in pairs if keep(_metadata_of(document))), dtype=np.int64
        )

    def as_table(self, ids: IntArray) -> DocumentTable:
        """Return the documents of these ids as a table, of which JSON can hold each.

        Raises:
            CandidateSourceError: If an id has no document.
            InvalidInputError: If JSON cannot hold the metadata of one.
        """
        if self.table is not None:
            return self.table
        keys = ids.tolist()
        return DocumentTable(
            (key, content_id(document), document)
            for key, document in zip(keys, self.get(keys), strict=True)
            if document is not None
        )


def _metadata_of(document: Document | str) -> Metadata:
    """Return a document's metadata; a plain text has none."""
    return {} if isinstance(document, str) else document.metadata


def _as_document(key: int, document: object) -> Document:
    if document is None:
        raise _no_document(key)
    if not isinstance(document, str):
        raise InvalidInputError(
            f"`documents` must hold Document or texts, got {type(document).__name__} for id {key}"
        )
    return Document(document_id=str(key), text=document)


def _no_document(key: int) -> CandidateSourceError:
    return CandidateSourceError(
        f"Faiss returned id {key}, for which there is no document; index and `documents` must be "
        f"built together"
    )
