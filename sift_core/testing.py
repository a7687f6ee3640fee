"""Deterministic stand-ins for models, for tests without a download. NumPy alone."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

import numpy as np

from sift_core.checks import as_count
from sift_core.errors import InvalidInputError
from sift_core.types import FloatArray

_WORD = re.compile(r"\w+")


class HashingEmbedder:
    """Embeds a text as the sum of one fixed pseudo-random vector for each of its words.

    Texts that share words have a larger cosine, texts that share none about 0 ± 1/√d. Word
    order and case do not count. The same text gives the same vector in every process and
    on every machine.

    Args:
        dimension: d >= 1.

    Raises:
        InvalidInputError: If `dimension` is not an integer >= 1.

    Example:
        >>> embedder = HashingEmbedder(dimension=256)
        >>> cat, cats, tax = embedder.embed_documents(["a cat", "a black cat", "income tax"])
        >>> bool(cat @ cats > 0.7 > 0.3 > cat @ tax)
        True
    """

    def __init__(self, dimension: int = 64) -> None:
        self._dimension = as_count("dimension", dimension, minimum=1)

    @property
    def name(self) -> str:
        """Name with the dimension, since vectors of two dimensions do not mix."""
        return f"hashing-{self._dimension}"

    def embed_query(self, text: str) -> FloatArray:
        """Return the embedding of a question, shape (d,), unit length, float32.

        Raises:
            InvalidInputError: If `text` has no word.
        """
        total = np.zeros(self._dimension)
        for word in _WORD.findall(text.casefold()):
            total += self._word_vector(word)
        length = float(np.linalg.norm(total))
        if length == 0:
            raise InvalidInputError(f"a text must have at least one word, got {text!r}")
        return (total / length).astype(np.float32)

    def embed_documents(self, texts: Sequence[str]) -> FloatArray:
        """Return the embeddings, shape (n, d), unit rows, float32, in the order of `texts`.

        Raises:
            InvalidInputError: If a text has no word, or `texts` is one text.
        """
        if isinstance(texts, str):
            raise InvalidInputError("`texts` must be a sequence of texts, got one text")
        rows = [self.embed_query(text) for text in texts]
        return np.array(rows, dtype=np.float32).reshape(len(rows), self._dimension)

    def _word_vector(self, word: str) -> FloatArray:
        """Return numbers in ±127.5, none of them 0, from as many bytes of a hash."""
        digest = hashlib.shake_128(word.encode()).digest(self._dimension)
        return np.frombuffer(digest, dtype=np.uint8) - 127.5
