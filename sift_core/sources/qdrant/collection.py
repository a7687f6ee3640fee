"""One collection: listing and sampling its points, and keeping it equal to a set of documents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from qdrant_client import QdrantClient, models

from sift_core.errors import CandidateSourceError, InvalidInputError
from sift_core.sources.qdrant.calls import STORE_ERRORS, failure, folder_of, place_of
from sift_core.sources.qdrant.points import DOCUMENT_ID_KEY, PointReader, vectors_wanted
from sift_core.sources.qdrant.words import (
    WORDS,
    mean_length,
    metadata,
    sparse_vectors,
    words_of_documents,
)
from sift_core.types import Document, DocumentSample, FloatArray

IDS_A_PAGE = 10_000
IDS_A_REQUEST = 1000
NUMBERS_A_REQUEST = 1_000_000  # of vectors written at once: some 10 MB of JSON; servers take 32
EMBEDDER_KEY = "sift_embedder_name"  # in the metadata of a collection that `prepare` creates

# Up to so many points their ids are listed, a page of 10,000 a request, some 10 s in all, and the
# draw obeys the seed; of more the server draws, which takes no longer than a search. Guess.
MOST_LISTED = 1_000_000
POINTS_A_REQUEST = 100


@dataclass(frozen=True, kw_only=True)
class Collection:
    """A collection and the blocking client that reaches it.

    Args:
        client: A `QdrantClient` of any kind.
        name: The collection's, or an alias.
        reader: Reads its points, makes the payloads that it reads, and names the vector.
    """

    client: QdrantClient
    name: str
    reader: PointReader = field(default_factory=PointReader)

    def ask(self, action: str, method: str, **arguments: Any) -> Any:
        """Return what a method of the client returns.

        Args:
            action: What it is asked to do, for the message; "list the points of" for instance.
            method: Name of the client's method.
            arguments: Its arguments after the collection's name.

        Raises:
            CandidateSourceError: If Qdrant fails, or does not answer in time.
        """
        try:
            return getattr(self.client, method)(self.name, **arguments)
        except STORE_ERRORS as error:
            place = place_of(self.client, self.name)
            raise failure(error, self.client).as_error(action, place) from error

    def points(self, action: str, *, payload: bool | list[str]) -> Iterator[Any]:
        """Yield all points, a page of 10,000 a request, with these keys of their payload.

        Raises:
            CandidateSourceError: As `ask`.
        """
        offset = None
        while True:  # no filter: strict servers want an index for it
            page, offset = self.ask(
                action,
                "scroll",
                limit=IDS_A_PAGE,
                offset=offset,
                with_payload=payload,
                with_vectors=False,
            )
            yield from page
            if offset is None:
                return

    def exists(self) -> bool:
        """Return whether it is there."""
        return bool(self.ask("find", "collection_exists"))

    def others(self) -> list[str]:
        """Return the names of the other collections; none if the client may not list them."""
        try:
            names = sorted(one.name for one in self.client.get_collections().collections)
        except STORE_ERRORS:
            return []
        return [name for name in names if name != self.name]

    def information(self) -> models.CollectionInfo:
        """Return what Qdrant says of the collection."""
        found: models.CollectionInfo = self.ask("look at", "get_collection")
        return found

    def n_points(self) -> int:
        """Return about how many points it holds; 0 if it is not there."""
        return (self.information().points_count or 0) if self.exists() else 0

    def embedder_name(self) -> str | None:
        """Return the embedder that the collection names; None where there is no such name."""
        return recorded_embedder(self.information()) if self.exists() else None

    def vector_to_search(self, name: str | None) -> str:
        """Return the dense vector of this name. Default: the unnamed one, else the only one.

        Raises:
            InvalidInputError: If there is none, or there are several to choose from.
        """
        sizes = dense_sizes(self.information())
        if name is None and len(sizes) == 1:
            return next(iter(sizes))
        if (name or "") not in sizes:
            got = "none was named" if name is None else f"got {name!r}"
            raise InvalidInputError(
                f"collection {self.name!r} has the dense vectors {sizes} (names and dimensions), "
                f"{got}; pass one as `vector_name` (--vector-name)"
            )
        return name or ""

    def prepare(self, *, embedder_name: str, dimension: int) -> float:
        """Create the collection, or check that it suits an embedder; return its `mean_length`."""
        if not self.exists():
            self._create(embedder_name, dimension)
        place = f"collection {self.name!r}"
        information = self.information()
        self.check_datatype(information)
        sizes = dense_sizes(information)
        if sizes.get(self.reader.vector_name) != dimension:
            raise InvalidInputError(
                f"{place} has the dense vectors {sizes}, the embedder makes {dimension} numbers "
                f"for {self.reader.vector_name!r}; pass another `vector_name`, collection or "
                f"embedder"
            )
        found = recorded_embedder(information)
        if found is None:  # made by somebody else
            name = {EMBEDDER_KEY: embedder_name}
            self.ask("record the embedder of", "update_collection", metadata=name)
        elif found != embedder_name:
            raise InvalidInputError(
                f"{place} was embedded by {found!r}, not by {embedder_name!r}; take that model, "
                f"or another collection"
            )
        return mean_length(information)

    def check_datatype(self, information: models.CollectionInfo) -> None:
        """Refuse to write into vectors of a type that keeps other numbers than it is given.

        Halves (float16) are taken: they move a cosine by some 1e-3.

        Raises:
            InvalidInputError: If they are, for instance, whole numbers (uint8).
        """
        vectors = information.config.params.vectors or {}
        named = {"": vectors} if isinstance(vectors, models.VectorParams) else vectors
        config = named.get(self.reader.vector_name)
        kept = (None, models.Datatype.FLOAT32, models.Datatype.FLOAT16)
        if config is not None and config.datatype not in kept:
            raise InvalidInputError(
                f"collection {self.name!r} keeps its vectors (vector name "
                f"{self.reader.vector_name!r}) as {config.datatype.value}, which would change the "
                f"embedder's numbers; nothing was written. Pass a collection of float32"
            )

    def content_ids(self) -> set[str]:
        """Return the ids of points that have the payload of `add`."""
        if not self.exists():
            return set()
        return {str(point.id) for point in self.stored(payload=[DOCUMENT_ID_KEY])}

    def stored(self, *, payload: list[str]) -> Iterator[Any]:
        """Yield the points that `add` wrote, with these keys of their payload; others are left out.

        Those of a folder come with all keys, and are checked.

        Raises:
            CandidateSourceError: As `ask`, or if a document is not what was stored.
        """
        is_checked = folder_of(self.client) is not None
        for point in self.points("list the points of", payload=True if is_checked else payload):
            if DOCUMENT_ID_KEY in (point.payload or {}):
                if is_checked:
                    self.reader.check(point)
                yield point

    def add(
        self,
        content_ids: Sequence[str],
        documents: Sequence[Document],
        embeddings: FloatArray,
        *,
        mean_length: float = 0.0,
    ) -> None:
        """Write points and wait until they are applied, a request for every million numbers.

        Args:
            content_ids: n ids.
            documents: n documents.
            embeddings: Shape (n, d).
            mean_length: That of the collection. Default: 0, for one without words.
        """
        rows = max(1, NUMBERS_A_REQUEST // max(1, embeddings.shape[1]))
        words: Sequence[Any] = [None] * len(documents)
        if mean_length:
            words = words_of_documents(documents, mean_length)
        points = [
            models.PointStruct(
                id=content_id,
                vector=self._vectors(vector, sparse),
                payload=self.reader.payload(document),
            )
            for content_id, document, vector, sparse in zip(
                content_ids, documents, embeddings.astype(np.float32).tolist(), words, strict=True
            )
        ]
        for start in range(0, len(points), rows):
            batch = points[start : start + rows]
            self.ask("write to", "upsert", points=batch, wait=True)

    def _vectors(self, dense: list[float], words: models.SparseVector | None) -> Any:
        """Return a point's vectors; an unnamed one alone comes bare."""
        name = self.reader.vector_name
        named = {name: dense} if words is None else {name: dense, WORDS: words}
        return named if name or words is not None else dense

    def remove(self, content_ids: Sequence[str]) -> None:
        """Delete points and wait until that is applied."""
        for start in range(0, len(content_ids), IDS_A_REQUEST):
            ids = models.PointIdsList(points=list(content_ids[start : start + IDS_A_REQUEST]))
            self.ask("delete from", "delete", points_selector=ids, wait=True)

    def sample(self, n: int, generator: np.random.Generator) -> DocumentSample:
        """Return up to n random points, all of them where there are fewer.

        Raises:
            CandidateSourceError: If Qdrant fails, a point lacks its vector or its text, or the
                vector is not finite.
            InvalidInputError: If the collection is empty, or has no such dense vector.
        """
        n_stored = int(self.ask("sample", "count").count)
        sizes = dense_sizes(self.information())
        name = self.reader.vector_name
        if name not in sizes:
            raise InvalidInputError(
                f"collection {self.name!r} has the dense vectors {sizes}, none is called "
                f"{name!r}; pass one of them as `vector_name`"
            )
        wanted = {"with_payload": True, "with_vectors": vectors_wanted(name)}
        if n_stored > MOST_LISTED:
            query = models.SampleQuery(sample=models.Sample.RANDOM)
            points = self.ask("sample", "query_points", query=query, limit=n, **wanted).points
            return self.reader.sample(points, n_stored=n_stored, is_seeded=False)
        ids = [point.id for point in self.points("sample", payload=False)]
        drawn = [ids[i] for i in np.argsort(generator.random(len(ids)), kind="stable")[:n]]
        found: dict[Any, Any] = {}
        for start in range(0, len(drawn), POINTS_A_REQUEST):
            some = drawn[start : start + POINTS_A_REQUEST]
            points = self.ask("sample", "retrieve", ids=some, **wanted)
            found.update((point.id, point) for point in points)
        # Some may have been deleted since they were listed.
        points = [found[point_id] for point_id in drawn if point_id in found]
        return self.reader.sample(points, n_stored=len(ids))

    def _create(self, embedder_name: str, dimension: int) -> None:
        vectors = models.VectorParams(size=dimension, distance=models.Distance.COSINE)
        name = self.reader.vector_name
        try:
            self.ask(
                "create",
                "create_collection",
                vectors_config={name: vectors} if name else vectors,
                sparse_vectors_config=sparse_vectors(),
                metadata={EMBEDDER_KEY: embedder_name, **metadata()},
            )
        except CandidateSourceError:
            if not self.exists():  # else another process was first
                raise


def recorded_embedder(information: models.CollectionInfo) -> str | None:
    """Return the embedder that a collection names; None where there is no such name."""
    name: str | None = (information.config.metadata or {}).get(EMBEDDER_KEY)
    return name


def dense_sizes(information: models.CollectionInfo) -> dict[str, int]:
    """Return the dimension of a collection's vectors that are dense and one a point, by name."""
    vectors = information.config.params.vectors or {}
    named = {"": vectors} if isinstance(vectors, models.VectorParams) else vectors
    return {
        name: config.size for name, config in named.items() if config.multivector_config is None
    }


def vector_advice(information: models.CollectionInfo) -> str:
    """Return what to look at where a collection refuses a search."""
    sizes = ", ".join(f"{name!r} of {n}" for name, n in dense_sizes(information).items())
    return (
        f"its dense vectors are {sizes or 'none'} (dimensions): is `vector_name` "
        f"(--vector-name) one of them, is the filter right, and were both embedded by one model "
        f"(--embedder)?"
    )
