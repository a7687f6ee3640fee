"""The values that pass between the stages: frozen, validated once, never edited."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Literal, TypeAlias

import numpy as np

from sift_core.checks import (
    as_finite_array,
    as_messages,
    as_vector,
    check_text,
    checked_positions,
    short_repr,
)
from sift_core.errors import InvalidInputError
from sift_core.places import Place, heading_of, place_of

# What `numpy.typing.NDArray` stands for, which takes 5 ms to import.
BoolArray: TypeAlias = np.ndarray[tuple[Any, ...], np.dtype[np.bool_]]
FloatArray: TypeAlias = np.ndarray[tuple[Any, ...], np.dtype[np.floating[Any]]]
IntArray: TypeAlias = np.ndarray[tuple[Any, ...], np.dtype[np.integer[Any]]]
Metadata: TypeAlias = Mapping[str, Any]
Message: TypeAlias = Mapping[str, str]
"""One turn of a chat: "role" ("system", "user" or "assistant") and "content"."""
FinishReason: TypeAlias = Literal["stop", "length"]
"""Why a text ends: the model or a stop string ended it, or it had its full length."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Query:
    """A question and its embedding.

    Args:
        text: The question in words.
        embedding: Shape (d,), finite, d >= 1; None where nothing is looked for.
        embedder_name: Name of the model behind `embedding`. A source that knows the
            name of its own embedder refuses a query made by another one.
        history: What was said before, oldest first. Candidates are not looked for with it.
        also: What else is looked for, each with an embedding like this one's and without `also`:
            parts of the question, or rewrites. `search` fetches candidates of all of them.

    Raises:
        InvalidInputError: If `embedding` is not one finite vector, `text` is not text,
            `history` has anything but messages, or `also` anything but such queries.

    Example:
        >>> question = "When does the ferry sail?"
        >>> query = Query(text=question, embedding=embedder.embed_query(question))
        >>> source.fetch(query, n_candidates=1).texts
        ('The ferry sails at nine.',)
    """

    text: str
    embedding: FloatArray | None = field(default=None, repr=False)
    embedder_name: str | None = None
    history: Sequence[Message] = ()
    also: Sequence[Query] = ()

    def __post_init__(self) -> None:
        check_text("text", self.text)
        object.__setattr__(self, "history", tuple(as_messages("history", self.history)))
        object.__setattr__(self, "also", tuple(self.also))
        dimension = None
        if self.embedding is not None:
            object.__setattr__(self, "embedding", as_vector("embedding", self.embedding))
            dimension = len(self.embedding)
        for one in self.also:
            fits = isinstance(one, Query) and not one.also and one.embedding is not None
            if not fits or len(one.vector) != dimension:
                raise InvalidInputError(
                    f"`also` must hold queries without `also`, with embeddings of as many numbers "
                    f"as the query's own, {dimension}; got {short_repr(one)}"
                )

    @classmethod
    def of_each(
        cls,
        texts: Sequence[str],
        embeddings: Iterable[Sequence[float] | FloatArray],
        *,
        embedder_name: str | None = None,
    ) -> Query:
        """Return a query of m >= 1 texts: the first with the others in `also`.

        Args:
            texts: What is looked for.
            embeddings: Their vectors, shape (m, d).
            embedder_name: Name of the model behind these.

        Raises:
            InvalidInputError: If there is no text, it is one text and no list, or their vectors
                are not as many.
        """
        if isinstance(texts, str) or not isinstance(texts, Sequence) or not texts:
            raise InvalidInputError(f"queries must be a list of texts, got {short_repr(texts)}")
        vectors = [np.asarray(embedding) for embedding in embeddings]
        if len(vectors) != len(texts):
            raise InvalidInputError(
                f"each text must have one embedding, got {len(texts)} text(s) and {len(vectors)} "
                f"embedding(s)"
            )
        first, *others = (
            cls(text=text, embedding=vector, embedder_name=embedder_name)
            for text, vector in zip(texts, vectors, strict=True)
        )
        return replace(first, also=others)

    @property
    def vector(self) -> FloatArray:
        """Return the embedding, shape (d,), of a query that is looked for.

        Raises:
            InvalidInputError: If it has none.
        """
        if self.embedding is None:
            raise InvalidInputError(
                "the query has no `embedding`; embed its text with the documents' model"
            )
        return self.embedding

    @property
    def vectors(self) -> FloatArray:
        """Return what a selector takes: the embedding, shape (d,), or with `also` all, (m, d).

        Raises:
            InvalidInputError: If it has none.
        """
        if not self.also:
            return self.vector
        return np.stack([self.vector, *(one.vector for one in self.also)])


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """One chunk of text as a store without payloads of its own keeps it.

    Args:
        document_id: The store's identifier.
        text: The chunk.
        metadata: Anything else; never interpreted.

    Example:
        >>> text, about = "The ferry sails at nine.", {"source": "ferry.md", "start": 0}
        >>> document = Document(document_id="ferry.md#0", text=text, metadata=about)
        >>> document.metadata["source"]
        'ferry.md'
    """

    document_id: str
    text: str
    metadata: Metadata = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, eq=False)
