"""Making an index equal to a collection of documents, by as little work as that takes."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence, Sized
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from sift_core.checks import as_count, check_embedder
from sift_core.errors import CandidateSourceError, InvalidInputError, SeenFacts, SiftError
from sift_core.progress import progress_bar
from sift_core.protocols import DocumentIndex, Embedder
from sift_core.sources.content_ids import content_id
from sift_core.text_overlap import warn_of_one_vector
from sift_core.types import Document, FloatArray

_logger = logging.getLogger(__name__)
_T = TypeVar("_T")

# Guesses: long enough for a rate limit of requests a minute or a restart, short enough to notice.
MAX_WAITS = 5
LONGEST_WAIT_S = 60.0

# Between two flushes this many times as long is spent on other work as the last flush took: about
# 5 % of the time goes into files that are written anew each time. Guess.
FLUSH_EVERY = 20

# Ids in one request to delete: 36 kB of them.
_N_IDS_A_DELETION = 1000


@dataclass(frozen=True, kw_only=True)
class IndexingReport:
    """What `index_documents` found and did.

    Args:
        n_documents: Documents that were read, equal ones counted once: `n_added + n_unchanged`.
        n_added: Of these, embedded and written by this call.
        n_unchanged: Of these, stored already and left alone.
        n_deleted: Stored documents that were not among those read, and were deleted.
        n_duplicates: How many times a document came that equals an earlier one.
    """

    n_documents: int
    n_added: int
    n_unchanged: int
    n_deleted: int
    n_duplicates: int


def index_documents(
    source: DocumentIndex,
    documents: Iterable[Document],
    embedder: Embedder,
    *,
    batch_size: int = 256,
    resume: bool = True,
    delete_vanished: bool = True,
    progress: bool = True,
) -> IndexingReport:
    """Make a store hold exactly these documents, each once, and report what that took.

    A document is stored under an id made from its id, text and metadata (`content_id`), so
    one that changed is a new one and its old version has vanished. Two documents with one
    `document_id` and different texts are both stored.

    The process may be killed at any moment: what was flushed stays, and the same call again
    embeds only what is missing. Qdrant keeps every finished batch; a `FaissSource` is saved anew
    so often that saving takes about 5 % of the time, and where an error or Ctrl-C ends the call.
    Nothing is deleted before all documents were read and stored, so neither an error of the
    iterable nor a kill loses a document. Meanwhile the store answers queries, from old and new
    versions alike. One call at a time may write to one store.

    Memory holds one batch and the ids (about 250 bytes a document). The next batch is read
    when the last one is written, so a slow store slows the reading down.

    Where the store answers "later" with a time (`CandidateSourceError.retry_after_s`), the
    same call is made again after it, up to 5 times in a row, if it is at most 60 seconds.

    Args:
        source: A store that can be written: a `QdrantSource`, or a `FaissSource`; one that was
            not loaded from a folder changes in memory alone.
        documents: Any iterable, read once; a generator need not fit in memory.
        embedder: The model that queries will be embedded with.
        batch_size: Documents embedded and written at once, >= 1.
        resume: Whether to leave alone what is stored. False embeds and writes everything
            again, in place.
        delete_vanished: Whether to delete what this function stored earlier and is no longer
            among `documents`. In Qdrant points of others are left alone; in a `FaissSource` all
            documents count as stored by this function.
        progress: Whether to show a bar on stderr: if that is a terminal, and tqdm installed
            (extra `index`).

    Raises:
        InvalidInputError: If `source` cannot be written or has another embedder, `documents`
            holds anything but documents that JSON can hold, the embedder returns anything
            but one finite non-zero row a document, or there are no documents at all and
            everything stored would be deleted: an empty folder is more often a mistake.
            `source.remove(sorted(source.content_ids()))` and `source.complete()` do that on
            purpose.
        CandidateSourceError: If the store fails; says how many documents are safely stored.
            Errors of the iterable and the embedder come through as they are.

    Example:
        >>> import faiss
        >>> from sift_core.sources import FaissSource
        >>> source = FaissSource.open(
        ...     folder / "index", faiss.IndexFlatIP(256), embedder_name=embedder.name
        ... )
        >>> documents = read_files([folder / "ferry.md"]).documents
        >>> index_documents(source, documents, embedder, progress=False).n_added
        1
        >>> index_documents(source, documents, embedder, progress=False).n_added
        0
    """
    _check_arguments(source, documents, embedder)
    batch_size = as_count("batch_size", batch_size, minimum=1)
    writer = _Writer(source, embedder, batch_size)
    stored = writer.ask(source.content_ids)
    _check_embedder(source, embedder)  # now the store has been asked
    try:
        n_documents = len(documents) if isinstance(documents, Sized) else None
        with progress_bar(n_documents, "indexing", "documents", wanted=progress) as advance:
            seen, n_read = writer.write(documents, stored if resume else set(), advance)
        vanished = stored - seen if delete_vanished else set()
        if vanished and not seen:
            raise InvalidInputError(
                f"`documents` yielded nothing, so all {len(vanished)} stored documents would be "
                f"deleted; was the right folder read? To delete them on purpose, call "
                f"`source.remove(sorted(source.content_ids()))` and `source.complete()`; to keep "
                f"them, pass `delete_vanished=False`"
            )
        writer.remove(sorted(vanished))
    except BaseException:
        writer.give_up()
        raise
    if seen:
        writer.ask(source.complete)
    return IndexingReport(
        n_documents=len(seen),
        n_added=writer.n_added,
        n_unchanged=len(seen) - writer.n_added,
        n_deleted=len(vanished),
        n_duplicates=n_read - len(seen),
    )


class _Writer:
    """Writes to one index, waits when it asks for that, and counts what is safely stored."""

    def __init__(self, source: DocumentIndex, embedder: Embedder, batch_size: int) -> None:
        self._source = source
        self._embedder = embedder
        self._batch_size = batch_size
        self._dimension: int | None = None
        self._seen = SeenFacts()  # the scripts that the embedder lacks
        self.n_added = 0
        self._n_stored = 0  # of these, before the last flush
        self._flushed_s = time.monotonic()
        self._flush_took_s = 0.0

    def write(
        self, documents: Iterable[Document], stored: set[str], advance: Callable[[int], Any]
    ) -> tuple[set[str], int]:
        """Write what is not stored, in batches.

        Return the ids of all documents, and how many documents came.
        """
        seen: set[str] = set()
        batch: dict[str, Document] = {}
        n_read = 0
        for document in documents:
            if not isinstance(document, Document):
                raise InvalidInputError(
                    f"`documents` must yield Document, got {type(document).__name__} at {n_read}"
                )
            n_read += 1
            key = content_id(document)
            if key in seen or key in stored:
                advance(1)
            else:
                batch[key] = document
            seen.add(key)
            if len(batch) == self._batch_size:
                self._add(batch)
                advance(len(batch))
                batch = {}
        if batch:
            self._add(batch)
            advance(len(batch))
        return seen, n_read

    def _add(self, batch: dict[str, Document]) -> None:
        """Embed and write documents, by their ids; all are checked before one is written."""
        documents = list(batch.values())
        embeddings = _checked_embeddings(
            self._embedder.embed_documents([document.text for document in documents]),
            documents,
            self._dimension,
        )
        if self._dimension is None:
            name, dimension = self._embedder.name, embeddings.shape[1]
            self.ask(partial(self._source.prepare, embedder_name=name, dimension=dimension))
            self._dimension = dimension
        ids, texts = zip(*((one.document_id, one.text) for one in documents), strict=True)
        warn_of_one_vector(ids, texts, embeddings, self._seen)
        self.ask(partial(self._source.add, list(batch), documents, embeddings))
        self.n_added += len(documents)
        started_s = time.monotonic()
        if started_s - self._flushed_s >= FLUSH_EVERY * self._flush_took_s:
            self.ask(self._source.flush)
            self._n_stored, self._flushed_s = self.n_added, time.monotonic()
            self._flush_took_s = self._flushed_s - started_s

    def remove(self, content_ids: Sequence[str]) -> None:
        """Delete documents, some at a time."""
        for start in range(0, len(content_ids), _N_IDS_A_DELETION):
            self.ask(partial(self._source.remove, content_ids[start : start + _N_IDS_A_DELETION]))

    def give_up(self) -> None:
        """Keep what finished batches wrote; the error that ended them says more than one here."""
        if self._dimension is not None:
            with suppress(SiftError):
                self._source.complete()

    def ask(self, operation: Callable[[], _T]) -> _T:
        """Return what `operation` returns, called again while the store says "later"."""
        n_waits = 0
        while True:
            try:
                return operation()
            except CandidateSourceError as error:
                wait_s = error.retry_after_s
                if wait_s is None or n_waits == MAX_WAITS or not wait_s <= LONGEST_WAIT_S:
                    raise self._with_account(error, n_waits) from error
                _logger.info("asking the store again in %g s, as it said: %s", wait_s, error)
                time.sleep(max(wait_s, 0.0))
                n_waits += 1

    def _with_account(self, error: CandidateSourceError, n_waits: int) -> CandidateSourceError:
        """Return the error with what it means for the documents, of which all that can be stay."""
        with suppress(CandidateSourceError):
            self._source.flush()
            self._n_stored = self.n_added
        waits = f" after waiting {n_waits} times as it said" if n_waits else ""
        return CandidateSourceError(
            f"indexing stopped{waits}, with {self._n_stored} new documents safely stored; call "
            f"`index_documents` again to go on from there. The store: {error}",
            retry_after_s=error.retry_after_s,
        )


def _check_arguments(source: object, documents: object, embedder: Any) -> None:
    """Refuse what can be refused before any work."""
    if not isinstance(source, DocumentIndex):
        raise InvalidInputError(
            f"`source` must be a store that can be written: a QdrantSource or a FaissSource (an "
            f"InMemorySource is read-only), got {type(source).__name__}"
        )
    check_embedder(embedder)
    if not isinstance(documents, Iterable):
        raise InvalidInputError(
            f"`documents` must be an iterable of Document, got {type(documents).__name__}"
        )
    _check_embedder(source, embedder)


def _check_embedder(source: DocumentIndex, embedder: Embedder) -> None:
    """Refuse a store with vectors of another embedder."""
    if source.embedder_name is not None and source.embedder_name != embedder.name:
        raise InvalidInputError(
            f"the store holds vectors of {source.embedder_name!r}, which cannot be mixed with "
            f"those of {embedder.name!r}; pass that embedder, or index into a new store"
        )


def _checked_embeddings(
    embeddings: object, documents: Sequence[Document], dimension: int | None
) -> FloatArray:
    """Return what the embedder made of n documents as float32, shape (n, d).

    Args:
        embeddings: What it returned.
        documents: The documents, for the messages.
        dimension: d of the earlier batches. The first batch has None.
    """
    try:
        array, cause = np.asarray(embeddings), None
    except (TypeError, ValueError) as error:  # rows of several lengths; a tensor on a GPU
        array, cause = np.asarray(None), error
    n, d = array.shape if array.ndim == 2 else (0, 0)
    if array.dtype.kind not in "fiu" or n != len(documents) or d == 0 or d != (dimension or d):
        raise InvalidInputError(
            f"the embedder must return real numbers of shape ({len(documents)}, "
            f"{dimension or 'd'}) for documents {documents[0].document_id!r} to "
            f"{documents[-1].document_id!r}, got {type(embeddings).__name__} of shape "
            f"{array.shape} and dtype {array.dtype}"
        ) from cause
    with np.errstate(over="ignore"):  # becomes infinite, which is refused below
        rows: FloatArray = np.ascontiguousarray(array, dtype=np.float32)
    for need, are_right in (
        ("finite as float32", np.isfinite(rows).all(axis=1)),
        ("other than all zero", rows.any(axis=1)),
    ):
        wrong = np.flatnonzero(~are_right)
        if len(wrong):
            document = documents[int(wrong[0])]
            raise InvalidInputError(
                f"the embedding of document {document.document_id!r} must be {need}; so must "
                f"{len(wrong) - 1} others of its batch. Its text has {len(document.text)} "
                f"characters: is there something to embed?"
            )
    return rows
