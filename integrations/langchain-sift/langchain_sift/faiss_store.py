"""The `FAISS` store of `langchain_community`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import numpy as np
from langchain_core.documents import Document

from langchain_sift.documents import as_pool
from langchain_sift.embedder import FloatArray
from langchain_sift.stores import Options, StoreReader
from sift_core import CandidatePool, InvalidInputError, Query
from sift_core.sources.faiss import search_with_vectors, stored_vectors

WIDENING = 4  # times as many rows are searched first where there is a filter; a guess


class FaissReader(StoreReader):
    """Searches the index by its own metric and takes the vectors along.

    A filter is a dictionary or a callable over metadata. Where too few of the nearest rows
    pass, it is called for every document, so that as many come back as there are. There are
    no options. An index that compresses (PQ, SQ) gives back approximate vectors, and the
    selection is as approximate as they are.
    """

    advice = "index and docstore must be built together"

    @property
    def _place(self) -> str:
        return f"its {type(self._store.index).__name__} of {self._store.index.ntotal} rows"

    def fetch(self, query: Query, n: int, filter: Any, options: Options) -> CandidatePool:
        """Return the index's nearest documents."""
        self.refuse_options(list(options))
        index, vector, keep = self._store.index, self._as_stored(query.vector), self._test(filter)
        hits = search_with_vectors(index, vector, n if keep is None else WIDENING * n)
        documents = self._documents(hits.ids.tolist())
        kept = list(range(len(documents)))
        if keep is not None:
            kept = [i for i in kept if keep(documents[i].metadata)][:n]
            if len(kept) < n and len(documents) < index.ntotal:
                hits = search_with_vectors(index, vector, n, allowed=self._rows_that_pass(keep))
                documents = self._documents(hits.ids.tolist())
                kept = list(range(len(documents)))
        return as_pool(
            query,
            [documents[i] for i in kept],
            hits.embeddings[kept],
            scores=hits.scores[kept].tolist(),
        )

    def held(self, ids: Collection[str]) -> Mapping[str, tuple[str, FloatArray]]:
        """Return texts and vectors by id. O(N) in a store of N, some 30 ms a million."""
        rows = [row for row, key in self._store.index_to_docstore_id.items() if key in ids]
        vectors = stored_vectors(self._store.index, rows)
        pairs = zip(self._documents(rows), vectors, strict=True)
        return {str(each.id): (each.page_content, vector) for each, vector in pairs}

    def _test(self, filter: Any) -> Callable[[dict[str, Any]], bool] | None:
        """Return a filter as a function of metadata, as the store reads it."""
        if filter is None:
            return None
        try:
            keep: Callable[[dict[str, Any]], bool] = self._store._create_filter_func(filter)
        except ValueError as error:  # another store's kind, or an operator that it does not know
            raise InvalidInputError(f"`filter` cannot be read by FAISS: {error}") from error
        return keep

    def _as_stored(self, embedding: FloatArray) -> FloatArray:
        """Return the query, shape (d,), of unit length where the store's rows are."""
        length = float(np.linalg.norm(embedding)) if self._store._normalize_L2 else 1.0
        return embedding / (length or 1.0)

    def _rows_that_pass(self, keep: Callable[[dict[str, Any]], bool]) -> list[int]:
        rows = list(self._store.index_to_docstore_id)
        documents = self._documents(rows)
        return [row for row, each in zip(rows, documents, strict=True) if keep(each.metadata)]

    def _documents(self, rows: Iterable[int]) -> list[Document]:
        """Return the documents of some rows of the index; they are the docstore's own objects."""
        with self.failures():
            return [self._document(self._store.index_to_docstore_id[row]) for row in rows]

    def _document(self, document_id: str) -> Document:
        document = self._store.docstore.search(document_id)
        if not isinstance(document, Document):  # the docstore answers with a message
            raise LookupError(document)
        if document.id is None:  # stores written by older versions
            return document.model_copy(update={"id": str(document_id)})
        return document
