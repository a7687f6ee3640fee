"""Which chosen chunks are like an earlier one, or nearly its copy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sift_core.types import FloatArray

# "Redundant" in this library: two chunks this close say mostly the same.
REDUNDANT_COSINE = 0.8

# Versions of one text by MiniLM. Guessed by eye.
COPY_COSINE = 0.95


@dataclass(frozen=True, kw_only=True)
class Repeat:
    """The earlier chunk that a chunk is most like.

    Args:
        rank: Of the earlier chunk, from 1.
        cosine: Of the two, from the lower limit of `repeats_of` on.
        is_copy: Whether it hardly differs: its cosine reaches the upper limit of `repeats_of`.
        mark: The sign and the rank, such as "≈3".
    """

    rank: int
    cosine: float
    is_copy: bool
    mark: str


def repeats_of(embeddings: FloatArray, *, unrelated: float = 0.0) -> list[Repeat | None]:
    """Return for each chunk the earlier one that it repeats, or None.

    Args:
        embeddings: In order of choice, shape (k, d), no row all zero.
        unrelated: Cosine of unrelated texts. Above 0.5 the limits 0.8 and 0.95 rise with it, to
            3/5 and 9/10 of the way from it to 1. Default: 0, so the limits stay.
    """
    redundant = max(REDUNDANT_COSINE, unrelated + 0.6 * (1 - unrelated))
    copy = max(COPY_COSINE, unrelated + 0.9 * (1 - unrelated))
    rows = np.asarray(embeddings, dtype=np.float64)
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    cosines = np.minimum(rows @ rows.T, 1.0)
    found: list[Repeat | None] = [None] * len(rows)
    for i in range(1, len(rows)):
        rank, cosine = int(np.argmax(cosines[i, :i])) + 1, float(cosines[i, :i].max())
        is_copy = cosine >= copy
        if cosine >= redundant:
            mark = f"{'≡' if is_copy else '≈'}{rank}"
            found[i] = Repeat(rank=rank, cosine=cosine, is_copy=is_copy, mark=mark)
    return found
