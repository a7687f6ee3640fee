"""Vectors of texts that were embedded before, kept in memory up to a number of bytes."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from hashlib import blake2b
from itertools import count
from typing import Any, TypeAlias

import numpy as np

from sift_core.checks import as_count, check_embedder
from sift_core.errors import InvalidInputError
from sift_core.protocols import Embedder
from sift_core.token_estimate import estimated_tokens
from sift_core.types import FloatArray

__all__ = ["KeptVectors"]

Vectors: TypeAlias = Sequence[Any] | FloatArray

KEPT_BYTES = 64 * 2**20  # 20,000 vectors of 384 numbers, or 5,000 of 1,536, in float64
COUNT_BYTES = 32 * 2**20  # the numbers of tokens of 100,000 texts
BATCH = 64  # texts, after which other threads get their turn at the embedder
_OVERHEAD = 300  # bytes that a key and an array take beside the numbers


class KeptVectors:
    """Vectors that models made of texts. The least recently used is dropped first.

    A text is embedded once for each model while its vector is kept. A vector that is not finite or
    is larger than the limit is not kept. Models are distinguished as objects, not by name. Threads
    may share one cache. Two threads that ask for a new text at once may both embed it.

    Args:
        max_bytes: Limit for all vectors together, >= 1. Default: 64 MiB.

    Raises:
        InvalidInputError: If `max_bytes` is not an integer >= 1.

    Example:
        >>> kept = KeptVectors(max_bytes=1_000_000)
        >>> vectors = kept.embedded(embedder, texts, embedder.embed_documents)
        >>> list(kept.found(embedder, [texts[0], "a new text"]))
        ['The ferry sails at nine.']
    """

    def __init__(self, max_bytes: int = KEPT_BYTES) -> None:
        self._max_bytes = as_count("max_bytes", max_bytes, minimum=1)
        self._n_bytes = 0
        self._rows: OrderedDict[bytes, FloatArray] = OrderedDict()
        # Python reuses `id()` after a model is freed, so each model gets a serial number.
        self._numbers: dict[int, tuple[weakref.ref[Any], int]] = {}
        self._next_number = count()
        self._mutex = threading.Lock()

    @property
    def n_bytes(self) -> int:
        """How many bytes the kept vectors take."""
        return self._n_bytes

    def embedded(
        self, model: object, texts: Sequence[str], embed: Callable[[list[str]], Vectors]
    ) -> list[FloatArray]:
        """Return a read-only vector for each text. One call of `embed` makes those not kept.

        Args:
            model: The object that the vectors belong to. If it takes no weak reference, as with
                `__slots__`, nothing is found again.
            texts: Any number. Equal texts are embedded once.
            embed: Returns a vector, shape (d,), for each of its texts. It is not called without
                texts.

        Raises:
            InvalidInputError: If `embed` returns another number of vectors.
        """
        found, missing = self._look_up(model, texts)
        if missing:
            found |= self._keep(missing, embed(list(missing)))
        return [found[text] for text in texts]

    async def aembedded(
        self,
        model: object,
        texts: Sequence[str],
        embed: Callable[[list[str]], Awaitable[Vectors]],
    ) -> list[FloatArray]:
        """Return what `embedded` does, awaiting `embed`."""
        found, missing = self._look_up(model, texts)
        if missing:
            found |= self._keep(missing, await embed(list(missing)))
        return [found[text] for text in texts]

    def found(self, model: object, texts: Sequence[str]) -> dict[str, FloatArray]:
        """Return the vectors that are kept, by text."""
        return self._look_up(model, texts)[0]

    def _look_up(
        self, model: object, texts: Sequence[str]
    ) -> tuple[dict[str, FloatArray], dict[str, bytes]]:
        """Return the kept vectors by text, and the keys of the other texts."""
        with self._mutex:
            owner = self._number_of(model).to_bytes(8, "big")
        keys = {
            text: owner + blake2b(text.encode("utf-8", "surrogatepass"), digest_size=20).digest()
            for text in texts
        }
        with self._mutex:
            found = {text: self._rows[key] for text, key in keys.items() if key in self._rows}
            for text in found:
                self._rows.move_to_end(keys[text])
        return found, {text: key for text, key in keys.items() if text not in found}

    def _number_of(self, model: object) -> int:
        entry = self._numbers.get(id(model))
        if entry is None or entry[0]() is not model:
            key, numbers = id(model), self._numbers
            try:
                alive = weakref.ref(model, lambda _: numbers.pop(key, None))
            except TypeError:
                return next(self._next_number)
            entry = numbers[key] = alive, next(self._next_number)
        return entry[1]

    def _keep(self, missing: dict[str, bytes], rows: Vectors) -> dict[str, FloatArray]:
        """Keep the vectors of new texts, and return them by text."""
        if len(rows) != len(missing):
            raise InvalidInputError(
                f"the embedding model must give one vector a text, got {len(rows)} for "
                f"{len(missing)} texts"
            )
        # Copies: a view would keep its whole batch.
        new = {text: np.array(row) for text, row in zip(missing, rows, strict=True)}
        with self._mutex:
            for text, row in new.items():
                row.setflags(write=False)  # others get the same
                key, n_bytes = missing[text], row.nbytes + _OVERHEAD
                if key not in self._rows and n_bytes <= self._max_bytes and _is_finite(row):
                    self._rows[key] = row
                    self._n_bytes += n_bytes
            while self._n_bytes > self._max_bytes:
                _, oldest = self._rows.popitem(last=False)
                self._n_bytes -= oldest.nbytes + _OVERHEAD
        return new


class KeptEmbedder:
    """An embedder that keeps its vectors and token counts.

    Any number of threads may use it. The model computes for one of them at a time. A text that
    several need at once is embedded once, and the others wait.

    Args:
        embedder: Embeds the texts whose vectors are not kept.
        max_bytes: Limit for all vectors together. The least recently used is dropped first.
        on_lookup: Called with how many distinct texts had a kept vector, and how many had none.
    """

    def __init__(
        self, embedder: Embedder, *, max_bytes: int, on_lookup: Callable[[int, int], object]
    ) -> None:
        check_embedder(embedder)
        count_tokens = getattr(embedder, "count_tokens", estimated_tokens)

        def embed_queries(texts: list[str]) -> Vectors:
            return np.array([embedder.embed_query(text) for text in texts], dtype=np.float32)

        def embed_documents(texts: list[str]) -> Vectors:
            return np.asarray(embedder.embed_documents(texts), dtype=np.float32)

        self.name: str = embedder.name
        self._embed_queries, self._embed_documents = embed_queries, embed_documents
        self._count = lambda texts: [[count_tokens(text)] for text in texts]
        self._vectors, self._counts = KeptVectors(max_bytes), KeptVectors(COUNT_BYTES)
        self._on_lookup = on_lookup
        self._computing = threading.Lock()  # tokenizers in Rust serve one thread at a time

    def embed_query(self, text: str) -> FloatArray:
        """Return the embedding of a question, shape (d,), float32, read-only."""
        return self._computed(self._vectors, [text], self._embed_queries)[0]

    def embed_documents(
        self, texts: Sequence[str], *, go_on: Callable[[], object] = lambda: None
    ) -> FloatArray:
        """Return embeddings, shape (n, d), float32, in the order of `texts`.

        Args:
            texts: At least one. Equal texts are embedded once.
            go_on: Called before each batch. If it raises an exception, the work ends.
        """
        return np.stack(self._computed(self._vectors, texts, self._embed_documents, go_on))

    def count_tokens(self, text: str) -> int:
        """Return how many tokens a text has, the model's special tokens included."""
        return self.n_tokens([text])

    def n_tokens(self, texts: Sequence[str]) -> int:
        """Return how many tokens texts have; an estimate if the model counts none."""
        return int(sum(row[0] for row in self._computed(self._counts, texts, self._count)))

    def _computed(
        self,
        kept: KeptVectors,
        texts: Sequence[str],
        compute: Callable[[list[str]], Vectors],
        go_on: Callable[[], object] = lambda: None,
    ) -> list[FloatArray]:
        """Return a row for each text, kept under the function that computes it."""
        found = kept.found(compute, texts)
        missing = [text for text in dict.fromkeys(texts) if text not in found]
        if kept is self._vectors:
            self._on_lookup(len(found), len(missing))
        for start in range(0, len(missing), BATCH):
            go_on()
            batch = missing[start : start + BATCH]
            with self._computing:  # another thread may have computed them meanwhile
                found |= zip(batch, kept.embedded(compute, batch, compute), strict=True)
        return [found[text] for text in texts]


def _is_finite(row: FloatArray) -> bool:
    """Return whether a vector can be used; its user says what is wrong with another."""
    return bool(np.issubdtype(row.dtype, np.number) and np.isfinite(row).all())
