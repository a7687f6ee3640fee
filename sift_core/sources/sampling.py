"""What every source does to draw documents at random."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sift_core.checks import as_count
from sift_core.errors import CandidateSourceError, InvalidInputError
from sift_core.types import DocumentSample, FloatArray, Metadata


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


def nothing_to_sample(place: str) -> InvalidInputError:
    """Return what to raise where a store is empty."""
    return InvalidInputError(f"there are no documents to sample in {place}; add some first")


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
    """
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
