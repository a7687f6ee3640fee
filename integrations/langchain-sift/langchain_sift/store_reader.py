"""What every kind of store is asked for: candidates with vectors, and vectors by document."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from langchain_core.documents import Document
from langchain_core.runnables import run_in_executor

from sift_core import CandidatePool, CandidateSourceError, InvalidInputError, Query

FloatArray: TypeAlias = npt.NDArray[np.floating[Any]]
Vectors: TypeAlias = Sequence[FloatArray | None]


@dataclass(frozen=True, kw_only=True, eq=False)
class Search:
    """What to ask a store for.

    Args:
        query: The question and its embedding, finite and not all zero.
        n_candidates: How many documents at most, >= 1.
        filter: The store's own kind of filter; None for no restriction.
        options: Further arguments in the store's own words.
    """

    query: Query
    n_candidates: int
    filter: Any
    options: Mapping[str, Any]


class StoreReader(ABC):
    """Reads one kind of LangChain store.

    Args:
        store: A vector store of that kind.
    """

    gives_vectors = True

    def __init__(self, store: Any) -> None:
        self._store = store

    @abstractmethod
    def fetch(self, search: Search) -> CandidatePool:
        """Return the store's nearest documents with their vectors, nearest first.

        Raises:
            CandidateSourceError: If the store fails.
            InvalidInputError: If the filter is of another kind, an option cannot be used, or
                the dimensions differ.
        """

    async def afetch(self, search: Search) -> CandidatePool:
        """Return what `fetch` returns; in a thread where the store has no async form."""
        return await run_in_executor(None, self.fetch, search)

    @abstractmethod
    def vectors(self, documents: Sequence[Document]) -> Vectors:
        """Return the stored vector of each document, shape (d,); None where there is none.

        A vector counts only where the store's text is the document's: a splitter or an
        extractor changes texts and keeps the id.

        Raises:
            CandidateSourceError: If the store fails.
        """

    async def avectors(self, documents: Sequence[Document]) -> Vectors:
        """Return what `vectors` returns; in a thread."""
        return await run_in_executor(None, self.vectors, documents)

    @contextmanager
    def failures(self, place: str, advice: str) -> Iterator[None]:
        """Turn whatever the store raises inside the block into an error that says what to do.

        Args:
            place: What was searched, for instance "collection 'docs'".
            advice: What to check.

        Raises:
            CandidateSourceError: If the block raises; the store's exception is its cause.
        """
        try:
            yield
        except Exception as error:  # stores share no ancestor: ValueError, RpcError, KeyError, …
            raise CandidateSourceError(
                f"{type(self._store).__name__} could not search {place}: {error!r}; {advice}"
            ) from error

    def refuse_options(self, names: set[str]) -> None:
        """Refuse search options that would be ignored or would clash.

        Raises:
            InvalidInputError: If `names` is not empty.
        """
        if names:
            raise InvalidInputError(
                f"{type(self._store).__name__} cannot be searched by SIFT with the option(s) "
                f"{sorted(names)}; leave them out of `search_kwargs` and of the call"
            )

    def check_filter(self, filter: object, *, is_of_its_kind: bool, kind: str) -> None:
        """Refuse a filter that is of another store's kind; None is always taken.

        Raises:
            InvalidInputError: If it is.
        """
        if filter is not None and not is_of_its_kind:
            raise InvalidInputError(
                f"`filter` for {type(self._store).__name__} must be {kind}, got "
                f"{type(filter).__name__}; each kind of store has its own kind of filter"
            )
