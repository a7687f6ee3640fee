"""LangChain documents as the core's pools, and a selection as LangChain documents again."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Real
from typing import Any, Literal, TypeAlias

import numpy as np
from langchain_core.documents import Document
from langchain_core.messages.utils import count_tokens_approximately
from pydantic import BaseModel, ConfigDict, Field, model_validator
from typing_extensions import Self

from langchain_sift.embedder import FloatArray
from sift_core import (
    CandidatePool,
    ChoiceRules,
    ContextSelector,
    InvalidInputError,
    Passage,
    Query,
    Selection,
    Selector,
    cosine_similarities,
    pick_metadata,
    pick_scores,
    place_of,
    select_texts,
    vectors_by_id,
)

logger = logging.getLogger(__name__)
_told: set[str] = set()  # stores whose texts were said to be embedded

# From a list of document ids to the vectors of those that are known, by id.
VectorsById: TypeAlias = Callable[[list[str]], Mapping[str, Any]]
Vectors: TypeAlias = Sequence[FloatArray | None]

SCORE_KEY = "relevance_score"  # where LangChain's rerankers leave theirs
CHUNKS = "chunks"  # in a pool's metadata and under "sift": the ids of a passage's documents

_DEFAULT_SELECTOR = ContextSelector()


def as_pool(
    query: Query,
    documents: Sequence[Document],
    embeddings: FloatArray | Sequence[Sequence[float] | FloatArray],
    *,
    scores: Sequence[float | None] | None = None,
    relevance: FloatArray | None = None,
) -> CandidatePool:
    """Return documents as a pool; `metadata` holds "document" and, where known, "score".

    Args:
        query: What was asked.
        documents: n documents, which may alias what a store keeps.
        embeddings: Shape (n, d), or n rows.
        scores: n numbers, the store's own: cosines, distances, fused ranks.
        relevance: Shape (n,), the scores where they say more than the cosine does.

    Raises:
        InvalidInputError: If an embedding is not finite, or has another dimension than the
            question's.
    """
    d = len(query.vector)
    if not documents:
        return CandidatePool.empty(dimension=d)
    lengths = {len(row) for row in embeddings}
    if lengths != {d}:
        raise InvalidInputError(
            f"the question has {d} dimensions, the documents have {sorted(lengths)}; were all "
            f"embedded by one model?"
        )
    rows = np.asarray(embeddings)
    return CandidatePool(
        document_ids=[_document_id(each, row) for row, each in enumerate(documents)],
        texts=[document.page_content for document in documents],
        embeddings=rows,
        similarities=cosine_similarities(query.vector, rows),
        metadata=[
            {"document": document} | ({} if score is None else {"score": float(score)})
            for document, score in zip(documents, scores or [None] * len(documents), strict=True)
        ],
        relevance=relevance,
    )


def with_given(
    documents: Sequence[Document], vectors: Vectors, given: VectorsById | None
) -> Vectors:
    """Return the vectors, those that are None as the caller looks them up by id."""
    if given is None:
        return vectors
    ids = [
        document.id if vector is None else None
        for document, vector in zip(documents, vectors, strict=True)
    ]
    found = vectors_by_id(given, ids)
    return [
        looked_up if vector is None else vector
        for vector, looked_up in zip(vectors, found, strict=True)
    ]


def texts_without_vector(documents: Sequence[Document], vectors: Vectors, store: str) -> list[str]:
    """Return the texts whose vectors are None; how many is logged.

    As a warning the first time for a store, of which `store` is the name.
    """
    texts = [
        document.page_content
        for document, vector in zip(documents, vectors, strict=True)
        if vector is None
    ]
    if texts:
        level = logging.DEBUG if store in _told else logging.WARNING
        _told.add(store)
        logger.log(
            level,
            "no stored vector for %d of %d documents of %s: embedding their texts, which are kept; "
            "tell where their vectors are by vectors=.... This is said once",
            len(texts),
            len(documents),
            store,
        )
    return texts


def all_vectors(vectors: Vectors, embedded: Iterable[FloatArray]) -> list[FloatArray]:
    """Return the vectors, those that are None from what was embedded instead, in order."""
    rest = iter(embedded)
    return [next(rest) if vector is None else vector for vector in vectors]


def as_ranked_pool(
    query: Query,
    documents: Sequence[Document],
    vectors: Vectors,
    embedded: Iterable[FloatArray],
    relevance_key: str | None,
) -> CandidatePool:
    """Return documents that were found already as a pool, with what they were ranked by.

    Args:
        query: What was asked.
        documents: n documents.
        vectors: n vectors, shape (d,), or None.
        embedded: The vectors of those documents that have None.
        relevance_key: Key of an earlier reranker's scores in the metadata, or None.
    """
    ranked = [_number(document.metadata.get(relevance_key)) for document in documents]
    is_ranked = relevance_key is not None and None not in ranked
    stores = [_stores_score(document) for document in documents]
    return as_pool(
        query,
        documents,
        all_vectors(vectors, embedded),
        scores=[own if first is None else first for first, own in zip(stores, ranked, strict=True)],
        relevance=np.array(ranked, dtype=np.float64) if is_ranked else None,
    )


class ChoiceSettings(BaseModel):
    """What `SIFTRetriever` and `SIFTCompressor` are both told of the choice.

    `SIFTRetriever` says what the settings mean.
    """

    selector: Selector | None = None
    max_tokens: int | None = Field(default=None, ge=1)
    count_tokens: Callable[[str], int] | None = Field(default=None, exclude=True, repr=False)
    max_per_document: int | None = Field(default=None, ge=1)
    document_key: str = "source"
    newest: str | None = None
    half_life_days: float | None = Field(default=None, gt=0)
    merge_neighbors: bool = False
    score: Literal["variance", "similarity"] | None = None
    vectors: VectorsById | None = Field(default=None, exclude=True, repr=False)

    model_config = ConfigDict(arbitrary_types_allowed=True)

    @model_validator(mode="after")
    def _check_choice(self) -> Self:
        self._rules.check(self.selector)
        return self

    def _choose(self, query: Query, pool: CandidatePool, k: int) -> list[Document]:
        """Return copies of up to k of the pool's documents, in order of choice."""
        if not len(pool):
            return []
        rules, metadata = self._rules, _metadata_of(pool)
        count_tokens = self.count_tokens or _estimated_tokens
        sources = [one.get(self.document_key) for one in metadata]
        documents = [None if source is None else str(source) for source in sources]
        selection = select_texts(
            self.selector or _DEFAULT_SELECTOR,
            query.vectors,
            pool.embeddings,
            k,
            text_of=pool.texts.__getitem__,
            relevance=pool.relevance,
            **rules.on(pool.texts, metadata, count_tokens=count_tokens, documents=documents),
        )
        if rules.merge_neighbors:
            pool, selection = rules.merged(
                pool,
                selection,
                size=lambda row, text: count_tokens(text),
                places=list(map(place_of, documents, metadata)),
                metadata_of=lambda passage: _passage(pool, passage),
            )
        return chosen_documents(pool, selection, score=self.score)

    @property
    def _rules(self) -> ChoiceRules:
        return ChoiceRules(
            max_tokens=self.max_tokens,
            max_per_document=self.max_per_document,
            newest=self.newest,
            half_life_days=self.half_life_days,
            merge_neighbors=self.merge_neighbors,
        )

    def _newness(self, pool: CandidatePool) -> FloatArray | None:
        """Return what is to be preferred where an oversampled pool is thinned, shape (n,)."""
        return self._rules.newness(_metadata_of(pool))


