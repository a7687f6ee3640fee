"""Haystack documents as a pool of the core, and a choice as Haystack documents again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from haystack import Document

from sift_core import CandidatePool, Chosen, Query
from sift_core.places import Place
from sift_core.plugins import pool_for_query

FILE_KEY = "file_path"  # where `meta` names a chunk's file, unless `document_key` is given
SPLIT_KEY = "source_id"  # where Haystack's splitters name the document that they split


class DocumentPool(CandidatePool):
    """A pool with Haystack documents as its `items` and their `meta` as its metadata."""

    def place(self, row: int, document_key: str | None = None) -> Place:
        """Return where a chunk stands.

        Its document is its file, else the document that a splitter split. Only chunks of one split
        document have neighbors: their starts are positions in one text.
        """
        split = super().place(row, SPLIT_KEY)
        file = self.metadata[row].get(document_key or FILE_KEY)
        if file is None:
            return split
        return Place(str(file), None if split.document is None else split.start, split.text)


def distinct_documents(documents: Sequence[Document]) -> list[Document]:
    """Return the documents, each once, at its first place, with its highest score.

    Haystack's own rankers do the same with documents that several retrievers found. Two are one
    document if they have the same id and text: chunks of a document may share its id.
    """
    best: dict[tuple[str, str | None], Document] = {}
    for document in documents:
        key = (document.id, document.content)
        if _score(document) > _score(best.setdefault(key, document)):
            best[key] = document
    return list(best.values())


def document_pool(
    query: Query,
    documents: Sequence[Document],
    vectors: Sequence[Sequence[float]],
    *,
    use_scores: bool | None,
) -> DocumentPool:
    """Return n documents and n vectors as a pool, as `sift_core.plugins.pool_for_query` does."""
    return pool_for_query(
        DocumentPool,
        query.vectors,
        vectors,
        use_scores=use_scores,
        document_ids=[document.id for document in documents],
        texts=[document.content or "" for document in documents],
        metadata=[document.meta for document in documents],
        scores=[document.score for document in documents],
        items=documents,
    )


def chosen_documents(chosen: Chosen, *, score: str) -> list[Document]:
    """Return copies of the chosen documents in order of choice; the originals are not changed.

    `meta["sift"]` explains each choice by `sift_core.Pick.as_dict`. Joined chunks are one document:
    the one that was chosen first, with the text of all and the `meta` of the first in the text.
    """
    pool, documents = chosen.pool, []
    picks = zip(chosen.passages, chosen.picks, chosen.scores(score), strict=True)
    for passage, pick, value in picks:
        first: Document = pool.items[pick.row]
        content = passage.text or first.content  # None stays None
        meta = {**pool.metadata[passage.rows[0]], "sift": pick.as_dict()}
        documents.append(replace(first, content=content, meta=meta, score=value))
    return documents


def _score(document: Document) -> float:
    return -math.inf if document.score is None else document.score
