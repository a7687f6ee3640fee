"""Documents by Faiss id, whatever the user keeps them in."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sift_core.errors import CandidateSourceError, InvalidInputError
from sift_core.sources.content_ids import content_id
from sift_core.sources.faiss.sqlite_changes import Row
from sift_core.sources.faiss.sqlite_documents import SQLiteDocuments
from sift_core.types import Document, IntArray, Metadata

_IDS_A_PAGE = 1000


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
        self._get_many = getattr(documents, "get_many", None)
        self.may_lack = isinstance(documents, SQLiteDocuments)

    @property
    def kind(self) -> str:
        """What the documents are kept in."""
        return type(self._documents).__name__

    @property
    def path(self) -> Path | None:
        """The SQLite file that they are in, if any."""
        return self._documents.path if isinstance(self._documents, SQLiteDocuments) else None

    def __len__(self) -> int:
        """Return the number of documents."""
        return len(self._documents)

    def get(self, ids: Sequence[int]) -> list[Document | None]:
        """Return the document of each id; None for one that was deleted from a SQLite file.

        Raises:
            CandidateSourceError: If another kind of store has no document of an id, or its
                `get_many` does not return one entry an id.
            InvalidInputError: If what is stored is neither a document nor a text.
        """
        if self._get_many is not None:
            found: list[Any] = list(self._get_many(ids))
            if len(found) != len(ids):
                raise CandidateSourceError(
                    f"get_many of {self.kind} must return one entry an id, None where it is "
                    f"missing; got {len(found)} for {len(ids)} ids"
                )
        else:
            found = self._one_by_one(ids)
        if self.may_lack or set(map(type, found)) == {Document}:
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
            (key for key, document in pairs if keep(metadata_of(document))), dtype=np.int64
        )

    def rows(self, ids: IntArray) -> Iterator[Row]:
        """Yield id, content id and document for each of the rising `ids`.

        All content ids are made before the first is yielded, so that a document that cannot
        be stored is found before anything is written.

        Raises:
            CandidateSourceError: If an id has no document.
            InvalidInputError: If JSON cannot hold the metadata of one.
        """
        pages = [
            ids[start : start + _IDS_A_PAGE].tolist() for start in range(0, len(ids), _IDS_A_PAGE)
        ]
        if isinstance(self._documents, SQLiteDocuments):
            return itertools.chain.from_iterable(map(self._documents.rows_of, pages))
        contents = [[content_id(document) for document in self._present(page)] for page in pages]
        return (
            row
            for page, page_contents in zip(pages, contents, strict=True)
            for row in zip(page, page_contents, self._present(page), strict=True)
        )

    def _present(self, ids: Sequence[int]) -> list[Document]:
        return [document for document in self.get(ids) if document is not None]


def metadata_of(document: Document | str) -> Metadata:
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
