"""Documents drawn at random from a Faiss index, read by id."""

from __future__ import annotations

from typing import Any

import numpy as np

from sift_core.sources.faiss.documents import DocumentLookup
from sift_core.sources.faiss.entries import entry_ids
from sift_core.sources.faiss.search import (
    downcast,
    failed_search,
    lossy_part,
    unit_rows,
    vectors_by_id,
)
from sift_core.sources.sampling import as_sample, nothing_to_sample
from sift_core.types import Document, DocumentSample, FloatArray

_MORE = 1.2  # drawn at first, since deleted entries have no document any more. Guess.


def sample_index(
    index: Any, lookup: DocumentLookup, n: int, generator: np.random.Generator
) -> DocumentSample:
    """Return up to n random documents of an index that have not been deleted.

    Reads their vectors and documents alone; shuffles the ids of all entries, 8 bytes each.

    Args:
        index: Any Faiss index.
        lookup: Its documents.
        n: >= 1.
        generator: What to draw with.

    Raises:
        CandidateSourceError: If the index cannot give vectors back, an id has no document, or a
            vector is not finite.
        InvalidInputError: If there is no document.
    """
    place = f"the Faiss {type(downcast(index)).__name__}"
    entries = entry_ids(index)
    n_stored = min(len(entries), len(lookup))
    if n_stored == 0:
        raise nothing_to_sample(place)
    n = min(n, n_stored)
    order = entries[generator.permutation(len(entries))]
    rows: list[FloatArray] = []
    documents: list[Document] = []
    start, step = 0, int(_MORE * n) + 1
    while len(rows) < n and start < len(order):
        ids = order[start : start + step]
        try:
            vectors = vectors_by_id(index, ids)
        except (RuntimeError, AssertionError) as error:
            raise failed_search(index, error) from error
        for vector, document in zip(vectors, lookup.get(ids.tolist()), strict=True):
            if document is not None and len(rows) < n:
                rows.append(vector)
                documents.append(document)
        start += step
    embeddings = np.array(rows, dtype=np.float32).reshape(-1, index.d)
    return as_sample(
        place,
        document_ids=[document.document_id for document in documents],
        texts=[document.text for document in documents],
        embeddings=embeddings if lossy_part(index) is None else unit_rows(embeddings),
        metadata=[dict(document.metadata) for document in documents],
        n_stored=n_stored,
    )
