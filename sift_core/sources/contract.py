"""What sources do alike: batches of one, checks of arguments, samples, asking other sources."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, overload

import numpy as np

from sift_core.checks import as_count
from sift_core.errors import CandidateSourceError, InvalidInputError
from sift_core.protocols import BatchCandidateSource, CandidateSource, Lookup
from sift_core.selection.cosines import cosine_similarities
from sift_core.types import CandidatePool, DocumentSample, FloatArray, Metadata, Query


class LexicalFetching(ABC):
    """Fetches one query as a batch of one, and awaits everything in a worker thread."""

    @abstractmethod
    def fetch_batch(
        self, queries: Sequence[Query], n_candidates: int, *, filter: Any = None
    ) -> list[CandidatePool]:
        """Return the nearest documents of each query."""

    def fetch(self, query: Query, n_candidates: int, *, filter: Any = None) -> CandidatePool:
        """Return the nearest documents of one query, as `fetch_batch` does, which see."""
        return self.fetch_batch([query], n_candidates, filter=filter)[0]

    async def afetch(self, query: Query, n_candidates: int, *, filter: Any = None) -> CandidatePool:
        """Return what `fetch` returns, without blocking the event loop."""
        return (await self.afetch_batch([query], n_candidates, filter=filter))[0]

    async def afetch_batch(
        self, queries: Sequence[Query], n_candidates: int, *, filter: Any = None
    ) -> list[CandidatePool]:
        """Return what `fetch_batch` returns, from a worker thread."""
        return await asyncio.to_thread(self.fetch_batch, queries, n_candidates, filter=filter)

    @abstractmethod
    def look_up(
        self, query: Query, lookups: Sequence[Lookup], *, filter: Any = None
    ) -> list[CandidatePool]:
        """Return one pool for each lookup."""

    async def alook_up(
        self, query: Query, lookups: Sequence[Lookup], *, filter: Any = None
    ) -> list[CandidatePool]:
        """Return what `look_up` returns, from a worker thread."""
        return await asyncio.to_thread(self.look_up, query, lookups, filter=filter)


def check_lookups(
    query: object, lookups: object, *, dimension: int | None, embedder_name: str | None
) -> None:
    """Refuse a query and lookups that such a store cannot answer.

    Args:
        query: Anything.
        lookups: Anything.
        dimension: The store's. Default for a store that checks it itself: None.
        embedder_name: The store's. None if it is not known.

    Raises:
        InvalidInputError: If `lookups` is not a sequence of `Lookup`, or `check_fetch_arguments`
            refuses the query or a lookup's vector.
    """
    if isinstance(lookups, str) or not isinstance(lookups, Sequence):
        raise InvalidInputError(
            f"`lookups` must be a sequence of Lookup, got {type(lookups).__name__}"
        )
    for one in lookups:
        if not isinstance(one, Lookup):
            raise InvalidInputError(
                f"`lookups` must be a sequence of Lookup, got {type(one).__name__} in it"
            )
    queries: list[Any] = [query]
    if isinstance(query, Query):
        queries += [query_of(query, one) for one in lookups if one.vector is not None]
        dimension = len(query.vector) if dimension is None else dimension
    check_fetch_arguments(queries, 1, dimension=dimension, embedder_name=embedder_name)


def query_of(query: Query, lookup: Lookup) -> Query:
    """Return the query whose `fetch` is the lookup of a vector; itself if it has that vector."""
    if lookup.vector is query.embedding:
        return query
    return replace(query, embedding=lookup.vector, also=())


def with_cosines(query: Query, pool: CandidatePool) -> CandidatePool:
    """Return a pool whose similarities are the cosines with this query."""
    cosines = cosine_similarities(query.vector, pool.embeddings)
    return replace(pool, similarities=cosines) if len(pool) else pool


def check_fetch_arguments(
    queries: Sequence[Query],
    n_candidates: int,
    *,
    dimension: int | None,
    embedder_name: str | None,
) -> int:
    """Return `n_candidates` as an int, for queries that such a store can answer.

    Args:
        queries: Anything.
        n_candidates: Anything.
        dimension: The store's. None if the store checks it itself.
        embedder_name: The store's. None if it is not known.

    Raises:
        InvalidInputError: If `queries` is no sequence of Query, `n_candidates` is not an integer
            >= 1, the dimension differs, or both sides name their embedder and the names differ.
    """
    if isinstance(queries, Query | str) or not isinstance(queries, Sequence):
        raise InvalidInputError(
            f"`queries` must be a sequence of Query, got {type(queries).__name__}; `fetch` takes "
            f"one"
        )
    n_candidates = as_count("n_candidates", n_candidates, minimum=1)
    for query in queries:
        if not isinstance(query, Query):
            raise InvalidInputError(
                f"`query` must be a sift_core.Query, got {type(query).__name__}; make one of text "
                f"and embedding"
            )
        if dimension not in (None, len(query.vector)):
            raise InvalidInputError(
                f"the query has {len(query.vector)} dimensions, the store has {dimension}; "
                f"were both embedded by one model?"
            )
        names = (embedder_name, query.embedder_name)
        if None not in names and names[0] != names[1]:
            raise InvalidInputError(
                f"the query was embedded by {query.embedder_name!r}, the store by "
                f"{embedder_name!r}; embed the query with the store's model"
            )
    return n_candidates


def check_is_callable(filter: object) -> None:
    """Refuse a filter that is not a function of a document's metadata.

    Raises:
        InvalidInputError: If it is neither callable nor None.
    """
    if filter is not None and not callable(filter):
        raise InvalidInputError(
            f"`filter` must be a function of a document's metadata, got "
            f"{type(filter).__name__}; each kind of store has its own kind of filter"
        )


def as_float32(embedding: FloatArray) -> FloatArray:
    """Return a query's embedding in the precision that stores compare.

    Raises:
        InvalidInputError: If a number is too large for it.
    """
    with np.errstate(over="ignore"):  # becomes infinite, which is refused
        narrow: FloatArray = embedding.astype(np.float32)
    if not np.isfinite(narrow).all():
        raise InvalidInputError(
            f"the query's `embedding` must fit float32, which the store compares, got numbers up "
            f"to {np.max(np.abs(embedding)):g}; scale it down"
        )
    return narrow


def check_sample_arguments(n_documents: object, generator: object) -> int:
    """Return `n_documents` as an int.

    Raises:
        InvalidInputError: If it is not an integer >= 1, or `generator` is no generator.
    """
    n = as_count("n_documents", n_documents, minimum=1)
    if not isinstance(generator, np.random.Generator):
        raise InvalidInputError(
            f"`generator` must be a numpy.random.Generator, got {type(generator).__name__}; "
            f"np.random.default_rng(0) makes one"
        )
    return n


def as_sample(
    place: str,
    *,
    document_ids: Sequence[str],
    texts: Sequence[str],
    embeddings: FloatArray,
    metadata: Sequence[Metadata],
    n_stored: int,
    is_seeded: bool = True,
) -> DocumentSample:
    """Return the sample that was drawn.

    Args:
        place: What the message calls the store.
        document_ids: As in `DocumentSample`, and so the others.
        texts: n chunks.
        embeddings: Shape (n, d).
        metadata: n mappings.
        n_stored: >= n.
        is_seeded: Whether the seed decides.

    Raises:
        CandidateSourceError: If a vector is not finite, with the document's name.
        InvalidInputError: If there is no document.
    """
    if not document_ids:
        raise InvalidInputError(f"there are no documents to sample in {place}; add some first")
    broken = np.flatnonzero(~np.isfinite(embeddings).all(axis=1))
    if len(broken):
        raise CandidateSourceError(
            f"the vector of document {document_ids[broken[0]]!r} in {place} holds NaN or infinity "
            f"({len(broken)} of {len(document_ids)} drawn vectors do); embed such documents again, "
            f"or delete them"
        )
    return DocumentSample(
        document_ids=tuple(document_ids),
        texts=tuple(texts),
        embeddings=embeddings,
        metadata=tuple(metadata),
        n_stored=n_stored,
        is_seeded=is_seeded,
    )


def has_words(source: CandidateSource) -> bool:
    """Return whether a source keeps the words of its documents, as far as it knows."""
    return bool(getattr(source, "has_words", False))


def fetch_all(
    source: CandidateSource, queries: Sequence[Query], n_candidates: int, filter: Any
) -> list[CandidatePool]:
    """Return what `fetch` returns for each query, in one batch where the source takes batches."""
    if len(queries) != 1 and isinstance(source, BatchCandidateSource):
        return source.fetch_batch(queries, n_candidates, filter=filter)
    return [source.fetch(query, n_candidates, filter=filter) for query in queries]


async def afetch_all(
    source: CandidateSource, queries: Sequence[Query], n_candidates: int, filter: Any
) -> list[CandidatePool]:
    """Return what `fetch_all` returns; a source without batches is asked for all at once."""
    if len(queries) != 1 and isinstance(source, BatchCandidateSource):
        return await source.afetch_batch(queries, n_candidates, filter=filter)
    calls = (source.afetch(query, n_candidates, filter=filter) for query in queries)
    return list(await asyncio.gather(*calls))


def look_up(
    source: Any, query: Query, lookups: Sequence[Lookup], filter: Any
) -> list[CandidatePool]:
    """Return what a source finds; one without `look_up` finds nothing for words."""
    if hasattr(source, "look_up"):
        found: list[CandidatePool] = source.look_up(query, lookups, filter=filter)
        return found
    vectors = VectorLookups(query, lookups)
    return vectors.pools(
        {n: fetch_all(source, queries, n, filter) for n, queries in vectors.queries.items()}
    )


async def alook_up(
    source: Any, query: Query, lookups: Sequence[Lookup], filter: Any
) -> list[CandidatePool]:
    """Return what `look_up` returns, without blocking the event loop."""
    if hasattr(source, "alook_up"):
        found: list[CandidatePool] = await source.alook_up(query, lookups, filter=filter)
        return found
    vectors = VectorLookups(query, lookups)
    return vectors.pools(
        {n: await afetch_all(source, queries, n, filter) for n, queries in vectors.queries.items()}
    )


class VectorLookups:
    """The vectors among lookups, as queries for `fetch`.

    Args:
        query: Whose cosines are wanted.
        lookups: Vectors and words.

    Attributes:
        queries: By number of candidates, in the order of the lookups.
        places: Where these stand among the lookups.
    """

    def __init__(self, query: Query, lookups: Sequence[Lookup]) -> None:
        self._query, self._n_lookups = query, len(lookups)
        self.queries: dict[int, list[Query]] = defaultdict(list)
        self.places: dict[int, list[int]] = defaultdict(list)
        for place, lookup in enumerate(lookups):
            if lookup.vector is not None:
                self.queries[lookup.n_candidates].append(query_of(query, lookup))
                self.places[lookup.n_candidates].append(place)

    def pools(self, found: dict[int, list[CandidatePool]]) -> list[CandidatePool]:
        """Return one pool for each lookup of what was found for `queries`, empty for words."""
        empty = CandidatePool.empty(dimension=len(self._query.vector))
        return self.put_into([empty] * self._n_lookups, found)

    def put_into(
        self, pools: Sequence[CandidatePool], found: dict[int, list[CandidatePool]]
    ) -> list[CandidatePool]:
        """Return the pools of all lookups, those of vectors replaced by what was found."""
        pools = list(pools)
        for n, places in self.places.items():
            for place, near, pool in zip(places, self.queries[n], found[n], strict=True):
                pools[place] = pool if near is self._query else with_cosines(self._query, pool)
        return pools


class CopiedOnRead(Sequence[Metadata]):
    """Mappings of which a reader gets a copy to change, made when it is first read.

    Of some hundred candidates a dozen are looked at; copying the others would cost a fetch
    from a fast index a tenth of its time.

    Args:
        originals: Mappings that nobody changes.
    """

    def __init__(self, originals: Sequence[Metadata]) -> None:
        self._originals = originals
        self._copies: dict[int, Metadata] = {}

    def __len__(self) -> int:
        """Return the number of mappings."""
        return len(self._originals)

    @overload
    def __getitem__(self, position: int) -> Metadata: ...

    @overload
    def __getitem__(self, position: slice) -> tuple[Metadata, ...]: ...

    def __getitem__(self, position: int | slice) -> Metadata | tuple[Metadata, ...]:
        """Return the copy at a position, always the same one; a tuple of them for a slice."""
        which = range(len(self))[position]
        if isinstance(which, range):
            return tuple(self[i] for i in which)
        if which not in self._copies:
            self._copies.setdefault(which, dict(self._originals[which]))  # one for all threads
        return self._copies[which]

    def __eq__(self, other: object) -> bool:
        """Return whether another sequence has equal mappings in the same order."""
        if not isinstance(other, Sequence):
            return NotImplemented
        return tuple(self) == tuple(other)

    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # what it holds may be changed
