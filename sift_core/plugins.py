"""What plugins share: a pool of what a framework found, and the vectors that it lacks."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence, Sized
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np

from sift_core.errors import InvalidInputError, SeenFacts
from sift_core.selection.cosines import cosine_similarities
from sift_core.selection.scores import relevance_of_scores
from sift_core.types import CandidatePool, FloatArray
from sift_core.vector_cache import KeptVectors
from sift_core.vector_lookup import vectors_by_id

__all__ = [
    "MissingVectors",
    "SeenFacts",
    "fill_gaps",
    "mark_blank",
    "pool_for_query",
    "run_blocking",
]

T = TypeVar("T")
_BLANK: tuple[float, ...] = (0.0,)
Pool = TypeVar("Pool", bound=CandidatePool)
Vectors: TypeAlias = Sequence[Any] | FloatArray  # a missing one is None
LookUp: TypeAlias = Callable[[list[str]], Mapping[str, Any]]

# The object that vectors belong to, and how it embeds texts, blocking and awaited.
Model: TypeAlias = tuple[
    object, Callable[[list[str]], Vectors], Callable[[list[str]], Awaitable[Vectors]]
]


def run_blocking(work: Coroutine[Any, Any, T]) -> T:
    """Return what a coroutine returns that waits for nothing; no event loop is needed.

    One body can thus serve a method and its awaited twin. An argument `is_awaited` says which of
    them called: `await store.avectors(ids) if is_awaited else store.vectors(ids)`.

    Raises:
        RuntimeError: If the coroutine waits for something.

    Example:
        >>> async def vectors(is_awaited):
        ...     return embedder.embed_documents(texts)
        ...
        >>> run_blocking(vectors(is_awaited=False)).shape
        (4, 256)
    """
    try:
        work.send(None)
    except StopIteration as done:
        return cast("T", done.value)
    work.close()
    raise RuntimeError("a coroutine that was run without an event loop waits for something")


def pool_for_query(
    kind: type[Pool],
    query: FloatArray,
    embeddings: Vectors,
    *,
    use_scores: bool | None = False,
    searched_by: FloatArray | None = None,
    **columns: Any,
) -> Pool:
    """Return found documents as a pool with their cosines.

    Args:
        kind: Class of the pool.
        query: The query's vector, shape (d,), or those of several queries, shape (m, d). A cosine
            is that with the nearest of m.
        embeddings: A vector for each document, shape (n, d) or n rows. That of a text without
            words becomes zeros, which `choose` leaves out.
        use_scores: Whether `scores` become the pool's `relevance`, as in `relevance_of_scores`.
            Default: never.
        searched_by: Vector that a store's scores compare with, shape (d,). Default: `query`.
        **columns: The other columns of the pool.

    Raises:
        InvalidInputError: If lengths differ, a number is not finite, or `use_scores` is True and
            a document has no finite score.

    Example:
        >>> columns = {"document_ids": ["a", "b"], "texts": ["At nine.", "Four crowns."]}
        >>> vectors = [[1.0, 0.0], [0.0, 1.0]]
        >>> found = pool_for_query(CandidatePool, np.array([2.0, 0.0]), vectors, **columns)
        >>> found.similarities.tolist()
        [1.0, 0.0]
    """
    d = query.shape[-1]
    if any(row is _BLANK for row in embeddings):
        embeddings = [np.zeros(d) if row is _BLANK else row for row in embeddings]
    lengths = {len(row) if isinstance(row, Sized) else 0 for row in embeddings}  # 0: a number
    if lengths - {d}:
        raise InvalidInputError(
            f"the query has {d} dimensions, the documents have {sorted(lengths)}; were all "
            f"embedded by one model?"
        )
    rows = np.asarray(embeddings) if len(embeddings) else np.empty((0, d), dtype=np.float32)
    with np.errstate(invalid="ignore", over="ignore"):  # the pool refuses what is not finite
        similarities = cosines = cosine_similarities(query, rows)
        if searched_by is not None:
            cosines = cosine_similarities(searched_by, rows)
    if use_scores is not False:
        columns["relevance"] = relevance_of_scores(
            columns["scores"], cosines, document_ids=columns["document_ids"], use_scores=use_scores
        )
    return kind(embeddings=rows, similarities=similarities, **columns)


def mark_blank(vectors: Vectors, texts: Sequence[str | None]) -> Sequence[Any]:
    """Return n vectors with a mark for each that is missing and whose text is blank.

    Such a text need not be embedded: it says nothing, and some models refuse it or return NaN.

    Example:
        >>> vectors = mark_blank([None, None], [" ", "The ferry sails at nine."])
        >>> vectors[0] is None, vectors[1] is None
        (False, True)
    """
    pairs = zip(vectors, texts, strict=True)
    return [_BLANK if row is None and not (text or "").strip() else row for row, text in pairs]


def fill_gaps(vectors: Vectors, others: Vectors) -> Sequence[Any]:
    """Return the vectors with each None replaced by the next of `others`, which are as many.

    Example:
        >>> fill_gaps([None, [1.0, 0.0], None], [[0.0, 1.0], None])
        [[0.0, 1.0], [1.0, 0.0], None]
    """
    if len(others) == len(vectors):
        return cast("Sequence[Any]", others)  # all were missing; a matrix stays one
    rest = iter(others)
    return [next(rest) if vector is None else vector for vector in vectors]


class MissingVectors:
    """Completes the vectors of documents that a store does not give, in one batch of texts.

    A text is embedded once for each model while its vector is kept (`KeptVectors`).

    An id that several documents share names none of them, so it is not looked up.

    Args:
        logger: Says how many texts are embedded: a warning the first time for a place, then a
            debug message.
        message: Its text, with three `%` places: the numbers of texts and of documents, and the
            store's name.

    Example:
        >>> import logging
        >>> async def aembed(texts):
        ...     return embedder.embed_documents(texts)
        ...
        >>> missing = MissingVectors(logging.getLogger("example"), "embedding %d of %d texts of %s")
        >>> vectors = missing.completed(
        ...     [None, [1.0] * 256],
        ...     ["a", "b"],
        ...     lambda row: texts[row],
        ...     lambda: (embedder, embedder.embed_documents, aembed),
        ...     place="a store",
        ...     look_up=None,
        ...     is_awaited=False,
        ... )
        >>> [len(vector) for vector in run_blocking(vectors)]
        [256, 256]
    """

    def __init__(self, logger: logging.Logger, message: str) -> None:
        self.seen: SeenFacts = SeenFacts()
        self._logger = logger
        self._message = message
        self._kept = KeptVectors()

    async def completed(
        self,
        vectors: Vectors,
        ids: Sequence[str | None],
        text_of: Callable[[int], str],
        model: Callable[[], Model],
        *,
        place: str,
        look_up: LookUp | None,
        brought: Callable[[int], Any] = lambda row: None,
        is_awaited: bool,
    ) -> Sequence[Any]:
        """Return n vectors, of which none is missing.

        Args:
            vectors: n vectors. A missing one is None.
            ids: n ids. A document without one has None.
            text_of: Returns the text to embed of a document by its position.
            model: Called if there is something to embed.
            place: Name of the store for the log.
            look_up: As `vectors` of `vectors_by_id`, called for what the store did not give; in a
                thread if awaited. None: nothing is looked up.
            brought: Returns the vector that a document brought along, if no store had it.
            is_awaited: Whether to await the model.

        Raises:
            InvalidInputError: If `look_up` returns no mapping, or the model another number of
                vectors.
        """
        if isinstance(vectors, np.ndarray):  # none is missing
            return cast("Sequence[Any]", vectors)
        if look_up is not None:
            counts = Counter(ids)
            missing = [
                name if counts[name] == 1 else None
                for name, one in zip(ids, vectors, strict=True)
                if one is None
            ]
            if is_awaited:
                found = await asyncio.to_thread(vectors_by_id, look_up, missing)
            else:
                found = vectors_by_id(look_up, missing)
            vectors = fill_gaps(vectors, found)
        vectors = [brought(row) if one is None else one for row, one in enumerate(vectors)]
        missing_texts = [text_of(i) if one is None else "" for i, one in enumerate(vectors)]
        vectors = mark_blank(vectors, missing_texts)
        texts = [text for text in missing_texts if text.strip()]
        if not texts:
            return vectors
        if look_up is not None:
            place += ", nor given by `vectors`"
        level = logging.WARNING if self.seen.add(place) else logging.DEBUG
        self._logger.log(level, self._message, len(texts), len(vectors), place)
        owner, embed, aembed = model()
        if is_awaited:
            return fill_gaps(vectors, await self._kept.aembedded(owner, texts, aembed))
        return fill_gaps(vectors, self._kept.embedded(owner, texts, embed))
