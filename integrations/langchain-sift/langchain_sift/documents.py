"""LangChain documents as a pool of the core, and a choice as LangChain documents again."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from langchain_core.documents import Document

from langchain_sift.embedder import FloatArray
from sift_core import CandidatePool, Chosen, Query
from sift_core.plugins import pool_for_query

SCORE_KEY = "relevance_score"  # where LangChain's rerankers put their scores


def as_pool(
    query: Query,
    documents: Sequence[Document],
    embeddings: Sequence[Any] | FloatArray,
    *,
    scores: Sequence[float | None] = (),
    relevance: FloatArray | None = None,
) -> CandidatePool:
    """Return documents as a pool: they are its `items`, and their metadata is its metadata.

    Embeddings, scores and errors are those of `sift_core.plugins.pool_for_query`. `relevance`,
    shape (n,), has the scores if they say more than the cosines. Default: none.
    """
    return pool_for_query(
        CandidatePool,
        query.vector,
        embeddings,
        document_ids=[_document_id(each, row) for row, each in enumerate(documents)],
        texts=[document.page_content for document in documents],
        metadata=[document.metadata for document in documents],
        relevance=relevance,
        scores=scores,
        items=documents,
    )


class Explanation(dict[str, Any]):
    """Why a document was chosen. Any two are equal, so that equal documents stay equal.

    LangChain joins the results of several searches by equality (`MultiQueryRetriever`), and each
    search explains the same document in another way.
    """

    def __eq__(self, other: object) -> bool:
        """Return whether the other is one too, or has the same items."""
        return isinstance(other, Explanation) or super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        """Return the opposite, which a dictionary answers by itself."""
        return not self == other

    __hash__ = None


def chosen_documents(chosen: Chosen, score: str | None = None) -> list[Document]:
    """Return deep copies of the chosen documents, in order of choice.

    `metadata["sift"]` explains each choice by `sift_core.Pick.as_dict`. Joined chunks are one
    document: the one that was chosen first, with the text of all and the metadata of the first in
    the text. `score`, a kind of `sift_core.Chosen.scores`, goes to `metadata["relevance_score"]`.
    Default: none does.
    """
    pool, documents = chosen.pool, []
    for passage, pick in zip(chosen.passages, chosen.picks, strict=True):
        document: Document = pool.items[pick.row].model_copy(deep=True)
        if pick.chunks:
            document.page_content = passage.text
            document.metadata = deepcopy(dict(pool.metadata[passage.rows[0]]))
        document.metadata["sift"] = Explanation(pick.as_dict())
        documents.append(document)
    if score is not None:
        for document, value in zip(documents, chosen.scores(score), strict=True):
            document.metadata[SCORE_KEY] = value
    return documents


def used_documents(chunks: CandidatePool) -> tuple[list[Document], list[str]]:
    """Return copies of the documents of a pool, each once, in its order, and their ids.

    Rows of other sources than LangChain's become documents with id, text and metadata.
    """
    first: dict[tuple[str, str], int] = {}
    for row, key in enumerate(chunks.chunk_keys):
        first.setdefault(key, row)
    documents = []
    for (document_id, text), row in first.items():
        item = chunks.items[row] if len(chunks.items) else None
        if not isinstance(item, Document):
            item = Document(id=document_id, page_content=text)
        metadata = deepcopy(dict(chunks.metadata[row]))
        documents.append(item.model_copy(update={"page_content": text, "metadata": metadata}))
    return documents, [document_id for document_id, _ in first]


def _document_id(document: Document, row: int) -> str:
    """Return a document's id, which langchain-qdrant keeps in the metadata; else its row."""
    document_id = document.metadata.get("_id") if document.id is None else document.id
    return str(row if document_id is None else document_id)
