"""An answer of the core as plain values and LangChain documents."""

from __future__ import annotations

import math
from typing import Any

from langchain_core.documents import Document
from langchain_core.runnables.utils import AddableDict

from sift_core import Answer, CandidatePool


def answer_facts(answer: Answer) -> dict[str, Any]:
    """Return all that there is to say about an answer, but for its text.

    "mode" and "finish_reason" are words, "reasons" sentences, "timings" seconds by stage.
    "context" holds each document used once, in order of choice, as copies, and "document_ids"
    their ids (positions in a given context, where they have none). "standard_deviation" and
    "variance" are σ and σ² at the question given these documents, None without any.
    """
    chunks = answer.chunks
    used = [] if chunks is None else [(chunks, row) for row in _distinct(chunks)]
    is_known = not math.isnan(answer.standard_deviation)
    return {
        "mode": answer.mode.value,
        "reasons": list(answer.reasons),
        "context": [_document(*each) for each in used],
        "document_ids": [_document_id(*each) for each in used],
        "standard_deviation": answer.standard_deviation if is_known else None,
        "variance": answer.standard_deviation**2 if is_known else None,
        "timings": dict(answer.timings),
        "finish_reason": answer.finish_reason,
    }


def whole_answer(answer: Answer) -> dict[str, Any]:
    """Return an answer's text and its facts."""
    return {"answer": answer.text, **answer_facts(answer)}


def answer_rest(answer: Answer) -> AddableDict:
    """Return what follows the pieces of a stream; the text too where it is empty."""
    return AddableDict(({} if answer.text else {"answer": ""}) | answer_facts(answer))


def _distinct(chunks: CandidatePool) -> list[int]:
    """Return the first row of each document."""
    first: dict[tuple[str, str], int] = {}
    for row, key in enumerate(zip(chunks.document_ids, chunks.texts, strict=True)):
        first.setdefault(key, row)
    return list(first.values())


def _document(chunks: CandidatePool, row: int) -> Document:
    """Return a copy of a row's LangChain document; one made of the row for other sources."""
    original = chunks.metadata[row].get("document")
    if isinstance(original, Document):
        return original.model_copy(deep=True)
    return Document(
        id=chunks.document_ids[row],
        page_content=chunks.texts[row],
        metadata=dict(chunks.metadata[row]),
    )


def _document_id(chunks: CandidatePool, row: int) -> str:
    """Return a document's id, which langchain-qdrant keeps in the metadata."""
    original = chunks.metadata[row].get("document")
    if isinstance(original, Document) and original.id is None:
        return str(original.metadata.get("_id", chunks.document_ids[row]))
    return chunks.document_ids[row]
