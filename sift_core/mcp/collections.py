"""The stores behind the tools: one call at a time reads or changes one."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from sift_core.choice import search
from sift_core.choice_spans import embeddings_span
from sift_core.errors import InvalidInputError
from sift_core.explanation import Chosen
from sift_core.options import ChoiceOptions
from sift_core.places import document_of
from sift_core.protocols import Embedder
from sift_core.sources.content_ids import content_id
from sift_core.sources.metadata_filters import filter_for
from sift_core.sources.multi_query import queries_of
from sift_core.types import Document, DocumentSample, FloatArray

N_SAMPLED = 50  # documents from which the keys of the metadata are read
# By content ids, documents to store with their vectors, and None for those to delete.
Rows: TypeAlias = dict[str, tuple[Document, FloatArray] | None]


class Collection:
    """One store by its name for agents. Any number of threads may call it.

    Changes that wait for their turn are written together, since a Faiss folder is saved as a whole.
    A call returns when its change is durable.

    Args:
        name: Its name.
        source: A `FaissSource` or a `QdrantSource`.
        embedder: The model behind its vectors.
        folder: That of a Faiss index. What other processes write there is loaded anew.
    """

    def __init__(
        self, name: str, source: Any, embedder: Embedder, *, folder: str | None = None
    ) -> None:
        self.name: str = name
        self._source, self._embedder = source, embedder
        self._manifest = None if folder is None else Path(folder, "manifest.json")
        self._stamp = self._stamped()
        self._turn = threading.Lock()
        self._waiting: deque[tuple[Rows, Future[None]]] = deque()

    def search(
        self, texts: Sequence[str], options: ChoiceOptions, conditions: Mapping[str, Any]
    ) -> Chosen | None:
        """Return the choice for one or more questions; None if nothing is stored."""
        with embeddings_span(self._embedder, texts):
            query = queries_of(texts, self._embedder)
        try:
            with self._turn:
                source = self._current()
                return search(source, query, options, filter=filter_for(source, dict(conditions)))
        except InvalidInputError:
            if self.sample() is None:
                return None
            raise

    def named(self, name: str, document_key: str | None = None) -> dict[str, Document]:
        """Return the passages with an id, or of a document, by their content ids."""
        with self._turn:
            source = self._current()
            if self._manifest is None:
                from sift_core.sources.qdrant.by_id import stored_documents

                return stored_documents(source, name, document_key)
            every: dict[str, Document] = source.documents()
        return {
            content: one
            for content, one in every.items()
            if name in (one.document_id, document_of(one.metadata, document_key))
        }

    def sample(self) -> DocumentSample | None:
        """Return some random passages and how many are stored; None if there are none."""
        found: DocumentSample | None = None
        with self._turn, suppress(InvalidInputError):
            found = self._current().sample(N_SAMPLED, np.random.default_rng(0))
        return found

    def change(self, added: Document | None = None, removed: Sequence[str] = ()) -> None:
        """Embed and store a document, or delete passages by their content ids.

        Raises:
            CandidateSourceError: If the store fails; nothing is changed then.
            InvalidInputError: If the text cannot be embedded, or JSON cannot hold the metadata.
        """
        rows: Rows = dict.fromkeys(removed)
        if added is not None:
            (vector,) = self._embedder.embed_documents([added.text])
            if not (np.isfinite(vector).all() and vector.any()):
                raise InvalidInputError("the text has nothing to embed; write a sentence")
            rows[content_id(added)] = added, vector
        done: Future[None] = Future()
        self._waiting.append((rows, done))
        with self._turn:
            if not done.done():
                self._write()
        done.result()

    def _write(self) -> None:
        """Write all changes that wait."""
        changes = [self._waiting.popleft() for _ in range(len(self._waiting))]
        rows = {content: row for one, _ in changes for content, row in one.items()}
        added = {content: row for content, row in rows.items() if row is not None}
        error: Exception | None = None
        try:
            source = self._current()
            try:
                if added:
                    documents, vectors = zip(*added.values(), strict=True)
                    source.prepare(embedder_name=self._embedder.name, dimension=len(vectors[0]))
                    source.add(list(added), documents, np.stack(vectors))
                source.remove([content for content in rows if content not in added])
            finally:
                source.complete()
            self._stamp = self._stamped()
        except Exception as raised:
            error = raised
            self._stamp = ()  # load anew: forget what memory holds and the folder does not
        for _, done in changes:
            done.set_exception(error) if error else done.set_result(None)

    def _current(self) -> Any:
        """Return the store, loaded anew if another process has written into its folder."""
        if self._manifest is not None and self._stamp != (stamp := self._stamped()):
            from sift_core.sources import FaissSource

            folder, name = self._manifest.parent, self._embedder.name
            self._source = FaissSource.load(folder, embedder_name=name)
            self._stamp = stamp
        return self._source

    def _stamped(self) -> tuple[int, ...] | None:
        """Return what changes whenever a Faiss folder is saved; None without such a folder."""
        with suppress(OSError):
            if self._manifest is not None:
                found = self._manifest.stat()
                return found.st_mtime_ns, found.st_ino
        return None
