"""Points as Qdrant's clients return them: their vectors and texts, and pools of them."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sift_core.checks import as_finite_array, short_repr, warn
from sift_core.errors import CandidateSourceError, EmptyEntryWarning, InvalidInputError
from sift_core.selection.cosines import cosine_similarities
from sift_core.sources.content_ids import is_content_of
from sift_core.sources.contract import as_sample
from sift_core.sources.layouts import TEXT_KEYS, Entry, read_entry, take_text
from sift_core.types import CandidatePool, Document, DocumentSample, FloatArray, Query

# Payload key of a document's own id, written by `index_documents`. Qdrant's own ids are
# integers or UUIDs, which a document's id seldom is.
DOCUMENT_ID_KEY = "sift_document_id"


@dataclass(frozen=True, kw_only=True)
class PointReader:
    """Reads points with vectors and payload, whatever client or engine they come from.

    Args:
        place: What error messages call the store, for instance "Qdrant collection 'docs'".
        vector_name: Which named vector to read; "" for the unnamed one.
        text_key: Payload key of the chunk's text; dots lead into nested objects, unless the
            payload has a key that is spelled with them. Default: "text" where `payload` wrote it,
            else where other tools keep it (`sift_core.sources.layouts`).
        checks_contents: Whether to refuse a document that is not what its content id was made
            from: for a folder, since local mode keeps no checksums. 15 µs a document.
    """

    place: str = "the Qdrant collection"
    vector_name: str = ""
    text_key: str | None = None
    checks_contents: bool = False
    _seen: set[str] = field(default_factory=set, repr=False, compare=False)

    def pool(
        self, query: Query, points: Sequence[Any], *, scores_are_relevance: bool = False
    ) -> CandidatePool:
        """Return the points as a pool, in their order.

        Args:
            query: What was asked.
            points: Each with `id`, `score`, `vector` and `payload`.
            scores_are_relevance: Whether the scores say more than the cosine does (fused or
                reranked results), and so are kept.

        Raises:
            CandidateSourceError: If a point lacks its vector or its text.
        """
        columns = self._columns(points, len(query.vector))
        relevance = None
        if scores_are_relevance:
            relevance = np.array([point.score for point in points], dtype=np.float64)
        try:
            # NaN, for instance, is the store's fault, not the caller's.
            embeddings = as_finite_array("embeddings", columns["embeddings"], n_dimensions=2)
            similarities = cosine_similarities(query.vector, embeddings)
            return CandidatePool(**columns, similarities=similarities, relevance=relevance)
        except InvalidInputError as error:
            raise CandidateSourceError(
                f"{self.place} returned what cannot be used: {error}; write these points anew"
            ) from error

    def sample(
        self, points: Sequence[Any], *, n_stored: int, is_seeded: bool = True
    ) -> DocumentSample:
        """Return the points as a sample, in their order.

        Args:
            points: Each with `id`, `vector` and `payload`; none where they are all gone.
            n_stored: How many points are stored, >= n.
            is_seeded: Whether the seed decides which are drawn. Default: True.

        Raises:
            CandidateSourceError: If a point lacks its vector or its text, or a vector is not
                finite.
            InvalidInputError: If there is no point.
        """
        columns = self._columns(self.with_text(points), None)
        return as_sample(self.place, **columns, n_stored=n_stored, is_seeded=is_seeded)

    def with_text(self, points: Sequence[Any]) -> Sequence[Any]:
        """Return the points that have a text, with one warning of each other one.

        Raises:
            CandidateSourceError: If none of several has one, or the first that is read.
        """
        texts = [self._entry(point).text for point in points]
        if texts and None not in texts:  # as nearly always
            self._seen.add("")
            return points
        kept = [point for point, text in zip(points, texts, strict=True) if text is not None]
        self._seen.update([""] if kept else [])
        if not kept and (len(points) > 1 or not self._seen):
            return points  # whose texts are under another key, as an error then says
        empty = {str(p.id) for p, text in zip(points, texts, strict=True) if text is None}
        if new := sorted(empty - self._seen):
            self._seen.update(new)
            warn(
                f"{len(new)} point(s) of {self.place} are left out, since they have no text under "
                f"{self._text_keys}: {short_repr(new)}; delete them, or write them anew",
                EmptyEntryWarning,
            )
        return kept

    def payload(self, document: Document) -> dict[str, Any]:
        """Return the payload from which `pool` reads the same document again.

        Raises:
            InvalidInputError: If the metadata has a key that the payload needs for itself.
        """
        payload = dict(document.metadata)
        text_key = self.text_key or TEXT_KEYS[0]
        for key in (text_key, DOCUMENT_ID_KEY):
            if key in payload:
                raise InvalidInputError(
                    f"the metadata of document {document.document_id!r} must not have the key "
                    f"{key!r}, which the payload keeps for itself; rename it"
                )
        payload[text_key] = document.text
        payload[DOCUMENT_ID_KEY] = document.document_id
        return payload

    def document(self, point: Any) -> Document:
        """Return the document that a point holds.

        Raises:
            CandidateSourceError: If it lacks its text, or is not what was stored.
        """
        entry = self._entry(point)
        text = self._text(point, entry)
        if self.checks_contents and DOCUMENT_ID_KEY in point.payload:
            self._check_content(point, entry)
        name = str(entry.document_id or point.id)
        return Document(document_id=name, text=text, metadata=entry.metadata)

    def _columns(self, points: Sequence[Any], d: int | None) -> dict[str, Any]:
        """Return the columns of a pool or a sample, by name."""
        embeddings = dense_vectors(
            points, vector_name=self.vector_name, dimension=d, place=self.place
        )
        documents = list(map(self.document, points))
        return {
            "document_ids": [document.document_id for document in documents],
            "texts": [document.text for document in documents],
            "embeddings": embeddings,
            "metadata": [document.metadata for document in documents],
        }

    def check(self, point: Any) -> None:
        """Refuse a point whose document is not what its content id was made from.

        Raises:
            CandidateSourceError: Naming it.
        """
        entry = self._entry(point)
        self._text(point, entry)
        self._check_content(point, entry)

    def _entry(self, point: Any) -> Entry:
        """Return the document of a point, whose payload a damaged folder may have made anything."""
        payload = point.payload or {}
        if not isinstance(payload, Mapping):
            raise CandidateSourceError(
                f"point {point.id} of {self.place} has a payload that is no mapping, but "
                f"{type(payload).__name__}; restore the folder, or index again into another"
            )
        if DOCUMENT_ID_KEY not in payload:
            return read_entry(payload, self.text_key)
        rest = dict(payload)
        text = take_text(rest, self.text_key or TEXT_KEYS[0])
        return Entry(text, rest, str(rest.pop(DOCUMENT_ID_KEY)))

    def _check_content(self, point: Any, entry: Entry) -> None:
        document_id, text = str(entry.document_id), str(entry.text)
        if not is_content_of(str(point.id), document_id, text, entry.metadata):
            raise CandidateSourceError(
                f"point {point.id} of {self.place} is not the document that was stored: damaged, "
                f"or changed by something else; restore the folder, or index again into another"
            )

    def _text(self, point: Any, entry: Entry) -> str:
        if entry.text is None:
            raise CandidateSourceError(
                f"point {point.id} of {self.place} has no text under {self._text_keys}, only "
                f"{sorted(point.payload or {})}; pass the right `text_key`, or --text-key (dots "
                f"lead into nested objects)",
                is_lasting=True,
            )
        return entry.text

    @property
    def _text_keys(self) -> str:
        return " or ".join(map(repr, [self.text_key] if self.text_key else TEXT_KEYS))


def vectors_wanted(vector_name: str | None) -> bool | list[str]:
    """Return what to ask a client for as `with_vectors`, so that points bring the dense one.

    Example:
        >>> vectors_wanted(None), vectors_wanted("text")
        (True, ['text'])
    """
    return [vector_name] if vector_name else True


def dense_vector(point: Any, *, vector_name: str | None = None) -> FloatArray | None:
    """Return a point's dense vector, shape (d,), float32; None where it has no single one.

    Raises:
        TypeError: If it holds something that is no number.
        ValueError: If it holds a text.

    Example:
        >>> from qdrant_client import models
        >>> point = models.ScoredPoint(id=7, version=0, score=1, vector=[1.0, 0.5])
        >>> dense_vector(point).tolist()
        [1.0, 0.5]
    """
    vector = point.vector
    if isinstance(vector, Mapping):  # unnamed ones come bare, named ones in a mapping
        vector = vector.get(vector_name or "")
    if not isinstance(vector, list) or not vector or isinstance(vector[0], list):
        return None
    packed = _packed([vector], len(vector))
    with np.errstate(over="ignore"):  # no numbers, or one too large
        return np.array(vector, dtype=np.float32) if packed is None else packed.ravel()


def dense_vectors(
    points: Sequence[Any],
    *,
    vector_name: str | None = None,
    dimension: int | None = None,
    place: str = "the Qdrant collection",
) -> FloatArray:
    """Return the dense vectors of points that came with them, shape (n, d), float32.

    Args:
        points: n hits or records, each with `id` and `vector`.
        vector_name: Which of the named vectors; None or "" for the unnamed one.
        dimension: d; None for that of the first point.
        place: What messages call the store.

    Raises:
        CandidateSourceError: If a point lacks the vector, or it is not one of d numbers.

    Example:
        >>> from qdrant_client import models
        >>> point = models.ScoredPoint(id=7, version=0, score=1, vector=[1.0, 0.5])
        >>> dense_vectors([point, point]).shape
        (2, 2)
    """
    if not points:
        return np.empty((0, dimension or 0), dtype=np.float32)
    vectors = [_vector(point, vector_name or "", place) for point in points]
    if dimension is None:
        if not isinstance(vectors[0], list | np.ndarray):
            raise _no_vector(points[0].id, place, "one dense vector", vectors[0])
        dimension = len(vectors[0])
    packed = _packed(vectors, dimension)
    if packed is not None:
        return packed
    for point, vector in zip(points, vectors, strict=True):  # another length, or no numbers
        if _shape(vector) != (dimension,):
            wanted = f"one dense vector of {dimension} numbers"
            raise _no_vector(point.id, place, wanted, vector)
    with np.errstate(over="ignore"):  # too large for float32: refused as not finite
        return np.array(vectors, dtype=np.float32)


def _packed(vectors: Sequence[Any], dimension: int) -> FloatArray | None:
    """Return lists of numbers, or arrays of float32, as rows; None where that cannot be.

    `struct` reads a list of floats three times as fast as NumPy, and a list at a time while its
    numbers are in the processor's cache.
    """
    row = struct.Struct(f"{dimension}f")

    def packed(vector: Any) -> bytes:
        if not isinstance(vector, np.ndarray):
            return row.pack(*vector)
        if vector.nbytes != row.size:
            raise struct.error
        return vector.tobytes()

    try:
        rows = bytearray().join([packed(vector) for vector in vectors])
    except (TypeError, struct.error, OverflowError):
        return None
    matrix: FloatArray = np.frombuffer(rows, dtype=np.float32).reshape(len(vectors), dimension)
    return matrix


def _vector(point: Any, vector_name: str, place: str) -> Any:
    """Return a point's vector; the unnamed one comes bare, named ones in a mapping."""
    vector = point.vector
    if isinstance(vector, list) or not isinstance(vector, Mapping):  # the first test is quick
        return vector
    if vector_name not in vector:
        raise CandidateSourceError(
            f"point {point.id} of {place} has the vectors {sorted(map(str, vector))} but not "
            f"{vector_name!r}; pass a dense one as `vector_name` (--vector-name), or leave such "
            f"points out by a filter with HasVectorCondition(has_vector={vector_name!r})",
            is_lasting=True,
        )
    return vector[vector_name]


def _no_vector(point: object, place: str, wanted: str, vector: Any) -> CandidateSourceError:
    got = "none" if vector is None else f"shape {_shape(vector)}"
    return CandidateSourceError(
        f"point {point} of {place} must have {wanted}, got {got}; choose another `vector_name` "
        f"(--vector-name)",
        is_lasting=True,
    )


def _shape(vector: Any) -> tuple[int, ...]:
    """Return the shape of what should be a vector; () where it is no numbers."""
    try:
        return np.shape(np.asarray(vector, dtype=np.float64))
    except (TypeError, ValueError):
        return ()
