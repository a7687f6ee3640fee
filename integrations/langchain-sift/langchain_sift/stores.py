"""What a kind of store is asked for; in memory, Chroma; stores that keep vectors back."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, TypeAlias

import numpy as np
from langchain_core.documents import Document
from langchain_core.vectorstores import VectorStore
from pydantic import ValidationError

from langchain_sift.documents import as_pool
from langchain_sift.embedder import FloatArray, embedder_of
from langchain_sift.vectors import VectorFiller, Vectors, VectorsById
from sift_core import CandidatePool, CandidateSourceError, InvalidInputError, Query
from sift_core.plugins import run_blocking

Options: TypeAlias = Mapping[str, Any]
OTHER_LAYOUT = (
    "did another tool fill it? LangChain reads what it wrote itself, under its "
    "`content_payload_key`; `sift_core.sources` has sources that also read the payloads of others"
)


class StoreReader(ABC):
    """Reads one kind of LangChain store, which is what it is constructed with."""

    advice: ClassVar[str]  # what to check if a search fails

    def __init__(self, store: Any) -> None:
        self._store = store

    @property
    def _place(self) -> str:
        """What is searched, for instance "collection 'docs'"."""
        name = getattr(self._store, "collection_name", None)
        return "its documents" if name is None else f"collection {name!r}"

    @abstractmethod
    def fetch(self, query: Query, n: int, filter: Any, options: Options) -> CandidatePool:
        """Return what `VectorStoreSource.fetch` does; `options` are the store's own."""

    async def afetch(self, query: Query, n: int, filter: Any, options: Options) -> CandidatePool:
        """Return what `fetch` returns; in a thread where the store has no async form."""
        return await asyncio.to_thread(self.fetch, query, n, filter, options)

    def vectors(self, documents: Sequence[Document]) -> Vectors:
        """Return the stored vector of each document, shape (d,); None where there is none.

        A vector counts only if the store's text is the document's: a splitter or an extractor
        changes texts and keeps the id.

        Raises:
            CandidateSourceError: If the store fails.
        """
        held = self.held({each.id for each in documents if each.id is not None})
        found = [held.get(str(each.id), ("", None)) for each in documents]
        pairs = zip(documents, found, strict=True)
        return [vector if text == each.page_content else None for each, (text, vector) in pairs]

    def held(self, ids: Collection[str]) -> Mapping[str, tuple[str, FloatArray]]:
        """Return text and vector of documents by id; here of a store that gives no vectors."""
        return {}

    async def avectors(self, documents: Sequence[Document]) -> Vectors:
        """Return what `vectors` returns; in a thread."""
        return await asyncio.to_thread(self.vectors, documents)

    @contextmanager
    def failures(self, query: Query | None = None) -> Iterator[None]:
        """Turn what the store raises in the block into a `CandidateSourceError` with its cause."""
        try:
            yield
        except Exception as error:  # stores share no ancestor: ValueError, RpcError, KeyError, …
            by = "" if query is None else f" by a query of {len(query.vector)} numbers"
            advice = OTHER_LAYOUT if isinstance(error, ValidationError) else self.advice
            raise CandidateSourceError(
                f"{type(self._store).__name__} could not search {self._place}{by}: {error!r}; "
                f"{advice}"
            ) from error

    def refuse_options(self, names: Sequence[str]) -> None:
        """Refuse search options that would be ignored or would clash, if there are any."""
        if names:
            raise InvalidInputError(
                f"{type(self._store).__name__} cannot be searched by SIFT with the option(s) "
                f"{sorted(names)}; leave them out of `search_kwargs` and of the call"
            )


class InMemoryReader(StoreReader):
    """Reads an `InMemoryVectorStore`. A filter is called with a `Document`; no options."""

    advice = (
        "are query and documents embedded by one model, and is the filter a function of a Document?"
    )

    def fetch(self, query: Query, n: int, filter: Any, options: Options) -> CandidatePool:
        """Return the nearest documents by cosine."""
        self.refuse_options(list(options))
        with self.failures(query):
            hits = self._store.similarity_search_with_score_by_vector(
                query.vector.tolist(), k=n, filter=filter
            )
            rows = [self._store.store[str(document.id)]["vector"] for document, _ in hits]
        documents, scores = [each for each, _ in hits], [score for _, score in hits]
        return as_pool(query, documents, rows, scores=scores)

    def held(self, ids: Collection[str]) -> Mapping[str, tuple[str, FloatArray]]:
        """Return texts and vectors by id."""
        held = {key: self._store.store[key] for key in ids if key in self._store.store}
        return {key: (entry["text"], entry["vector"]) for key, entry in held.items()}


class ChromaReader(StoreReader):
    """Searches a `langchain_chroma.Chroma` by its own metric and takes the vectors along.

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


class EmbeddingReader(StoreReader):
    """Searches any store by text; vectors are looked up by the caller, or texts embedded.

    The store embeds the question once more, since a search by text is the only one that every
    store has. Scores come along where the store has a search that gives them. Filter and
    options go to the store's search.

    Raises:
        InvalidInputError: If the store does not know its embedding model.
    """

    advice = "is it reachable, and does its `similarity_search` take this filter and these options?"

    def __init__(self, store: Any, given: VectorsById | None = None) -> None:
        super().__init__(store)
        self._filler = VectorFiller(embedder_of(store), store, given)
        with_score = type(store).similarity_search_with_score
        self._gives_scores = with_score is not VectorStore.similarity_search_with_score  # raises
        self._search = "similarity_search" + ("_with_score" if self._gives_scores else "")

    def fetch(self, query: Query, n: int, filter: Any, options: Options) -> CandidatePool:
        """Return what the store finds."""
        return run_blocking(self._found(query, n, filter, options, is_awaited=False))

    async def afetch(self, query: Query, n: int, filter: Any, options: Options) -> CandidatePool:
        """Return what `fetch` returns, by the store's and the model's async methods."""
        return await self._found(query, n, filter, options, is_awaited=True)

    async def _found(
        self, query: Query, n: int, filter: Any, options: Options, *, is_awaited: bool
    ) -> CandidatePool:
        # Not every store has a `filter`, so none is not passed on.
        given = {"k": n, **({} if filter is None else {"filter": filter}), **options}
        search = getattr(self._store, ("a" if is_awaited else "") + self._search)
        with self.failures():
            found = search(query.text, **given)
            hits = await found if is_awaited else found
        if not self._gives_scores:
            hits = [(document, None) for document in hits]
        documents, scores = [_with_id(each) for each, _ in hits], [score for _, score in hits]
        nothing: list[None] = [None] * len(documents)
        rows = await self._filler.fill(documents, nothing, is_awaited=is_awaited)
        return as_pool(query, documents, rows, scores=scores)


def _with_id(document: Document) -> Document:
    """Return a document with its id in `id`; a sparse Qdrant store has it in metadata."""
    if document.id is None and document.metadata.get("_id") is not None:
        return document.model_copy(update={"id": str(document.metadata["_id"])})
    return document
