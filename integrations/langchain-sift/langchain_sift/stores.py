"""What a kind of store is asked for; LangChain's in-memory store; stores that keep vectors back."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, TypeAlias

from langchain_core.documents import Document
from langchain_core.vectorstores import VectorStore

from langchain_sift.documents import as_pool
from langchain_sift.embedder import FloatArray, embedder_of
from langchain_sift.vectors import MissingVectors, Vectors, VectorsById
from sift_core import CandidatePool, CandidateSourceError, InvalidInputError, Query

Options: TypeAlias = Mapping[str, Any]


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
            raise CandidateSourceError(
                f"{type(self._store).__name__} could not search {self._place}{by}: {error!r}; "
                f"{self.advice}"
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
        self._missing = MissingVectors(embedder_of(store), store, given)
        with_score = type(store).similarity_search_with_score
        self._gives_scores = with_score is not VectorStore.similarity_search_with_score  # raises
        self._search = "similarity_search" + ("_with_score" if self._gives_scores else "")

    def fetch(self, query: Query, n: int, filter: Any, options: Options) -> CandidatePool:
        """Return what the store finds."""
        with self.failures():
            found = getattr(self._store, self._search)(query.text, **_arguments(n, filter, options))
        documents, scores = self._columns(found)
        rows = self._missing.fill(documents, [None] * len(documents))
        return as_pool(query, documents, rows, scores=scores)

    async def afetch(self, query: Query, n: int, filter: Any, options: Options) -> CandidatePool:
        """Return what `fetch` returns, by the store's and the model's async methods."""
        search = getattr(self._store, f"a{self._search}")
        with self.failures():
            found = await search(query.text, **_arguments(n, filter, options))
        documents, scores = self._columns(found)
        rows = await self._missing.afill(documents, [None] * len(documents))
        return as_pool(query, documents, rows, scores=scores)

    def _columns(self, found: Sequence[Any]) -> tuple[list[Document], list[float | None]]:
        """Return the documents, each with its id, and their scores."""
        hits = found if self._gives_scores else [(document, None) for document in found]
        return [_with_id(document) for document, _ in hits], [score for _, score in hits]


def _arguments(n: int, filter: Any, options: Options) -> dict[str, Any]:
    # Not every store has a `filter`, so none is not passed on.
    return {"k": n, **({} if filter is None else {"filter": filter}), **options}


def _with_id(document: Document) -> Document:
    """Return a document with its id in `id`; a sparse Qdrant store has it in metadata."""
    if document.id is None and document.metadata.get("_id") is not None:
        return document.model_copy(update={"id": str(document.metadata["_id"])})
    return document
