"""Keeping a Qdrant Edge shard equal to a set of documents."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sift_core.candidates.qdrant_edge_folder import (
    engine_failures,
    record_name,
    recorded_name,
)
from sift_core.candidates.qdrant_edge_probes import misfit
from sift_core.candidates.qdrant_points import DOCUMENT_ID_KEY, PointReader
from sift_core.errors import CandidateSourceError, InvalidInputError, MissingDependencyError
from sift_core.types import Document, FloatArray, as_count, as_finite_array, check_text

try:
    import qdrant_edge as edge
except ImportError as error:
    raise MissingDependencyError("qdrant-edge-py", extra="qdrant-edge") from error

NUMBERS_AN_UPDATE = 250_000  # of vectors; the engine applies the last update again on opening
DOCUMENTS_A_FLUSH = 10_000  # a flush costs 5 ms at 20,000 documents, 50 ms at 100,000
IDS_A_PAGE = 10_000

# The engine stores deeper payloads than it can read: from 124 levels on, the shard does not
# open again. Whole numbers beyond 64 bits would come back as floats.
_DEEPEST = 64
_INTEGERS = range(-(2**63), 2**64)

# Squares of longer vectors leave float32; shorter ones the engine takes for zero vectors.
_SHORTEST, _LONGEST = 4e-4, 1e18


class WritableShard:
    """A shard and its folder: the writing side of `EdgeSource`, and what `DocumentIndex` asks for.

    Args:
        shard: The shard; None if `prepare` is to create it in `folder`.
        folder: Where it lies; None leaves the embedder's name unrecorded.
        embedder_name: Model behind the vectors, None if the folder is to say it.
        vector_name: The dense vector to write.
        text_key: As in `PointReader`.

    Raises:
        CandidateSourceError: If the folder's record cannot be read.
        InvalidInputError: If it names another embedder.
    """

    def __init__(
        self,
        shard: edge.EdgeShard | None,
        folder: Path | None,
        *,
        embedder_name: str | None,
        vector_name: str,
        text_key: str,
    ) -> None:
        self.place = "the Qdrant Edge shard" if folder is None else f"Qdrant Edge shard {folder!s}"
        self.reader = PointReader(place=self.place, vector_name=vector_name, text_key=text_key)
        self._shard = shard
        self._folder = folder
        self._process = os.getpid()
        self._creating = threading.Lock()
        self._n_unflushed = 0
        recorded = None if folder is None else recorded_name(folder)
        if embedder_name is not None and recorded not in (None, embedder_name):
            raise InvalidInputError(
                f"{self.place} was embedded by {recorded!r}, not by {embedder_name!r}; take "
                f"that model, or another folder"
            )
        self.embedder_name = embedder_name if recorded is None else recorded

    @property
    def shard(self) -> edge.EdgeShard | None:
        """The open shard; None where none was created yet.

        Raises:
            CandidateSourceError: In a process forked from the one that opened it, where the
                engine would wait for ever for threads that were not forked.
        """
        if os.getpid() != self._process:
            raise CandidateSourceError(
                f"{self.place} was opened before this process was forked, which its engine does "
                f"not survive; open it after forking, in one process only"
            )
        return self._shard

    def prepare(self, *, embedder_name: str, dimension: int) -> None:
        """Create the shard, or check that it suits an embedder; record the embedder's name."""
        check_text("embedder_name", embedder_name)
        dimension = as_count("dimension", dimension, minimum=1)
        with self._creating:
            if self.embedder_name not in (None, embedder_name):
                raise InvalidInputError(
                    f"{self.place} was embedded by {self.embedder_name!r}, not by "
                    f"{embedder_name!r}; take that model, or another folder"
                )
            if self.embedder_name is None and self._folder is None:
                raise InvalidInputError(
                    "the name of the embedder must be kept beside the shard; pass its `folder`, "
                    "open it with EdgeSource.open, or pass `embedder_name`"
                )
            shard = self.shard
            if shard is None:
                shard = self._shard = self._created(dimension)
            reason = self.misfit(shard, dimension)
            if reason is not None:
                raise InvalidInputError(reason)
            if self._folder is not None:  # now that the engine has locked it
                record_name(self._folder, embedder_name)
            self.embedder_name = embedder_name

    def content_ids(self) -> set[str]:
        """Return the ids of points that have the payload of `add`."""
        shard = self.shard
        ids: set[str] = set()
        if shard is None:
            return ids
        ours = edge.Filter(must_not=[edge.IsEmptyCondition(DOCUMENT_ID_KEY)])
        offset = None
        while True:
            page = edge.ScrollRequest(
                offset=offset,
                limit=IDS_A_PAGE,
                filter=ours,
                with_payload=False,
                with_vector=False,
            )
            with engine_failures("list the points of", self.place):
                records, offset = shard.scroll(page)
                ids.update(str(record.id) for record in records)
            if offset is None:
                return ids

    def add(
        self, content_ids: Sequence[str], documents: Sequence[Document], embeddings: FloatArray
    ) -> None:
        """Store points in the engine's log and its segments."""
        shard = self._prepared()
        vectors = _checked_vectors(documents, embeddings)
        n, d = vectors.shape
        if len(content_ids) != n:
            raise InvalidInputError(f"there are {len(content_ids)} `content_ids` for {n} documents")
        ids = _as_uuids(content_ids)
        payloads = [_checked_payload(self.reader, document) for document in documents]
        step = max(1, NUMBERS_AN_UPDATE // d)
        for start in range(0, n, step):
            part = slice(start, start + step)
            rows = vectors[part].tolist()
            points = [
                _point(i, {self.reader.vector_name: row}, payload)
                for i, row, payload in zip(ids[part], rows, payloads[part], strict=True)
            ]
            with engine_failures("write to", self.place, lambda: self.misfit(shard, d)):
                shard.update(edge.UpdateOperation.upsert_points(points))
            self._count(shard, len(points))

    def remove(self, content_ids: Sequence[str]) -> None:
        """Delete points."""
        shard = self.shard
        ids = _as_uuids(content_ids)
        if shard is None or not ids:
            return
        with engine_failures("delete from", self.place):
            shard.update(edge.UpdateOperation.delete_points(ids))
        self._count(shard, len(ids))

    def complete(self) -> None:
        """Build the graph where there are enough points, compact, flush."""
        shard = self.shard
        if shard is not None:
            with engine_failures("complete", self.place):
                shard.optimize()
                shard.flush()
            self._n_unflushed = 0

    def close(self) -> None:
        """Flush and close."""
        if self._shard is not None and os.getpid() == self._process:
            with engine_failures("close", self.place):
                self._shard.close()

    def misfit(self, shard: edge.EdgeShard, dimension: int) -> str | None:
        """Return why vectors (dimension,) do not suit a shard, None where it takes them."""
        return misfit(shard, self.reader.vector_name, dimension, place=self.place)

    def _created(self, dimension: int) -> edge.EdgeShard:
        vectors = edge.EdgeVectorParams(size=dimension, distance=edge.Distance.Cosine)
        name = self.reader.vector_name
        config = edge.EdgeConfig(vectors={name: vectors} if name else vectors)
        with engine_failures("create", self.place):
            return edge.EdgeShard.create(str(self._folder), config)

    def _prepared(self) -> edge.EdgeShard:
        shard = self.shard
        if shard is None:
            raise InvalidInputError(f"{self.place} is not there yet; call `prepare` first")
        return shard

    def _count(self, shard: edge.EdgeShard, n_documents: int) -> None:
        """Flush now and then: bounds the log, and how much of it is read again after a kill."""
        self._n_unflushed += n_documents
        if self._n_unflushed >= DOCUMENTS_A_FLUSH:
            with engine_failures("write to", self.place):
                shard.flush()
            self._n_unflushed = 0


def _as_uuids(content_ids: Sequence[str]) -> list[edge.PointId]:
    try:
        return [uuid.UUID(content_id) for content_id in content_ids]
    except (ValueError, AttributeError, TypeError) as error:
        raise InvalidInputError(
            f"`content_ids` must be UUIDs, as `index_documents` makes them: {error}"
        ) from error


def _checked_vectors(documents: Sequence[Document], embeddings: FloatArray) -> FloatArray:
    """Return embeddings (n, d) as float32, one row for each of n documents."""
    embeddings = as_finite_array("embeddings", embeddings, n_dimensions=2)
    if len(embeddings) != len(documents) or embeddings.shape[1] == 0:
        raise InvalidInputError(
            f"`embeddings` must have one row for each of {len(documents)} documents, got shape "
            f"{embeddings.shape}"
        )
    with np.errstate(over="ignore"):  # becomes infinite, which is too long
        lengths = np.linalg.norm(embeddings.astype(np.float64), axis=1)
    wrong = np.flatnonzero(~((lengths >= _SHORTEST) & (lengths <= _LONGEST)))
    if len(wrong):
        raise InvalidInputError(
            f"the embedding of document {documents[wrong[0]].document_id!r} must have a length "
            f"between {_SHORTEST:g} and {_LONGEST:g}, with which the engine can reckon, got "
            f"{lengths[wrong[0]]:g}; scale the embeddings to length 1"
        )
    vectors: FloatArray = embeddings.astype(np.float32)
    return vectors


def _checked_payload(reader: PointReader, document: Document) -> dict[str, Any]:
    """Return a document's payload, if the engine can give it back as it is."""
    payload = reader.payload(document)
    place = f"metadata of document {document.document_id!r}"
    below: list[tuple[Any, int]] = [(payload, 0)]
    while below:
        value, depth = below.pop()
        if depth > _DEEPEST:
            raise InvalidInputError(
                f"the {place} must be nested at most {_DEEPEST} deep; the engine could not open "
                f"the shard again. Flatten it"
            )
        if isinstance(value, Mapping):
            below.extend((inner, depth + 1) for inner in value.values())
        elif isinstance(value, list | tuple):
            below.extend((inner, depth + 1) for inner in value)
        elif isinstance(value, int) and value not in _INTEGERS:
            raise InvalidInputError(
                f"the {place} holds {value}, which does not fit 64 bits; store it as text"
            )
    return payload


def _point(point_id: edge.PointId, vector: dict[str, Any], payload: dict[str, Any]) -> edge.Point:
    try:
        return edge.Point(point_id, vector, payload)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"document {payload[DOCUMENT_ID_KEY]!r} cannot be stored: its text and metadata must "
            f"be what JSON holds (text, finite numbers, booleans, None, lists, mappings with text "
            f"keys): {str(error).splitlines()[0]}"
        ) from error
