"""Documents by Faiss id: whatever the caller keeps them in, or a table that can be written to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from sift_core.errors import CandidateSourceError, InvalidInputError
from sift_core.sources.content_ids import content_id
from sift_core.types import Document, IntArray, Metadata

Filter: TypeAlias = Callable[[Metadata], bool]
Row: TypeAlias = tuple[int, str, Document]  # Faiss id, content id, document
_UNSIGNED = 1 << 64


class DocumentTable:
    """Documents in memory that also knows their content ids; an entry without one is deleted.

    Args:
        rows: What it holds at first. Several may have one content id: a collection of somebody's
            own may hold a document twice.
    """

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self._documents: dict[int, Document] = {}
        self._contents: dict[int, str] = {}
        self._ids: dict[str, list[int]] = {}  # of a content id
        for faiss_id, content, document in rows:
            self.put(faiss_id, content, document)

    def __len__(self) -> int:
        """Return the number of documents."""
        return len(self._documents)

    def n_deleted(self, n_entries: int) -> int:
        """Return how many of an index's entries have no document."""
        return max(0, n_entries - len(self._documents))

    def without_deleted(self, ids: IntArray) -> IntArray:
        """Return those of the ids that have a document, in their order, in O(n)."""
        return ids[np.isin(ids, self.ids())]

    def of_ids(self, ids: Sequence[int]) -> list[Document | None]:
        """Return the document of each id; None for one that is deleted."""
        return list(map(self._documents.get, ids))

    def ids(self, keep: Filter | None = None) -> IntArray:
        """Return the ids of all documents whose metadata `keep` accepts, in O(n)."""
        return _ids_of(self._documents.items(), keep)

    def as_table(self, entry_ids: Callable[[], IntArray]) -> DocumentTable:
        """Return itself; entries without a document are deleted."""
        return self

    def put(self, faiss_id: int, content: str, document: Document) -> None:
        """Add a document."""
        self._documents[faiss_id] = document
        self._contents[faiss_id] = content
        self._ids.setdefault(content, []).append(faiss_id)

    def take_out(self, contents: Iterable[str]) -> IntArray:
        """Delete the documents with these content ids; return their Faiss ids."""
        ids = [each for content in contents for each in self._ids.pop(content, ())]
        for faiss_id in ids:
            del self._documents[faiss_id], self._contents[faiss_id]
        return np.array(ids, dtype=np.int64)

    def rows(self) -> Iterator[Row]:
        """Yield all documents with their ids."""
        for faiss_id, document in self._documents.items():
            yield faiss_id, self._contents[faiss_id], document


class CallersDocuments:
    """Reads documents from a sequence or a mapping of the caller's, which is not changed.

    Args:
        documents: A sequence for ids 0, 1, ..., or a mapping from ids; of `Document` or plain
            texts. Unsigned ids from 2^63 are those that Faiss keeps as id - 2^64.

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

    def __len__(self) -> int:
        """Return the number of documents."""
        return len(self._documents)

    def n_deleted(self, n_entries: int) -> int:
        """Return 0: every entry has a document."""
        return 0

    def without_deleted(self, ids: IntArray) -> IntArray:
        """Return the ids as they are: every entry has a document."""
        return ids

    def of_ids(self, ids: Sequence[int]) -> list[Document | None]:
        """Return the document of each id.

        Raises:
            CandidateSourceError: If there is no document of an id.
            InvalidInputError: If what is stored is neither a document nor a text.
        """
        keys: Sequence[int] = ids
        if min(ids, default=0) < 0:
            keys = [self._key(faiss_id) for faiss_id in ids]
        try:
            # Runs in C, where the processor waits for several cold documents at once.
            found = list(map(self._documents.__getitem__, keys))
        except LookupError as error:
            missing = next(i for i, key in zip(ids, keys, strict=True) if not self._has(key))
            raise CandidateSourceError(
                f"Faiss returned id {missing}, for which there is no document; index and "
                f"`documents` must be built together"
            ) from error
        if set(map(type, found)) == {Document}:
            return found
        return [_as_document(key, kept) for key, kept in zip(keys, found, strict=True)]

    def ids(self, keep: Filter | None = None) -> IntArray:
        """Return the ids of all documents whose metadata `keep` accepts, in O(n)."""
        kept = self._documents
        return _ids_of(kept.items() if isinstance(kept, Mapping) else enumerate(kept), keep)

    def as_table(self, entry_ids: Callable[[], IntArray]) -> DocumentTable:
        """Return the documents of an index's entries as a table, of which JSON can hold each.

        Args:
            entry_ids: Returns the ids of all entries.

        Raises:
            CandidateSourceError: If an id has no document.
            InvalidInputError: If JSON cannot hold the metadata of one.
        """
        ids = np.unique(entry_ids()).tolist()
        return DocumentTable(
            (faiss_id, content_id(document), document)
            for faiss_id, document in zip(ids, self.of_ids(ids), strict=True)
            if document is not None
        )

    def _key(self, faiss_id: int) -> int:
        """Return the key of an id; a negative one counts from the end of no sequence."""
        is_there = faiss_id >= 0 or (isinstance(self._documents, Mapping) and self._has(faiss_id))
        return faiss_id if is_there else faiss_id + _UNSIGNED

    def _has(self, faiss_id: int) -> bool:
        try:
            self._documents[faiss_id]
        except LookupError:
            return False
        return True


# What an index has its documents in.
Documents: TypeAlias = CallersDocuments | DocumentTable


def _ids_of(pairs: Iterable[tuple[int, Document | str]], keep: Filter | None) -> IntArray:
    ids = (int(key) for key, kept in pairs if keep is None or keep(_metadata_of(kept)))
    signed = (key if key < _UNSIGNED // 2 else key - _UNSIGNED for key in ids)
    return np.fromiter(signed, dtype=np.int64)


def _metadata_of(kept: Document | str) -> Metadata:
    """Return a document's metadata; a plain text has none."""
    return {} if isinstance(kept, str) else kept.metadata


def _as_document(faiss_id: int, kept: object) -> Document:
    if isinstance(kept, Document):
        return kept
    if not isinstance(kept, str):
        raise InvalidInputError(
            f"`documents` must hold Document or texts, got {type(kept).__name__} for id {faiss_id}"
        )
    return Document(document_id=str(faiss_id), text=kept)
