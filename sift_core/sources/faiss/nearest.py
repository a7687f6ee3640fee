"""The nearest documents of an index: searching it, filtering, leaving out what was deleted."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, TypeAlias

import numpy as np

from sift_core.selection.kernels import cosine_similarities
from sift_core.sources.checks import near_and_opposite
from sift_core.sources.copied_on_read import CopiedOnRead
from sift_core.sources.faiss.documents import DocumentLookup
from sift_core.sources.faiss.search import (
    MOST_HITS_ON_GPU,
    BatchHits,
    failed_search,
    lossy_part,
    runs_on_gpu,
    search,
    unit_rows,
)
from sift_core.types import (
    CandidatePool,
    Document,
    FloatArray,
    IntArray,
    Metadata,
    Query,
)

Filter: TypeAlias = Callable[[Metadata], bool]

# With a filter, this many times the hits wanted are looked at first; beyond this share of the
# index, comparing only what passes the filter is cheaper. Guesses.
_WIDER = 4
_LARGEST_SHARE = 1 / 8

_COLUMNS = attrgetter("document_id", "text", "metadata")


@dataclass(frozen=True, kw_only=True, eq=False)
class Found:
    """Documents found by one query, nearest first.

    Args:
        ids: n Faiss ids.
        documents: n documents.
        vectors: Shape (n, d), float32.
    """

    ids: Sequence[int]
    documents: Sequence[Document]
    vectors: FloatArray

    def take(self, rows: Sequence[int]) -> Found:
        """Return these rows, in this order."""
        return Found(
            ids=[self.ids[row] for row in rows],
            documents=[self.documents[row] for row in rows],
            vectors=self.vectors[list(rows)],
        )

    def joined(self, other: Found) -> Found:
        """Return these rows, then those of the other."""
        return Found(
            ids=[*self.ids, *other.ids],
            documents=[*self.documents, *other.documents],
            vectors=np.concatenate([self.vectors, other.vectors]),
        )


class NearestDocuments:
    """Finds documents by an index and a lookup that belong together.

    Args:
        index: Any Faiss index.
        lookup: Its documents.
    """

    def __init__(self, index: Any, lookup: DocumentLookup) -> None:
        self._index = index
        self._lookup = lookup
        self.lossy_part = lossy_part(index)
        on_gpu = runs_on_gpu(index)
        self._most_hits = MOST_HITS_ON_GPU if on_gpu else 2**31 - 1
        self.turn: AbstractContextManager[Any] = threading.Lock() if on_gpu else nullcontext()

    def find(
        self, queries: FloatArray, k: int, *, keep: Filter | None = None, n_deleted: int = 0
    ) -> list[Found]:
        """Return the k nearest documents of each query, fewer only where there are fewer.

        One search of all queries where nothing is filtered or deleted. A filter is applied to
        4 k hits first; where too few pass, to more; and where it is so selective that this would
        not end soon, to all documents, and only those that pass are compared.

        Args:
            queries: Shape (b, d), float32, contiguous.
            k: 1 <= k <= number of vectors.
            keep: Called with a document's metadata.
            n_deleted: About how many vectors have no document any more.

        Raises:
            CandidateSourceError: If Faiss fails or a hit has no document.
        """
        n_asked = self._at_most(k * (_WIDER if keep else 1) + min(n_deleted, _WIDER * k))
        largest = self._at_most(max(_WIDER * k, int(self._index.ntotal * _LARGEST_SHARE)))
        found: dict[int, Found] = {}
        while True:
            pending = [row for row in range(len(queries)) if row not in found]
            hits = self._search(queries[pending], n_asked)
            n_kept = 0
            for row, ids, vectors in zip(pending, hits.ids, hits.vectors, strict=True):
                kept = self._kept(ids, vectors, k, keep)
                n_kept += len(kept.ids)
                is_all = n_asked == self._index.ntotal or ids[-1] < 0
                if len(kept.ids) == k or is_all:
                    found[row] = kept
            if len(found) == len(queries):
                return [found[row] for row in range(len(queries))]
            needed = 1.5 * k * n_asked * len(pending) / max(n_kept, 1)
            if max(needed, 2 * n_asked) > largest:
                break
            n_asked = self._at_most(max(int(needed), 2 * n_asked))
        found |= self._find_among_all(queries, k, keep, skip=found)
        return [found[row] for row in range(len(queries))]

    def _find_among_all(
        self, queries: FloatArray, k: int, keep: Filter | None, *, skip: dict[int, Found]
    ) -> dict[int, Found]:
        """Return what each query finds among the documents that pass."""
        pending = [row for row in range(len(queries)) if row not in skip]
        allowed = self._lookup.ids(keep)
        k = min(k, len(allowed))
        if k == 0:
            empty = Found(ids=[], documents=[], vectors=queries[:0])
            return dict.fromkeys(pending, empty)
        hits = self._search(queries[pending], k, allowed=allowed)
        return {
            row: self._kept(ids, vectors, k, None)
            for row, ids, vectors in zip(pending, hits.ids, hits.vectors, strict=True)
        }

    def _at_most(self, n_hits: int) -> int:
        return min(n_hits, int(self._index.ntotal), self._most_hits)

    def _search(self, queries: FloatArray, k: int, *, allowed: IntArray | None = None) -> BatchHits:
        try:
            with self.turn:
                hits = search(self._index, queries, k, allowed=allowed)
        except (RuntimeError, AssertionError) as error:
            raise failed_search(self._index, error) from error
        if self.lossy_part is None:
            return hits
        hits.vectors[hits.ids < 0] = 0  # Faiss leaves NaN there
        return replace(hits, vectors=unit_rows(hits.vectors))

    def _kept(self, ids: IntArray, vectors: FloatArray, k: int, keep: Filter | None) -> Found:
        """Return the first k hits that have a document which passes, reading k at a time."""
        present = ids[ids >= 0].tolist()
        if keep is None and len(present) == len(ids) <= k:  # as nearly always
            every = [document for document in self._lookup.get(present) if document is not None]
            if len(every) == len(present):
                return Found(ids=present, documents=every, vectors=vectors)
        rows: list[int] = []
        documents: list[Document] = []
        for start in range(0, len(present), k):
            read = self._lookup.get(present[start : start + k])
            for row, document in enumerate(read, start):
                if document is None or (keep is not None and not keep(document.metadata)):
                    continue
                rows.append(row)
                documents.append(document)
                if len(rows) == k:
                    break
            if len(rows) == k:
                break
        if rows == list(range(len(ids))):
            return Found(ids=present, documents=documents, vectors=vectors)
        return Found(ids=[present[row] for row in rows], documents=documents, vectors=vectors[rows])


def with_opposites(near: Found, opposite: Found, n_candidates: int) -> Found:
    """Return half from each, the odd one near the query, none twice.

    Where the halves overlap, more of either fill up.

    Args:
        near: What is nearest to the query.
        opposite: What is nearest to its opposite.
        n_candidates: >= 1.
    """
    n_near, _ = near_and_opposite(n_candidates)
    near_rows = list(range(min(n_near, len(near.ids))))
    seen = {near.ids[row] for row in near_rows}
    others = [row for row, key in enumerate(opposite.ids) if key not in seen]
    others = others[: n_candidates - len(near_rows)]
    seen.update(opposite.ids[row] for row in others)
    more = [row for row in range(len(near_rows), len(near.ids)) if near.ids[row] not in seen]
    near_rows += more[: n_candidates - len(near_rows) - len(others)]
    return near.take(near_rows).joined(opposite.take(others))


def as_pool(query: Query, found: Found) -> CandidatePool:
    """Return what one query found as a pool, with cosines to it."""
    columns = zip(*map(_COLUMNS, found.documents), strict=True)
    ids, texts, metadata = columns if found.documents else ((), (), ())
    return CandidatePool(
        document_ids=ids,
        texts=texts,
        embeddings=found.vectors,
        similarities=cosine_similarities(query.vector, found.vectors),
        metadata=CopiedOnRead(metadata),
    )
