"""Documents drawn at random from a Qdrant collection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sift_core.errors import InvalidInputError, MissingDependencyError
from sift_core.sources.qdrant.calls import Collection
from sift_core.sources.qdrant.points import PointReader
from sift_core.sources.qdrant.vectors import vectors_wanted
from sift_core.sources.qdrant.writing import IDS_A_PAGE
from sift_core.sources.sampling import Draw, nothing_to_sample
from sift_core.types import DocumentSample

try:
    from qdrant_client import models
except ImportError as error:
    raise MissingDependencyError("qdrant-client", extra="qdrant") from error

# Up to so many points their ids are listed, a page of 10,000 a request, some 10 s in all, and the
# draw obeys the seed; of more the server draws, which takes no longer than a search. Guess.
MOST_LISTED = 1_000_000
_POINTS_A_REQUEST = 100


@dataclass(frozen=True, kw_only=True)
class CollectionSampler:
    """Draws points of a collection.

    Args:
        collection: Where from.
        reader: Reads the points, and names the vector.
        most_listed: Up to how many points their ids are listed.
        ids_a_page: How many ids are asked for at once.
    """

    collection: Collection
    reader: PointReader
    most_listed: int = MOST_LISTED
    ids_a_page: int = IDS_A_PAGE

    def sample(self, n: int, generator: np.random.Generator) -> DocumentSample:
        """Return up to n random points, all of them where there are fewer.

        Raises:
            CandidateSourceError: If Qdrant fails, a point lacks its vector or its text, or the
                vector is not finite.
            InvalidInputError: If the collection is empty, or has no such dense vector.
        """
        n_stored = int(self._ask("count").count)
        if n_stored == 0:
            raise nothing_to_sample(self.reader.place)
        self._check_vector_name()
        if n_stored > self.most_listed:
            points = self._drawn_by_server(n)
            return self.reader.sample(points, n_stored=n_stored, is_seeded=False)
        drawn = self._drawn_ids(n, generator)
        return self.reader.sample(self._points(drawn.items), n_stored=drawn.n_seen)

    def _drawn_ids(self, n: int, generator: np.random.Generator) -> Draw[Any]:
        draw: Draw[Any] = Draw(n, generator)
        offset = None
        while True:
            page, offset = self._ask(
                "scroll",
                limit=self.ids_a_page,
                offset=offset,
                with_payload=False,
                with_vectors=False,
            )
            draw.add([point.id for point in page])
            if offset is None:
                return draw

    def _points(self, ids: Sequence[Any]) -> list[Any]:
        """Return points with payload and the vector, in the order of `ids`.

        One that was deleted since it was listed is left out.
        """
        found: dict[Any, Any] = {}
        for start in range(0, len(ids), _POINTS_A_REQUEST):
            some = self._ask(
                "retrieve",
                ids=ids[start : start + _POINTS_A_REQUEST],
                with_payload=True,
                with_vectors=vectors_wanted(self.reader.vector_name),
            )
            found.update((point.id, point) for point in some)
        return [found[point_id] for point_id in ids if point_id in found]

    def _drawn_by_server(self, n: int) -> list[Any]:
        answer = self._ask(
            "query_points",
            query=models.SampleQuery(sample=models.Sample.RANDOM),
            limit=n,
            with_payload=True,
            with_vectors=vectors_wanted(self.reader.vector_name),
        )
        return list(answer.points)

    def _check_vector_name(self) -> None:
        sizes = self.collection.dense_sizes()
        name = self.reader.vector_name
        if name not in sizes:
            raise InvalidInputError(
                f"collection {self.collection.name!r} has the dense vectors {sizes}, none is "
                f"called {name!r}; pass one of them as `vector_name`"
            )

    def _ask(self, method: str, **arguments: Any) -> Any:
        return self.collection.ask("sample", method, **arguments)
