"""A `langchain_chroma.Chroma` store."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from langchain_core.documents import Document

from langchain_sift.documents import as_pool
from langchain_sift.embedder import FloatArray
from langchain_sift.stores import Options, StoreReader
from sift_core import CandidatePool, Query


class ChromaReader(StoreReader):
    """Searches a collection by its own metric and takes the vectors along.

    A filter is Chroma's `where`; `where_document` is the only option.
    """

    advice = "is it up, and are dimension and filter (its `where`) right?"

    @property
    def _place(self) -> str:
        return f"collection {self._store._collection_name!r}"  # there is no public name

    def fetch(self, query: Query, n: int, filter: Any, options: Options) -> CandidatePool:
        """Return the collection's nearest documents, in one request."""
        self.refuse_options(sorted(options.keys() - {"where_document"}))
        with self.failures(query):
            found = self._store._collection.query(  # no public search gives vectors and scores
                query_embeddings=[query.vector.tolist()],
                n_results=n,
                where=filter,
                where_document=options.get("where_document"),
                include=["documents", "metadatas", "distances", "embeddings"],
            )
        names = ("ids", "documents", "metadatas", "distances", "embeddings")
        hits = list(zip(*(found[name][0] for name in names), strict=True))
        hits = [hit for hit in hits if hit[1] is not None]  # images, for instance
        documents = [
            Document(id=key, page_content=text, metadata=dict(metadata or {}))
            for key, text, metadata, _, _ in hits
        ]
        rows = [np.asarray(row) for *_, row in hits]
        return as_pool(query, documents, rows, scores=[distance for *_, distance, _ in hits])

    def held(self, ids: Collection[str]) -> Mapping[str, tuple[str, FloatArray]]:
        """Return texts and vectors by id."""
        if not ids:  # which Chroma would take for all
            return {}
        with self.failures():
            found = self._store.get(ids=list(ids), include=["embeddings", "documents"])
        columns = (found["ids"], found["documents"], found["embeddings"])
        return {key: (text, np.asarray(row)) for key, text, row in zip(*columns, strict=True)}