def _passage(pool: CandidatePool, passage: Passage) -> dict[str, Any]:
    """Return a pool's metadata for documents that are one: the first choice with their text."""
    chosen = pool.metadata[passage.first]
    begins: Document = pool.metadata[passage.rows[0]]["document"]
    document = chosen["document"].model_copy(
        update={"page_content": passage.text, "metadata": begins.metadata}
    )
    ids = [pool.document_ids[row] for row in passage.rows]
    return {**chosen, "document": document, CHUNKS: ids}


def _metadata_of(pool: CandidatePool) -> list[dict[str, Any]]:
    return [row["document"].metadata for row in pool.metadata]


def _estimated_tokens(text: str) -> int:
    return count_tokens_approximately([text], extra_tokens_per_message=0)


class Explanation(dict[str, Any]):
    """What is told of a pick; any two are equal, so that documents are whose texts are.

    LangChain joins the results of several searches by equality (`MultiQueryRetriever`), and each
    search tells something else of the same document.
    """

    def __eq__(self, other: object) -> bool:
        """Return whether the other is one too, or has the same items."""
        return isinstance(other, Explanation) or super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        """Return the opposite, which a dictionary answers by itself."""
        return not self == other

    __hash__ = None


def chosen_documents(
    pool: CandidatePool, selection: Selection, *, score: str | None = None
) -> list[Document]:
    """Return deep copies of what was chosen from a pool of documents, in order of choice.

    Their `metadata["sift"]` is as `sift_core.pick_metadata` says. With `score`, their
    `metadata["relevance_score"]` is as `sift_core.pick_scores` says.
    """
    scores = [row.get("score") for row in pool.metadata]
    chosen = []
    for position, told in zip(
        selection.positions, pick_metadata(pool, selection, scores=scores), strict=True
    ):
        document: Document = pool.metadata[position]["document"].model_copy(deep=True)
        chunks = pool.metadata[position].get(CHUNKS)
        document.metadata["sift"] = Explanation(
            told if chunks is None else {**told, CHUNKS: chunks}
        )
        chosen.append(document)
    if score is not None:
        for document, own_score in zip(
            chosen, pick_scores(pool, selection, score=score), strict=True
        ):
            document.metadata[SCORE_KEY] = own_score
    return chosen


def used_documents(chunks: CandidatePool) -> tuple[list[Document], list[str]]:
    """Return copies of the documents of a pool, each once, in its order, and their ids.

    Rows of other sources than LangChain's become documents with id, text and metadata.
    """
    first: dict[tuple[str, str], int] = {}
    for row, key in enumerate(zip(chunks.document_ids, chunks.texts, strict=True)):
        first.setdefault(key, row)
    documents = []
    for (document_id, text), row in first.items():
        original = chunks.metadata[row].get("document")
        if isinstance(original, Document):
            documents.append(original.model_copy(deep=True))
        else:
            metadata = dict(chunks.metadata[row])
            documents.append(Document(id=document_id, page_content=text, metadata=metadata))
    return documents, [document_id for document_id, _ in first]


def _document_id(document: Document, row: int) -> str:
    """Return a document's id, which langchain-qdrant keeps in the metadata; else its row."""
    document_id = document.metadata.get("_id") if document.id is None else document.id
    return str(row if document_id is None else document_id)


def _stores_score(document: Document) -> float | None:
    """Return the store's score that `SIFTRetriever` has kept, if it was there before."""
    earlier = document.metadata.get("sift")
    return _number(earlier.get("score")) if isinstance(earlier, dict) else None


def _number(value: Any) -> float | None:
    """Return a finite number; None for anything else."""
    is_number = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if is_number else None
