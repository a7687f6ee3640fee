"""Texts embedded once: vectors are kept by the hash of their text."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from hashlib import blake2b

import numpy as np

from sift_core.errors import MissingDependencyError
from sift_core.options import estimated_tokens
from sift_core.protocols import Embedder
from sift_core.service.metrics import Metrics
from sift_core.types import FloatArray

try:
    from cachetools import LRUCache
except ImportError as error:
    raise MissingDependencyError("cachetools", extra="serve") from error

BATCH = 64  # texts, after which others get their turn at the embedder
N_COUNTS = 100_000  # numbers of tokens that are kept: 10 MB
_OVERHEAD = 300  # bytes that a key and an array take beside the numbers


class KeptEmbedder:
    """An embedder that remembers. Any number of threads may use it; the model computes for one.

    Args:
        embedder: Embeds what is not known yet.
        max_bytes: Of vectors that are kept, the least recently used dropped first.
        metrics: Told of hits and misses.
    """

    def __init__(self, embedder: Embedder, *, max_bytes: int, metrics: Metrics) -> None:
        self._embedder, self._metrics = embedder, metrics
        self._kept: LRUCache[bytes, FloatArray] = LRUCache(
            max_bytes, getsizeof=lambda row: row.nbytes + _OVERHEAD
        )
        self._counts: LRUCache[bytes, int] = LRUCache(N_COUNTS)
        self._mutex = threading.Lock()
        self._computing = threading.Lock()  # tokenizers in Rust serve one thread at a time

    @property
    def name(self) -> str:
        """Name of the model."""
        return self._embedder.name

    def embed_query(self, text: str) -> FloatArray:
        """Return the embedding of a question, shape (d,)."""
        key = _key(b"query", text)
        known = self._known([key])
        if key in known:
            return known[key]
        with self._computing:
            row = np.array(self._embedder.embed_query(text), dtype=np.float32)
        self._keep({key: row})
        return row

    def embed_documents(
        self, texts: Sequence[str], *, go_on: Callable[[], object] = lambda: None
    ) -> FloatArray:
        """Return embeddings, shape (n, d), in the order of `texts`; each distinct one costs once.

        Args:
            texts: At least one.
            go_on: Called before each batch; what it raises ends the work.
        """
        keys = [_key(b"document", text) for text in texts]
        found = self._known(keys)
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in found}
        wanted = list(missing.items())
        for start in range(0, len(wanted), BATCH):
            go_on()
            part = wanted[start : start + BATCH]
            with self._computing:
                rows = self._embedder.embed_documents([text for _, text in part])
            # A copy of each row: a view would keep the whole batch.
            new = {
                key: np.array(row, dtype=np.float32)
                for (key, _), row in zip(part, rows, strict=True)
            }
            found |= new
            self._keep(new)
        return np.stack([found[key] for key in keys])

    def count_tokens(self, text: str) -> int:
        """Return how many tokens a text has, the model's marks counted."""
        return self.n_tokens([text])

    def n_tokens(self, texts: Sequence[str]) -> int:
        """Return how many tokens texts have; an estimate where the model counts none."""
        count = getattr(self._embedder, "count_tokens", estimated_tokens)
        total = 0
        for text in texts:
            key = _key(b"document", text)
            with self._mutex:
                n = self._counts.get(key)
            if n is None:
                with self._computing:
                    n = count(text)
                with self._mutex:
                    self._counts[key] = n
            total += n
        return total

    def _known(self, keys: Sequence[bytes]) -> dict[bytes, FloatArray]:
        distinct = dict.fromkeys(keys)
        with self._mutex:
            rows = {key: self._kept.get(key) for key in distinct}
        found = {key: row for key, row in rows.items() if row is not None}
        self._metrics.looked_up("vectors", hits=len(found), misses=len(distinct) - len(found))
        return found

    def _keep(self, rows: dict[bytes, FloatArray]) -> None:
        with self._mutex:
            for key, row in rows.items():
                if row.nbytes + _OVERHEAD <= self._kept.maxsize:
                    self._kept[key] = row


def _key(kind: bytes, text: str) -> bytes:
    return blake2b(text.encode(), digest_size=20, key=kind).digest()
