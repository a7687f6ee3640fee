"""Candidates from a Faiss index, with texts kept beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from sift_core.candidates.query_checks import (
    check_fetch_arguments,
    check_is_callable,
    cosine_similarities,
)
from sift_core.errors import CandidateSourceError, InvalidInputError, MissingDependencyError
from sift_core.types import CandidatePool, Document, FloatArray, IntArray, Metadata, Query

try:
    import faiss as _faiss
except ImportError as error:
    raise MissingDependencyError("faiss-cpu", extra="faiss") from error

faiss: Any = _faiss  # its own type stubs lack search parameters' arguments and HNSW's class


class FaissSource:
    """Nearest neighbours from any Faiss index that can give its vectors back.

    CPU indexes may be searched by any number of threads at once. An index that
    compresses (PQ, SQ) gives back approximate vectors, and the selection is as
    approximate as they are.

    Args:
        index: A trained index. `IndexIDMap` cannot return vectors; `IndexIDMap2` can. An
            IVF index that is filtered, or wrapped in `IndexIDMap2`, needs a direct map:
            `faiss.extract_index_ivf(index).set_direct_map_type(faiss.DirectMap.Hashtable)`.
        documents: The document of each Faiss id: a sequence for ids 0, 1, ..., or a
            mapping for ids of one's own.
        embedder_name: Model behind the index; queries made by another are refused.

    Raises:
        InvalidInputError: If the index holds vectors without documents.
    """

    def __init__(
        self,
        index: Any,
        documents: Sequence[Document] | Mapping[int, Document],
        *,
        embedder_name: str | None = None,
    ) -> None:
        if index.ntotal > len(documents):
            raise InvalidInputError(
                f"the index holds {index.ntotal} vectors but there are {len(documents)} "
                f"`documents`; pass one document for each vector"
            )
        self._index = index
        self._documents = documents
        self.embedder_name = embedder_name

    def fetch(
        self,
        query: Query,
        n_candidates: int,
        *,
        filter: Callable[[Metadata], bool] | None = None,
    ) -> CandidatePool:
        """Return the index's nearest documents, nearest first by the index's own metric.

        `similarities` are cosines, whatever the metric.

        Args:
            query: What to look for.
            n_candidates: How many at most, >= 1.
            filter: Called with a document's metadata; only documents for which it is
                true are searched. Costs a call for every document of the index.

        Raises:
            CandidateSourceError: If Faiss fails or an id has no document.
            InvalidInputError: If query and index do not fit together.
        """
        check_is_callable(filter)
        n_candidates = check_fetch_arguments(
            query, n_candidates, dimension=self._index.d, embedder_name=self.embedder_name
        )
        n_wanted = min(n_candidates, self._index.ntotal)
        if n_wanted == 0:
            raise InvalidInputError("there are no documents to fetch from; add some first")
        vector = np.ascontiguousarray(query.embedding, dtype=np.float32)[np.newaxis]
        try:
            ids, embeddings = self._search(vector, n_wanted, filter)
        except (RuntimeError, AssertionError) as error:
            raise CandidateSourceError(
                f"Faiss {type(self._index).__name__} could not search"
                f"{'' if filter is None else ' with a filter'} and return vectors: {error}; "
                f"it must support reconstruction (IndexIDMap2 instead of IndexIDMap; for IVF a "
                f"direct map) and, with a filter, search parameters"
            ) from error
        documents = [self._document(int(i)) for i in ids]
        return CandidatePool(
            document_ids=[document.document_id for document in documents],
            texts=[document.text for document in documents],
            embeddings=embeddings,
            similarities=cosine_similarities(query.embedding, embeddings),
            metadata=[dict(document.metadata) for document in documents],  # caller's to change
        )

    async def afetch(
        self,
        query: Query,
        n_candidates: int,
        *,
        filter: Callable[[Metadata], bool] | None = None,
    ) -> CandidatePool:
        """Return what `fetch` returns; the search runs in a worker thread."""
        return await asyncio.to_thread(self.fetch, query, n_candidates, filter=filter)

    def _search(
        self, vector: FloatArray, n_wanted: int, keep: Callable[[Metadata], bool] | None
    ) -> tuple[IntArray, FloatArray]:
        """Return ids (k,) and vectors (k, d) of what is found, k <= `n_wanted`."""
        if keep is None:
            _, ids, vectors = self._index.search_and_reconstruct(vector, n_wanted)
            found = ids[0] >= 0  # Faiss fills missing hits with -1 and NaN
            return ids[0][found], vectors[0][found]
        # In two steps: IVF refuses a selector in search_and_reconstruct.
        _, ids = self._index.search(vector, n_wanted, params=self._search_parameters(keep))
        kept = ids[0][ids[0] >= 0]
        return kept, self._index.reconstruct_batch(kept)

    def _document(self, faiss_id: int) -> Document:
        try:
            return self._documents[faiss_id]
        except (KeyError, IndexError) as error:
            raise CandidateSourceError(
                f"Faiss returned id {faiss_id}, for which there is no document; index and "
                f"`documents` must be built together"
            ) from error

    def _search_parameters(self, keep: Callable[[Metadata], bool]) -> Any:
        """Return Faiss' search parameters that restrict a search to the kept documents.

        Their type must be that of the index that searches in the end, and they must repeat
        its own settings; wrappers pass them on and translate the ids.
        """
        pairs = (
            self._documents.items()
            if isinstance(self._documents, Mapping)
            else enumerate(self._documents)
        )
        ids = np.array([i for i, document in pairs if keep(document.metadata)], dtype=np.int64)
        selector = faiss.IDSelectorBatch(ids)
        searcher = faiss.downcast_index(self._index)
        while isinstance(searcher, faiss.IndexIDMap | faiss.IndexPreTransform):
            searcher = faiss.downcast_index(searcher.index)
        if isinstance(searcher, faiss.IndexIVF):
            return faiss.SearchParametersIVF(
                sel=selector, nprobe=searcher.nprobe, max_codes=searcher.max_codes
            )
        if isinstance(searcher, faiss.IndexHNSW):
            return faiss.SearchParametersHNSW(sel=selector, efSearch=searcher.hnsw.efSearch)
        return faiss.SearchParameters(sel=selector)
