"""The seams between the stages. An object with the methods of one takes part; no base class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from sift_core.checks import as_count, as_vector, short_repr
from sift_core.errors import InvalidInputError
from sift_core.types import (
    CandidatePool,
    Document,
    DocumentSample,
    FloatArray,
    Query,
    Selection,
)


@runtime_checkable
class Embedder(Protocol):
    """Turns text into vectors of one dimension d.

    Example:
        >>> isinstance(embedder, Embedder)
        True
        >>> embedder.embed_query("When does the ferry sail?").shape
        (256,)
    """

    @property
    def name(self) -> str:
        """Name of the model, kept beside every index made with it."""
        ...

    def embed_query(self, text: str) -> FloatArray:
        """Return the embedding of a question, shape (d,)."""
        ...

    def embed_documents(self, texts: Sequence[str]) -> FloatArray:
        """Return the embeddings of documents, shape (n, d), rows in the order of `texts`."""
        ...


@runtime_checkable
class CandidateSource(Protocol):
    """A vector store, seen as a function from a query to its nearest documents.

    Example:
        >>> isinstance(source, CandidateSource)
        True
        >>> source.fetch(query, n_candidates=2).document_ids
        ('prices', 'timetable')
    """

    def fetch(self, query: Query, n_candidates: int, *, filter: Any = None) -> CandidatePool:
        """Return the store's nearest documents with their embeddings, nearest first.

        Args:
            query: What to look for.
            n_candidates: How many at most, >= 1. A smaller store returns all it has.
            filter: The store's own kind of filter. Default: no restriction.

        Raises:
            CandidateSourceError: If the store fails.
            InvalidInputError: If query and store do not fit together.
        """
        ...

    async def afetch(self, query: Query, n_candidates: int, *, filter: Any = None) -> CandidatePool:
        """Return what `fetch` returns, without blocking the event loop."""
        ...


@runtime_checkable
class BatchCandidateSource(CandidateSource, Protocol):
    """A source that is cheaper to ask for many queries at once, as all of this library are."""

    def fetch_batch(
        self, queries: Sequence[Query], n_candidates: int, *, filter: Any = None
    ) -> list[CandidatePool]:
        """Return what `fetch` returns for each query, asked of the store at once."""
        ...

    async def afetch_batch(
        self, queries: Sequence[Query], n_candidates: int, *, filter: Any = None
    ) -> list[CandidatePool]:
        """Return what `fetch_batch` returns, without blocking the event loop."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class Lookup:
    """One list of documents to look for: those near a vector, or those with words.

    Args:
        n_candidates: How many at most, >= 1.
        vector: Shape (d,), finite. Default: look for words.
        words: As `words_of` in `sift_core.selection.word_counts` spells them. A word that comes
            twice counts once. Documents come by BM25, best first. Default: look for a vector.

    Raises:
        InvalidInputError: If both or neither of `vector` and `words` are given, or one of the
            three cannot be used.

    Example:
        >>> by_words = Lookup(n_candidates=2, words=["ticket"])
        >>> source.look_up(query, [by_words])[0].document_ids
        ('prices',)
    """

    n_candidates: int
    vector: FloatArray | None = None
    words: Sequence[str] | None = None

    def __post_init__(self) -> None:
        count = as_count("n_candidates", self.n_candidates, minimum=1)
        object.__setattr__(self, "n_candidates", count)
        if (self.vector is None) == (self.words is None):
            raise InvalidInputError("a lookup must have either `vector` or `words`")
        if self.vector is not None:
            object.__setattr__(self, "vector", as_vector("vector", self.vector))
        if self.words is not None:
            if isinstance(self.words, str) or not all(isinstance(one, str) for one in self.words):
                raise InvalidInputError(
                    f"`words` must be a sequence of words, got {short_repr(self.words)}; "
                    f"`words_of` splits a text"
                )
            object.__setattr__(self, "words", tuple(self.words))


