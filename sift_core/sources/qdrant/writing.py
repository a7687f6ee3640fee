"""Keeping a Qdrant collection equal to a set of documents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np

from sift_core.errors import CandidateSourceError, InvalidInputError, MissingDependencyError
from sift_core.sources.qdrant.deadline import within
from sift_core.sources.qdrant.failures import STORE_ERRORS, failure
from sift_core.sources.qdrant.points import DOCUMENT_ID_KEY, PointReader
from sift_core.types import Document, FloatArray

try:
    from qdrant_client import QdrantClient, models
except ImportError as error:
    raise MissingDependencyError("qdrant-client", extra="qdrant") from error

T = TypeVar("T")

EMBEDDER_KEY = "sift_embedder_name"  # in the metadata of a collection that `prepare` creates
NUMBERS_A_REQUEST = 1_000_000  # of vectors written at once: some 10 MB of JSON; servers take 32
IDS_A_REQUEST = 1000
IDS_A_PAGE = 10_000


@dataclass(frozen=True, kw_only=True)
class CollectionWriter:
    """The writing side of `QdrantSource`: what `DocumentIndex` asks for.

    Args:
        client: Any blocking client.
        collection: Its name.
        reader: Makes the payloads that it reads, and names the vector.
        timeout_s: Longest time for one call of the client; None for no limit.
    """

    client: QdrantClient
    collection: str
    reader: PointReader
    timeout_s: float | None

    def prepare(self, *, embedder_name: str, dimension: int) -> None:
        """Create the collection, or check that it suits an embedder."""
        if not self._exists():
            self._create(embedder_name, dimension)
        information = self._ask("prepare", lambda: self.client.get_collection(self.collection))
        sizes = dense_sizes(information)
        if sizes.get(self.reader.vector_name) != dimension:
            raise InvalidInputError(
                f"collection {self.collection!r} has the dense vectors {sizes}, the embedder "
                f"makes {dimension} numbers for {self.reader.vector_name!r}; pass another "
                f"`vector_name`, collection or embedder"
            )
        found = _embedder_name(information)
        if found is None:  # made by somebody else
            name = {EMBEDDER_KEY: embedder_name}
            update = partial(self.client.update_collection, self.collection, metadata=name)
            self._ask("record the embedder of", update)
        elif found != embedder_name:
            raise InvalidInputError(
                f"collection {self.collection!r} was embedded by {found!r}, not by "
                f"{embedder_name!r}; take that model, or another collection"
            )

    def embedder_name(self) -> str | None:
        """Return the embedder that the collection names; None where there is no such name."""
        if not self._exists():
            return None
        return _embedder_name(
            self._ask("look at", lambda: self.client.get_collection(self.collection))
        )

    def content_ids(self) -> set[str]:
        """Return the ids of points that have the payload of `add`."""
        page = partial(  # without a filter: strict servers demand an index for one
            self.client.scroll,
            self.collection,
            limit=IDS_A_PAGE,
            with_payload=[DOCUMENT_ID_KEY],
            with_vectors=False,
        )
        ids: set[str] = set()
        offset = None
        has_more = self._exists()
        while has_more:
            points, offset = self._ask("list the points of", partial(page, offset=offset))
            ids.update(
                str(point.id) for point in points if DOCUMENT_ID_KEY in (point.payload or {})
            )
            has_more = offset is not None
        return ids

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
        write = partial(self.client.upsert, self.collection, wait=True)
        for start in range(0, len(points), rows):
            self._ask("write to", partial(write, points=points[start : start + rows]))

    def remove(self, content_ids: Sequence[str]) -> None:
        """Delete points and wait until that is applied."""
        delete = partial(self.client.delete, self.collection, wait=True)
        for start in range(0, len(content_ids), IDS_A_REQUEST):
            ids = models.PointIdsList(points=list(content_ids[start : start + IDS_A_REQUEST]))
            self._ask("delete from", partial(delete, points_selector=ids))

    def _exists(self) -> bool:
        return self._ask("find", lambda: self.client.collection_exists(self.collection))

    def _create(self, embedder_name: str, dimension: int) -> None:
        vectors = models.VectorParams(size=dimension, distance=models.Distance.COSINE)
        name = self.reader.vector_name
        create = partial(
            self.client.create_collection,
            self.collection,
            vectors_config={name: vectors} if name else vectors,
            metadata={EMBEDDER_KEY: embedder_name},
        )
        try:
            self._ask("create", create)
        except CandidateSourceError:
            if not self._exists():  # else another process was first
                raise

    def _ask(self, action: str, call: Callable[[], T]) -> T:
        """Return what one call of the client returns; its failures become errors of ours."""
        try:
            return within(self.timeout_s, call)
        except STORE_ERRORS as error:
            raise failure(error).as_error(action, f"collection {self.collection!r}") from error


def _embedder_name(information: models.CollectionInfo) -> str | None:
    name: str | None = (information.config.metadata or {}).get(EMBEDDER_KEY)
    return name


def dense_vectors(information: models.CollectionInfo) -> dict[str, models.VectorParams]:
    """Return the vectors of a collection that are dense and one a point, by name."""
    vectors = information.config.params.vectors or {}
    named = {"": vectors} if isinstance(vectors, models.VectorParams) else vectors
    return {name: config for name, config in named.items() if config.multivector_config is None}


def dense_sizes(information: models.CollectionInfo) -> dict[str, int]:
    """Return the dimension of each dense vector of a collection, by name."""
    return {name: config.size for name, config in dense_vectors(information).items()}


def vector_advice(information: models.CollectionInfo) -> str:
    """Return what to look at where a collection refuses a search."""
    sizes = ", ".join(f"{name!r} of {n}" for name, n in dense_sizes(information).items())
    return (
        f"its dense vectors are {sizes or 'none'} (dimensions): is `vector_name` one of them, is "
        f"the filter right, and were both embedded by one model?"
    )


def check_has_opposites(
    information: models.CollectionInfo, collection: str, vector_name: str
) -> None:
    """Refuse a collection in which nothing is the opposite of a query.

    Raises:
        InvalidInputError: If its metric is a distance.
    """
    vectors = dense_vectors(information).get(vector_name)
    has_opposites = (models.Distance.COSINE, models.Distance.DOT)
    if vectors is not None and vectors.distance not in has_opposites:
        raise InvalidInputError(
            f"`include_opposite` needs a collection by cosine or dot product, "
            f"{collection!r} has {vectors.distance.value}; leave it out"
        )
