"""The words of an index's documents, counted when they are first needed and kept in step."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from sift_core.errors import MissingWordsWarning
from sift_core.places import heading_of
from sift_core.sources.faiss.documents import Documents, Filter
from sift_core.sources.faiss.entries import entry_ids, lossy_part
from sift_core.sources.faiss.nearest import Found, of_unit_length
from sift_core.sources.faiss.search import stored_vectors
from sift_core.sources.lexical_index import LexicalIndex
from sift_core.types import Document


class DocumentWords:
    """Words of documents by their Faiss ids. Any number of threads may ask.

    Args:
        index: What was counted before. If it is None, the folder keeps no words, and nothing is
            counted until `of` is called.
        place: What the warning calls the store.
    """

    def __init__(self, index: LexicalIndex | None, place: str = "") -> None:
        self._index = index
        self._place = place
        self._state: Hashable = None
        self._mutex = threading.Lock()
        self._has_warned = False

    @property
    def are_there(self) -> bool:
        """Whether words can be looked up."""
        return self._index is not None

    def of(self, index: Any, documents: Documents, state: Hashable) -> LexicalIndex:
        """Return the words of an index's documents; counts those that are new.

        Args:
            index: The Faiss index, which nobody changes meanwhile.
            documents: Its documents.
            state: Equal to that of the last call only if the documents are.
        """
        with self._mutex:
            if self._index is None or self._state != state:
                kept = LexicalIndex.empty() if self._index is None else self._index

                def read(ids: list[int]) -> tuple[list[str], list[str]]:
                    found = _documents(documents, ids)
                    return [each.text for each in found], [heading_of(d.metadata) for d in found]

                self._index = kept.updated(documents.without_deleted(entry_ids(index)), read)
                self._state = state
            return self._index

    def warn(self, stacklevel: int) -> None:
        """Say once that words are looked up where there are none, as `warnings.warn` says it."""
        with self._mutex:
            if self._has_warned:
                return
            self._has_warned = True
        warnings.warn(
            f"{self._place} keeps no words, so documents are found by vectors alone; run `sift "
            f"index` again with the same paths, or call the source's `complete`, to add them",
            MissingWordsWarning,
            stacklevel=stacklevel + 1,
        )


def found_by_ids(index: Any, documents: Documents, lists: Sequence[Sequence[int]]) -> list[Found]:
    """Return documents with their vectors, for several lists of ids at once."""
    vectors = stored_vectors(index, [faiss_id for ids in lists for faiss_id in ids])
    if lossy_part(index) is not None:
        vectors = of_unit_length(vectors)
    ends = np.cumsum([len(ids) for ids in lists])
    return [
        Found(documents=_documents(documents, ids), vectors=vectors[end - len(ids) : end])
        for ids, end in zip(lists, ends, strict=True)
    ]


def passing(documents: Documents, keep: Filter) -> Callable[[int], bool]:
    """Return a filter of ids for a filter of their documents' metadata."""
    return lambda faiss_id: keep(_documents(documents, [faiss_id])[0].metadata)


def _documents(documents: Documents, ids: Sequence[int]) -> list[Document]:
    return [each for each in documents.of_ids(ids) if each is not None]