@runtime_checkable
class LexicalSource(CandidateSource, Protocol):
    """A source that finds documents by their words as well as by vectors."""

    @property
    def has_words(self) -> bool:
        """Whether the store keeps the words of its documents.

        A store that turns out to have none says so once, by a `MissingWordsWarning`, when words
        are looked up. Before Python 3.12, `isinstance` reads this property.
        """
        ...

    def look_up(
        self, query: Query, lookups: Sequence[Lookup], *, filter: Any = None
    ) -> list[CandidatePool]:
        """Return one pool for each lookup, all in one trip to the store.

        A lookup of a vector returns what `fetch` returns for that vector. A lookup of words
        returns documents by descending BM25, ties in the store's order, with the scores in the
        pool's `scores`. Documents with none of the words are not returned. A store that has no
        words returns empty pools for words. `relevance` of these is None.

        Args:
            query: Whose cosine with each row is in `similarities`, whatever found the row.
            lookups: What to look for, in any number and mixture.
            filter: The store's own kind of filter, as in `fetch`. It holds for all lookups.
                Default: no restriction.

        Raises:
            CandidateSourceError: If the store fails.
            InvalidInputError: If query, lookups and store do not fit together.
        """
        ...

    async def alook_up(
        self, query: Query, lookups: Sequence[Lookup], *, filter: Any = None
    ) -> list[CandidatePool]:
        """Return what `look_up` returns, without blocking the event loop."""
        ...


@runtime_checkable
class SamplableSource(CandidateSource, Protocol):
    """A source that can draw documents at random, which tells what the whole store is like."""

    def sample(self, n_documents: int, generator: np.random.Generator) -> DocumentSample:
        """Return up to `n_documents` random documents, all in random order where there are fewer.

        Args:
            n_documents: >= 1.
            generator: What to draw with.

        Raises:
            CandidateSourceError: If the store fails, or a drawn vector is not finite.
            InvalidInputError: If the store is empty, or an argument cannot be used.
        """
        ...


@runtime_checkable
class DocumentIndex(Protocol):
    """A store that `index_documents` keeps equal to a collection of documents.

    Documents are stored under content ids (UUIDs made from all that a document holds), so
    that writing one again changes nothing. What was written before a finished `flush` survives
    the death of the process at any later moment.
    """

    @property
    def embedder_name(self) -> str | None:
        """Name of the model behind the stored vectors; None where it is not known."""
        ...

    def prepare(self, *, embedder_name: str, dimension: int) -> None:
        """Make the store ready for vectors (dimension,) of an embedder; create what is missing.

        Raises:
            CandidateSourceError: If the store fails, or somebody else is writing to it.
            InvalidInputError: If it holds vectors of another dimension or embedder.
        """
        ...

    def content_ids(self) -> set[str]:
        """Return the ids of what `add` has stored; empty where there is no store yet.

        What others have written into the same store is not listed where the store can tell.
        """
        ...

    def add(
        self, content_ids: Sequence[str], documents: Sequence[Document], embeddings: FloatArray
    ) -> None:
        """Store documents with embeddings (n, d); equal ids are replaced.

        Raises:
            CandidateSourceError: If the store fails; all, some or none may be stored.
        """
        ...

    def remove(self, content_ids: Sequence[str]) -> None:
        """Delete documents; ids that are not there are ignored."""
        ...

    def flush(self) -> None:
        """Make durable what was added and removed; nothing to do where each call is durable."""
        ...

    def complete(self) -> None:
        """Do what `flush` does, and let go of what writing needed, locks for instance."""
        ...


@runtime_checkable
class Selector(Protocol):
    """Chooses rows of a matrix of embeddings for one query. Knows no text.

    Example:
        >>> isinstance(MMRSelector(), Selector)
        True
        >>> options = ChoiceOptions(n_select=2, selector=MMRSelector())
        >>> choose(pool, query, options).chunks.document_ids
        ('prices', 'timetable')
    """

    def select(
        self,
        query: FloatArray,
        candidates: FloatArray,
        n_select: int,
        *,
        relevance: FloatArray | None = None,
    ) -> Selection:
        """Return up to `n_select` choices from `candidates` (n, d) for `query` (d,).

        Args:
            query: Shape (d,).
            candidates: Shape (n, d). n may be 0.
            n_select: How many to choose, >= 0.
            relevance: What another ranker thinks of each candidate, shape (n,), higher is
                better; None for the cosine. A selector that has no use for it disregards it.
        """
        ...
