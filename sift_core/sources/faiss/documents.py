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


class DocumentTable(Mapping[int, Document]):
    """Documents in memory that also knows their content ids; an entry without one is deleted.

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

    def of_ids(self, ids: Sequence[int]) -> list[Document | None]:
        """Return the document of each id; None for one that is deleted."""
        return list(map(self._documents.get, ids))

    def ids(self, keep: Filter | None = None) -> IntArray:
        """Return the ids of all documents whose metadata `keep` accepts, in O(n)."""
        return _ids_of(self._documents.items(), keep)

    def put(self, key: int, content: str, document: Document) -> None:
        """Add a document."""
        self._documents[key] = document
        self._contents[key] = content
        self._keys.setdefault(content, []).append(key)

    def take_out(self, contents: Iterable[str]) -> IntArray:
        """Delete the documents with these content ids; return their Faiss ids."""
        keys = [key for content in contents for key in self._keys.pop(content, ())]
        for key in keys:
            del self._documents[key], self._contents[key]
        return np.array(keys, dtype=np.int64)

    def rows(self) -> Iterator[Row]:
        """Yield all documents with their ids."""
        for key, document in self._documents.items():
            yield key, self._contents[key], document


class CallersDocuments:
    """Reads documents from a sequence or a mapping of the caller's, which is not changed.

    Args:
        documents: A sequence for ids 0, 1, ..., or a mapping from ids; of `Document` or plain
            texts.

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

    def of_ids(self, ids: Sequence[int]) -> list[Document | None]:
        """Return the document of each id.

        Raises:
            CandidateSourceError: If there is no document of an id.
            InvalidInputError: If what is stored is neither a document nor a text.
        """
        try:
            # Runs in C, where the processor waits for several cold documents at once.
            found = list(map(self._documents.__getitem__, ids))
        except LookupError as error:
            missing = next(key for key in ids if not self._has(key))
            raise CandidateSourceError(
                f"Faiss returned id {missing}, for which there is no document; index and "
                f"`documents` must be built together"
            ) from error
        if set(map(type, found)) == {Document}:
            return found
        return [_as_document(key, kept) for key, kept in zip(ids, found, strict=True)]

    def ids(self, keep: Filter | None = None) -> IntArray:
        """Return the ids of all documents whose metadata `keep` accepts, in O(n)."""
        kept = self._documents
        return _ids_of(kept.items() if isinstance(kept, Mapping) else enumerate(kept), keep)

    def as_table(self, ids: IntArray) -> DocumentTable:
        """Return the documents of these ids as a table, of which JSON can hold each.

        Raises:
            CandidateSourceError: If an id has no document.
            InvalidInputError: If JSON cannot hold the metadata of one.
        """
        keys = ids.tolist()
        return DocumentTable(
            (key, content_id(document), document)
            for key, document in zip(keys, self.of_ids(keys), strict=True)
            if document is not None
        )

    def _has(self, key: int) -> bool:
        try:
            self._documents[key]
        except LookupError:
            return False
        return True


def _ids_of(pairs: Iterable[tuple[int, Document | str]], keep: Filter | None) -> IntArray:
    return np.fromiter(
        (key for key, kept in pairs if keep is None or keep(_metadata_of(kept))), dtype=np.int64
    )


def _metadata_of(kept: Document | str) -> Metadata:
    """Return a document's metadata; a plain text has none."""
    return {} if isinstance(kept, str) else kept.metadata


def _as_document(key: int, kept: object) -> Document:
    if isinstance(kept, Document):
        return kept
    if not isinstance(kept, str):
        raise InvalidInputError(
            f"`documents` must hold Document or texts, got {type(kept).__name__} for id {key}"
        )
    return Document(document_id=str(key), text=kept)
