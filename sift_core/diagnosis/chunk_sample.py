"""Chunks drawn from a store at random, with the vectors that the store has for them."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sift_core.errors import CandidateSourceError
from sift_core.types import CandidatePool, FloatArray, Metadata

# Where metadata names the document that a chunk is from: `Chunker` and LangChain, LlamaIndex.
DOCUMENT_KEYS = ("source", "ref_doc_id", "file_path")


@dataclass(frozen=True, kw_only=True, eq=False)
class ChunkSample:
    """Chunks of which each one of the store was equally likely to be drawn, none twice.

    Args:
        document_ids: n identifiers of chunks, as the store spells them.
        texts: n chunks.
        embeddings: Shape (n, d), the store's own vectors, finite, none all zero.
        metadata: n mappings.
        n_stored: How many chunks the store holds, >= n.
        is_seeded: Whether the same seed draws the same chunks.

    Raises:
        CandidateSourceError: If a vector is not finite or all zero.
    """

    document_ids: Sequence[str]
    texts: Sequence[str]
    embeddings: FloatArray
    metadata: Sequence[Metadata]
    n_stored: int
    is_seeded: bool = True

    def __post_init__(self) -> None:
        for document_id, row in zip(self.document_ids, self.embeddings, strict=True):
            if not np.isfinite(row).all() or not row.any():
                what = "is all zero" if np.isfinite(row).all() else "holds NaN or infinity"
                raise CandidateSourceError(
                    f"the stored vector of chunk {printable(document_id)!r} {what}, so that "
                    f"nothing can be compared with it; embed that chunk again, or delete it"
                )

    def __len__(self) -> int:
        """Return the number of chunks that were drawn."""
        return len(self.document_ids)

    @property
    def share_with_document(self) -> float:
        """The share of chunks whose metadata names their document, in [0, 1]."""
        named = [_named_document(metadata) is not None for metadata in self.metadata]
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
