"""What a kind of store is asked for; LangChain's in-memory store; stores that keep vectors back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeAlias

from langchain_core.documents import Document
from langchain_core.runnables import run_in_executor
from langchain_core.vectorstores import VectorStore

from langchain_sift.documents import (
    Vectors,
    VectorsById,
    all_vectors,
    as_pool,
    texts_without_vector,
    with_given,
)
from langchain_sift.embedder import aembedded_once, embedded_once, embedder_of
from sift_core import (
    CandidatePool,
    CandidateSourceError,
    InvalidInputError,
    Query,
)

Options: TypeAlias = Mapping[str, Any]


class StoreReader(ABC):
    """Reads one kind of LangChain store, which is what it is constructed with."""

    def __init__(self, store: Any) -> None:
        self._store = store

    @abstractmethod
    def fetch(self, query: Query, n: int, filter: Any, options: Options) -> CandidatePool:
        """Return what `VectorStoreSource.fetch` does; `options` are the store's own."""

    async def afetch(self, query: Query, n: int, filter: Any, options: Options) -> CandidatePool:
        """Return what `fetch` returns; in a thread where the store has no async form."""
        return await run_in_executor(None, self.fetch, query, n, filter, options)

    @abstractmethod
    def vectors(self, documents: Sequence[Document]) -> Vectors:
        """Return the stored vector of each document, shape (d,); None where there is none.

        A vector counts only where the store's text is the document's: a splitter or an
        extractor changes texts and keeps the id. A store that fails is a `CandidateSourceError`.
        """

    async def avectors(self, documents: Sequence[Document]) -> Vectors:
        """Return what `vectors` returns; in a thread."""
        return await run_in_executor(None, self.vectors, documents)

    @contextmanager
    def failures(self, place: str, advice: str) -> Iterator[None]:
        """Turn what the store raises in the block into a `CandidateSourceError` with its cause.

        Args:
            place: What was searched, for instance "collection 'docs'".
            advice: What to check.
        """
        try:
            yield
        except Exception as error:  # stores share no ancestor: ValueError, RpcError, KeyError, …
            raise CandidateSourceError(
                f"{type(self._store).__name__} could not search {place}: {error!r}; {advice}"
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

    def fetch(self, query: Query, n: int, filter: Any, options: Options) -> CandidatePool:
        """Return the nearest documents by cosine."""
        self.refuse_options(list(options))
        with self.failures(
            f"its {len(self._store.store)} documents",
            "are query and documents embedded by one model, and is the filter a function "
            "of a Document?",
        ):
            hits = self._store.similarity_search_with_score_by_vector(
                query.vector.tolist(), k=n, filter=filter
            )
            rows = [self._store.store[str(document.id)]["vector"] for document, _ in hits]
        documents, scores = [each for each, _ in hits], [score for _, score in hits]
        return as_pool(query, documents, rows, scores=scores)

    def vectors(self, documents: Sequence[Document]) -> Vectors:
        """Return the vectors of documents."""
        held = [self._store.store.get(document.id) for document in documents]
        return [
            None if entry is None or entry["text"] != document.page_content else entry["vector"]
            for document, entry in zip(documents, held, strict=True)
        ]


class EmbeddingReader(StoreReader):
    """Searches any store by text; vectors are looked up by the caller, or texts embedded.

    The store embeds the question once more, since a search by text is the only one that every
    store has. Scores come along where the store has a search that gives them. Filter and
    options go to the store's search.

    Raises:
        InvalidInputError: If the store does not know its embedding model.
    """

    def __init__(self, store: Any, given: VectorsById | None = None) -> None:
        super().__init__(store)
        self._given = given
        self._embedder = embedder_of(store)
        with_score = type(store).similarity_search_with_score
        self._gives_scores = with_score is not VectorStore.similarity_search_with_score  # raises
        self._search = "similarity_search" + ("_with_score" if self._gives_scores else "")

    def fetch(self, query: Query, n: int, filter: Any, options: Options) -> CandidatePool:
        """Return what the store finds."""
        arguments = _arguments(n, filter, options)
        with self._failures():
            found = getattr(self._store, self._search)(query.text, **arguments)
        documents, scores = self._columns(found)
        vectors = with_given(documents, [None] * len(documents), self._given)
        texts = texts_without_vector(documents, vectors, name_of(self._store))
        rows = all_vectors(vectors, embedded_once(self._embedder, texts))
        return as_pool(query, documents, rows, scores=scores)

    async def afetch(self, query: Query, n: int, filter: Any, options: Options) -> CandidatePool:
        """Return what `fetch` returns, by the store's and the model's async methods."""
        arguments = _arguments(n, filter, options)
        with self._failures():
            found = await getattr(self._store, f"a{self._search}")(query.text, **arguments)
        documents, scores = self._columns(found)
        vectors: Vectors = [None] * len(documents)
        if self._given is not None:
            vectors = await run_in_executor(None, with_given, documents, vectors, self._given)
        texts = texts_without_vector(documents, vectors, name_of(self._store))
        rows = all_vectors(vectors, await aembedded_once(self._embedder, texts))
        return as_pool(query, documents, rows, scores=scores)

    def vectors(self, documents: Sequence[Document]) -> Vectors:
        """Return None for each document."""
        return [None] * len(documents)

    def _columns(self, found: Sequence[Any]) -> tuple[list[Document], list[float | None]]:
        """Return the documents, each with its id, and their scores."""
        hits = found if self._gives_scores else [(document, None) for document in found]
        return [_with_id(document) for document, _ in hits], [score for _, score in hits]

    def _failures(self) -> AbstractContextManager[None]:
        name = getattr(self._store, "collection_name", None)
        return self.failures(
            "its documents" if name is None else f"collection {name!r}",
            "is it reachable, and does its `similarity_search` take this filter and these options?",
        )


def name_of(store: VectorStore | None) -> str:
    """Return the kind of a store, and the name of its collection where it has one."""
    if store is None:
        return "no vector store"
    collection = getattr(store, "collection_name", None)
    return type(store).__name__ + (f" {collection!r}" if collection else "")


def _arguments(n: int, filter: Any, options: Options) -> dict[str, Any]:
    # Not every store has a `filter`, so none is not passed on.
    return {"k": n, **({} if filter is None else {"filter": filter}), **options}


def _with_id(document: Document) -> Document:
    """Return a document with its id in `id`; a sparse Qdrant store has it in metadata."""
    if document.id is None and document.metadata.get("_id") is not None:
        return document.model_copy(update={"id": str(document.metadata["_id"])})
    return document
