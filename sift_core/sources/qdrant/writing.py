"""Keeping a Qdrant collection equal to a set of documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sift_core.errors import CandidateSourceError, InvalidInputError, MissingDependencyError
from sift_core.sources.qdrant.calls import EMBEDDER_KEY, Collection
from sift_core.sources.qdrant.points import DOCUMENT_ID_KEY, PointReader
from sift_core.types import Document, FloatArray

try:
    from qdrant_client import models
except ImportError as error:
    raise MissingDependencyError("qdrant-client", extra="qdrant") from error

NUMBERS_A_REQUEST = 1_000_000  # of vectors written at once: some 10 MB of JSON; servers take 32
IDS_A_REQUEST = 1000


@dataclass(frozen=True, kw_only=True)
class CollectionWriter:
    """The writing side of `QdrantSource`: what `DocumentIndex` asks for.

    Args:
        collection: Where to.
        reader: Makes the payloads that it reads, and names the vector.
    """

    collection: Collection
    reader: PointReader

    def prepare(self, *, embedder_name: str, dimension: int) -> None:
        """Create the collection, or check that it suits an embedder."""
        if not self.collection.exists():
            self._create(embedder_name, dimension)
        place = f"collection {self.collection.name!r}"
        sizes = self.collection.dense_sizes()
        if sizes.get(self.reader.vector_name) != dimension:
            raise InvalidInputError(
                f"{place} has the dense vectors {sizes}, the embedder makes {dimension} numbers "
                f"for {self.reader.vector_name!r}; pass another `vector_name`, collection or "
                f"embedder"
            )
        found = self.collection.embedder_name()
        if found is None:  # made by somebody else
            name = {EMBEDDER_KEY: embedder_name}
            self.collection.ask("record the embedder of", "update_collection", metadata=name)
        elif found != embedder_name:
            raise InvalidInputError(
                f"{place} was embedded by {found!r}, not by {embedder_name!r}; take that model, "
                f"or another collection"
            )

    def content_ids(self) -> set[str]:
        """Return the ids of points that have the payload of `add`."""
        if not self.collection.exists():
            return set()
        points = self.collection.points("list the points of", payload=[DOCUMENT_ID_KEY])
        return {str(point.id) for point in points if DOCUMENT_ID_KEY in (point.payload or {})}

    def add(
        self, content_ids: Sequence[str], documents: Sequence[Document], embeddings: FloatArray
    ) -> None:
        """Write points and wait until they are applied, a request for every million numbers."""
        name = self.reader.vector_name
        rows = max(1, NUMBERS_A_REQUEST // max(1, embeddings.shape[1]))
        points = [
            models.PointStruct(
                id=content_id,
                vector={name: vector} if name else vector,
                payload=self.reader.payload(document),
            )
            for content_id, document, vector in zip(
                content_ids, documents, embeddings.astype(np.float32).tolist(), strict=True
            )
        ]
        for start in range(0, len(points), rows):
            batch = points[start : start + rows]
            self.collection.ask("write to", "upsert", points=batch, wait=True)

    def remove(self, content_ids: Sequence[str]) -> None:
        """Delete points and wait until that is applied."""
        for start in range(0, len(content_ids), IDS_A_REQUEST):
            ids = models.PointIdsList(points=list(content_ids[start : start + IDS_A_REQUEST]))
            self.collection.ask("delete from", "delete", points_selector=ids, wait=True)

    def _create(self, embedder_name: str, dimension: int) -> None:
        vectors = models.VectorParams(size=dimension, distance=models.Distance.COSINE)
        name = self.reader.vector_name
        try:
            self.collection.ask(
                "create",
                "create_collection",
                vectors_config={name: vectors} if name else vectors,
                metadata={EMBEDDER_KEY: embedder_name},
            )
        except CandidateSourceError:
            if not self.collection.exists():  # else another process was first
                raise
