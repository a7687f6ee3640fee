"""Haystack documents as the core's pools, and a selection as Haystack documents again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from haystack import Document

from sift_core import (
    CandidatePool,
    InvalidInputError,
    Passage,
    Query,
    Selection,
    cosine_similarities,
    pick_metadata,
    pick_scores,
    relevance_of_scores,
)

METADATA_KEY = "sift"
CHUNKS = "chunks"  # in a pool's metadata and in what is told of a passage: its documents' ids
SOURCE_ID = "source_id"  # where Haystack's splitters note the document that a chunk is of
CHARACTERS_PER_TOKEN = 4  # as Haystack's own ApproximateTokenCounter has it


def distinct_documents(documents: Sequence[Document]) -> list[Document]:
    """Return the documents, each id once, at its first place, with its highest score.

    As Haystack's own rankers do with what several retrievers found.
    """
    best: dict[str, Document] = {}
    for document in documents:
        known = best.setdefault(document.id, document)
        if _score(document) > _score(known):
            best[document.id] = document
    return list(best.values())


def document_pool(
    query: Query,
    documents: Sequence[Document],
    vectors: Sequence[Sequence[float]],
    *,
    use_scores: bool | None,
) -> CandidatePool:
    """Return documents as a pool; row i is document i, which is in `metadata[i]["document"]`.

    Args:
        query: What was asked, with its embedding, shape (d,), and perhaps others in `also`.
        documents: n >= 1 documents in order of arrival.
        vectors: n vectors, of d numbers each.
        use_scores: As in `sift_core.relevance_of_scores`.

    Raises:
        InvalidInputError: If a vector is not finite, or has another dimension than the query's.
    """
    d = len(query.vector)
    lengths = {len(vector) for vector in vectors}
    if lengths != {d}:
        raise InvalidInputError(
            f"the query has {d} dimensions, the documents have {sorted(lengths)}; were all "
            f"embedded by one model?"
        )
    rows = np.array(vectors, dtype=np.float64)
    ids = [document.id for document in documents]
    with np.errstate(invalid="ignore", over="ignore"):  # refused below
        similarities = cosine_similarities(query.vectors, rows)
    return CandidatePool(
        document_ids=ids,
        texts=[document.content or "" for document in documents],
        embeddings=rows,
        similarities=similarities,
        metadata=[{"document": document} for document in documents],
        relevance=relevance_of_scores(
            [document.score for document in documents],
            similarities,
            document_ids=ids,
            use_scores=use_scores,
        ),
    )


def chosen_documents(pool: CandidatePool, selection: Selection, *, score: str) -> list[Document]:
    """Return copies of the chosen documents in order of choice; the originals are not changed.

    Each has what `sift_core.pick_metadata` says of it in `meta["sift"]`, and its score by
    `sift_core.pick_scores`.
    """
    found: list[Document] = [row["document"] for row in pool.metadata]
    told = pick_metadata(pool, selection, scores=[document.score for document in found])
    scores = pick_scores(pool, selection, score=score)
    picks = zip(selection.positions.tolist(), told, scores, strict=True)
    chosen = []
    for i, said, value in picks:
        chunks = {key: value for key, value in pool.metadata[i].items() if key == CHUNKS}
        meta = {**found[i].meta, METADATA_KEY: {**said, **chunks}}
        chosen.append(replace(found[i], meta=meta, score=value))
    return chosen


def passage_metadata(documents: Sequence[Document], passage: Passage) -> dict[str, Any]:
    """Return a pool's metadata for documents that are one: the first choice with their text."""
    meta = documents[passage.rows[0]].meta
    return {
        "document": replace(documents[passage.first], content=passage.text, meta=meta),
        CHUNKS: [documents[row].id for row in passage.rows],
    }


def source_of(document: Document, document_key: str) -> str | None:
    """Return the file that a chunk is of, else the document that it was split from, else None."""
    source = document.meta.get(document_key)
    source = document.meta.get(SOURCE_ID) if source is None else source
    return None if source is None else str(source)


def estimated_tokens(text: str) -> int:
    """Return an estimate of the tokens of a text."""
    return math.ceil(len(text) / CHARACTERS_PER_TOKEN)


def _score(document: Document) -> float:
    return -math.inf if document.score is None else document.score
