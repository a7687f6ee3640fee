"""Which documents chunks are from, whether they can be compared, and their texts on one line."""

from __future__ import annotations

import unicodedata

import numpy as np

from sift_core.errors import CandidateSourceError
from sift_core.types import CandidatePool, DocumentSample, Metadata

# Where metadata names the document that a chunk is from: `Chunker` and LangChain, LlamaIndex.
DOCUMENT_KEYS = ("source", "ref_doc_id", "file_path")


def check_comparable(sample: DocumentSample) -> None:
    """Refuse a sample with a vector that has no direction.

    Raises:
        CandidateSourceError: If one is all zero.
    """
    empty = np.flatnonzero(~sample.embeddings.any(axis=1))
    if len(empty):
        raise CandidateSourceError(
            f"the stored vector of chunk {printable(sample.document_ids[empty[0]])!r} is all zero, "
            f"so that nothing can be compared with it; embed that chunk again, or delete it"
        )


def share_with_document(sample: DocumentSample) -> float:
    """Return the share of chunks whose metadata names their document, in [0, 1]."""
    named = [_named_document(metadata) is not None for metadata in sample.metadata]
    return float(np.mean(named)) if named else 0.0


def document_of(chunk_id: str, metadata: Metadata) -> str:
    """Return the name of the document that a chunk is from; its own id where nobody knows."""
    return _named_document(metadata) or chunk_id


def other_documents(pool: CandidatePool, chunk_id: str, document: str) -> list[int]:
    """Return the positions of candidates that are from other documents than a chunk is."""
    return [
        position
        for position, (other_id, metadata) in enumerate(
            zip(pool.document_ids, pool.metadata, strict=True)
        )
        if other_id != chunk_id and document_of(other_id, metadata) != document
    ]


def printable(text: str, n_characters: int | None = None) -> str:
    """Return a text on one line, without control characters, cut to a length.

    Args:
        text: Anything, for instance a chunk that somebody else wrote.
        n_characters: Longest result, >= 1, with "…" where it was cut; None for no limit.
    """
    line = " ".join(text.split())
    line = "".join(" " if unicodedata.category(mark)[0] == "C" else mark for mark in line)
    if n_characters is not None and len(line) > n_characters:
        line = line[: n_characters - 1].rstrip() + "…"
    return line


def _named_document(metadata: Metadata) -> str | None:
    for key in DOCUMENT_KEYS:
        name = metadata.get(key)
        if isinstance(name, str) and name:
            return name
    return None