class CandidatePool:
    """Columns of equal length; row i is one document everywhere.

    Args:
        document_ids: n identifiers, as the store spells them.
        texts: n chunks, in any sequence: one that makes texts when they are asked for stays so.
        embeddings: Shape (n, d), finite.
        similarities: Shape (n,), the cosine of each row and the query, in [-1, 1].
        metadata: n mappings; n empty ones if left out.
        relevance: The store's own scores where they say more than the cosine does (fused
            or reranked results), shape (n,), higher is more relevant; None elsewhere.
            What `ContextSelector.select` takes as its `relevance`.
        scores: n numbers or None, as a store or an earlier ranker gave them. Default: no scores.
        items: n objects of the caller's behind the rows, for instance a framework's documents.
            They stay with their rows. Default: no items.

    Raises:
        InvalidInputError: If lengths differ or a number is not finite.

    Example:
        >>> vectors = np.array([[1.0, 0.1], [0.2, 1.0]])
        >>> pool = CandidatePool(
        ...     document_ids=["timetable", "prices"],
        ...     texts=["The ferry sails at nine.", "A ticket costs four crowns."],
        ...     embeddings=vectors,
        ...     similarities=cosine_similarities(np.array([1.0, 0.6]), vectors),
        ... )
        >>> pool.take([1]).texts
        ('A ticket costs four crowns.',)
    """

    document_ids: Sequence[str]
    texts: Sequence[str]
    embeddings: FloatArray = field(repr=False)
    similarities: FloatArray
    metadata: Sequence[Metadata] = ()
    relevance: FloatArray | None = None
    scores: Sequence[float | None] = ()
    items: Sequence[Any] = ()

    def __post_init__(self) -> None:
        for name in ("document_ids", "texts", "metadata", *_EXTRA):
            column = getattr(self, name)
            if isinstance(column, str):
                raise InvalidInputError(f"`{name}` must be a sequence of texts, got one text")
            if not hasattr(column, "__len__"):
                raise InvalidInputError(
                    f"`{name}` must be a sequence, one item a document, got {short_repr(column)}"
                )
        n, metadata = len(self.document_ids), self.metadata
        if not len(metadata):
            metadata = tuple({} for _ in range(n))
        elif isinstance(metadata, list):
            metadata = tuple(metadata)
        columns: dict[str, Any] = {
            "document_ids": tuple(self.document_ids),
            "texts": tuple(self.texts) if isinstance(self.texts, list) else self.texts,
            "embeddings": as_finite_array("embeddings", self.embeddings, n_dimensions=2),
            "similarities": as_finite_array("similarities", self.similarities, n_dimensions=1),
            "metadata": metadata,
        }
        if self.relevance is not None:
            columns["relevance"] = as_finite_array("relevance", self.relevance, n_dimensions=1)
        columns |= {name: getattr(self, name) for name in _EXTRA if len(getattr(self, name))}
        for name, column in columns.items():
            if len(column) != n:
                raise InvalidInputError(
                    f"all columns of a pool must have one row a document: "
                    f"{n} `document_ids` but {len(column)} `{name}`"
                )
            object.__setattr__(self, name, column)

    def __len__(self) -> int:
        """Return the number of documents, repeats counted."""
        return len(self.document_ids)

    @classmethod
    def empty(cls, *, dimension: int = 0) -> CandidatePool:
        """Return a pool without documents."""
        return cls(
            document_ids=(),
            texts=(),
            embeddings=np.empty((0, dimension), dtype=np.float32),
            similarities=np.empty(0, dtype=np.float32),
        )

    @property
    def chunk_keys(self) -> list[tuple[str, str]]:
        """Return what tells chunks apart, for each row: its id and text. Some share an id."""
        return list(zip(self.document_ids, self.texts, strict=True))

    def take(self, positions: Sequence[int] | IntArray) -> CandidatePool:
        """Return the pool's rows at `positions`, in that order; repeats are kept.

        Raises:
            InvalidInputError: If `positions` are not integers in [0, n).
        """
        rows = checked_positions(positions, len(self))
        order = rows.tolist()
        return replace(
            self,
            document_ids=[self.document_ids[i] for i in order],
            texts=[self.texts[i] for i in order],
            embeddings=self.embeddings[rows],
            similarities=self.similarities[rows],
            metadata=[self.metadata[i] for i in order],
            relevance=None if self.relevance is None else self.relevance[rows],
            scores=[self.scores[i] for i in order] if len(self.scores) else (),
            items=[self.items[i] for i in order] if len(self.items) else (),
        )

    @classmethod
    def concatenate(cls, pools: Sequence[CandidatePool]) -> CandidatePool:
        """Return the rows of one or more pools, one pool after the other; repeats are kept.

        A column that is missing in one of the pools is missing in the result. Pools of different
        classes become a `CandidatePool`.
        """
        filled = [pool for pool in pools if len(pool)] or pools[:1]
        kinds = {type(pool) for pool in filled}

        def joined(name: str) -> list[Any]:
            columns = [getattr(pool, name) for pool in filled]
            return [one for column in columns for one in column] if all(map(len, columns)) else []

        relevance = [pool.relevance for pool in filled if pool.relevance is not None]
        return (kinds.pop() if len(kinds) == 1 else CandidatePool)(
            document_ids=joined("document_ids"),
            texts=joined("texts"),
            embeddings=np.concatenate([pool.embeddings for pool in filled]),
            similarities=np.concatenate([pool.similarities for pool in filled]),
            metadata=joined("metadata"),
            relevance=np.concatenate(relevance) if len(relevance) == len(filled) else None,
            scores=joined("scores"),
            items=joined("items"),
        )

    def place(self, row: int, document_key: str | None = None) -> Place:
        """Return where a row's chunk stands in its document, by `place_of` of its metadata.

        A subclass may know better, for instance where a framework notes it elsewhere.
        """
        return place_of(self.metadata[row], document_key)

    def heading(self, row: int) -> str:
        """Return the title and headings of a row's chunk, by `heading_of` of its metadata."""
        return heading_of(self.metadata[row])

    def as_read(self, row: int, text: str) -> str:
        """Return what a model reads of a text in the place of a row's, of which tokens are counted.

        The text itself; a subclass may add what its framework puts around it.
        """
        return text


