"""What is added to a Faiss index in one transaction, checked before anything is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sift_core.checks import as_finite_array, check_text
from sift_core.errors import InvalidInputError
from sift_core.sources.content_ids import content_id
from sift_core.types import Document, FloatArray


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """Documents by content id, each once, and their vectors (n, d), float32."""

    documents: dict[str, Document]
    vectors: npt.NDArray[np.float32]


def checked_batch(
    content_ids: Sequence[str], documents: Sequence[Document], embeddings: FloatArray, d: int
) -> Batch:
    """Return documents and embeddings (n, d) as float32; of equal content ids, the last.

    Raises:
        InvalidInputError: If lengths or dimension differ, a number is not finite, or JSON
            cannot hold the metadata.
    """
    vectors = as_finite_array("embeddings", embeddings, n_dimensions=2)
    if not len(content_ids) == len(documents) == len(vectors):
        raise InvalidInputError(
            f"`content_ids`, `documents` and `embeddings` must have one row a document, got "
            f"{len(content_ids)}, {len(documents)} and {len(vectors)}"
        )
    if len(vectors) and vectors.shape[1] != d:
        raise InvalidInputError(
            f"`embeddings` must have {d} columns like the index, got {vectors.shape[1]}; were "
            f"both made by one model?"
        )
    for content, document in zip(content_ids, documents, strict=True):
        check_text("content id", content)
        content_id(document)  # refuses what JSON cannot hold
    with np.errstate(over="ignore"):  # becomes infinite, which is refused
        narrow = np.ascontiguousarray(vectors, dtype=np.float32)
    as_finite_array("embeddings as float32", narrow, n_dimensions=2)
    rows = {content: row for row, content in enumerate(content_ids)}  # the last of equal ones
    return Batch(
        documents={content: documents[row] for content, row in rows.items()},
        vectors=narrow[list(rows.values())],
    )