_EXTRA = ("scores", "items")  # columns of a pool that may be left out


@dataclass(frozen=True, kw_only=True, eq=False)
class DocumentSample:
    """Documents drawn from a store at random: each was equally likely, and none comes twice.

    Args:
        document_ids: n identifiers, as the store spells them, in random order.
        texts: n chunks.
        embeddings: Shape (n, d), finite: the store's own vectors.
        metadata: n mappings.
        n_stored: How many documents the store holds, >= n.
        is_seeded: Whether a generator with the same seed draws the same documents again.

    Raises:
        InvalidInputError: If lengths differ, a number is not finite, or `n_stored` is too small.
    """

    document_ids: Sequence[str]
    texts: Sequence[str]
    embeddings: FloatArray
    metadata: Sequence[Metadata]
    n_stored: int
    is_seeded: bool = True

    def __post_init__(self) -> None:
        embeddings = as_finite_array("embeddings", self.embeddings, n_dimensions=2)
        object.__setattr__(self, "embeddings", embeddings)
        n = len(self.document_ids)
        for name in ("texts", "embeddings", "metadata"):
            if len(getattr(self, name)) != n:
                raise InvalidInputError(
                    f"all columns of a sample must have one row a document: {n} `document_ids` "
                    f"but {len(getattr(self, name))} `{name}`"
                )
        if self.n_stored < n:
            raise InvalidInputError(
                f"`n_stored` must be at least the {n} documents that were drawn, got "
                f"{self.n_stored}"
            )

    def __len__(self) -> int:
        """Return the number of documents that were drawn."""
        return len(self.document_ids)


class StopReason(str, Enum):
    """Why a selector chose no further document.

    Example:
        >>> select(query.embedding, pool.embeddings, n_select=9).stop_reason
        <StopReason.POOL_EXHAUSTED: 'pool_exhausted'>
    """

    N_SELECT = "n_select"
    """As many as asked for were chosen."""
    POOL_EXHAUSTED = "pool_exhausted"
    """Every candidate was chosen once and repeats were not allowed."""
    ALPHA = "alpha"
    """The next step would not have paid for its compute (Adaptive SIFT)."""
    MAX_VARIANCE = "max_variance"
    """The variance at the query fell to the requested level."""
    MIN_GAIN = "min_gain"
    """The best remaining candidate would have lowered the variance by too little."""
    LIMITS = "limits"
    """All that was left was beyond the budget, or of a group with its full number."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Selection:
    """What a selector chose, and how certain it made the answer.

    Args:
        positions: Shape (k,), rows of the pool in order of choice. May repeat.
        variances: Shape (k + 1,), the variance σ² at the query before the first and
            after every choice. Never rises.
        stop_reason: Why there is no further choice.
        bound_violations: How many gains `LazySIFTSelector` found above their bounds, so that
            its choice may differ from the exact one; 0 from exact selectors.
        stands_for: Row of the near-duplicate that stands for each candidate, shape (n,); its own
            row without any. Default: the selector knows no near-duplicates.

    Example:
        >>> chosen = select(query.embedding, pool.embeddings, 2)
        >>> chosen.positions.tolist(), chosen.stop_reason.value
        ([0, 1], 'n_select')
        >>> chosen.variances.round(2).tolist()
        [1.0, 0.27, 0.17]
    """

    positions: IntArray
    variances: FloatArray
    stop_reason: StopReason
    bound_violations: int = 0
    stands_for: IntArray | None = field(default=None, repr=False)

    def __len__(self) -> int:
        """Return the number of choices, repeats counted."""
        return len(self.positions)

    @property
    def gains(self) -> FloatArray:
        """Fall in variance from each choice, shape (k,), >= 0. Not monotone."""
        return self.variances[:-1] - self.variances[1:]

    @property
    def standard_deviation(self) -> float:
        """σ at the query after the last choice."""
        return float(np.sqrt(self.variances[-1]))


class AnswerMode(str, Enum):
    """How the chosen documents reach the model.

    Example:
        >>> AnswerMode("fine_tune")
        <AnswerMode.FINE_TUNE: 'fine_tune'>
        >>> [mode.value for mode in AnswerMode]
        ['base', 'context', 'fine_tune', 'both', 'learned', 'learned_context', 'auto']
    """

    BASE = "base"
    """Not at all."""
    CONTEXT = "context"
    """As text before the question."""
    FINE_TUNE = "fine_tune"
    """As one training step each, before the question."""
    BOTH = "both"
    """Both ways."""
    LEARNED = "learned"
    """By what was learned from the collection beforehand; nothing is fetched."""
    LEARNED_CONTEXT = "learned_context"
    """As text before the question, read by what was learned from the collection beforehand."""
    AUTO = "auto"
    """Decided per query; an `Answer` never carries this value."""
