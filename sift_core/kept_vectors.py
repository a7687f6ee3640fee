"""Vectors of texts that were embedded before, as many as fit into so many bytes."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from hashlib import blake2b
from itertools import count
from typing import Any, TypeAlias

import numpy as np

from sift_core.checks import as_count
from sift_core.errors import InvalidInputError
from sift_core.types import FloatArray

Vectors: TypeAlias = Sequence[Any] | FloatArray

KEPT_BYTES = 64 * 2**20  # 20,000 vectors of 384 numbers, or 5,000 of 1,536, in float64
_OVERHEAD = 300  # bytes that a key and an array take beside the numbers


class KeptVectors:
    """What models made of texts; the least recently used is dropped first.

    A text is embedded once a model as long as its vector is kept; one that is not finite or too
    large is not. Models are told apart as objects, not by name. Any number of threads may use it at
    once; two that ask for one new text at the same time may both embed it.

    Args:
        max_bytes: Of all vectors together, >= 1.

    Raises:
        InvalidInputError: If `max_bytes` is not an integer >= 1.
    """

    def __init__(self, max_bytes: int = KEPT_BYTES) -> None:
        self._max_bytes = as_count("max_bytes", max_bytes, minimum=1)
        self._n_bytes = 0
        self._rows: OrderedDict[bytes, FloatArray] = OrderedDict()
        # The number of each model: the address of one that is gone is another's later.
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
        """Return a vector a text, read-only, those that are not kept from one call of `embed`.

        Args:
            model: Whose vectors they are. Of an object that takes no weak reference, as of a
                class with `__slots__`, none is found again.
            texts: Any number; equal ones are embedded once.
            embed: Returns a vector, shape (d,), for each of its texts. Not called without any.

        Raises:
            InvalidInputError: If `embed` returns another number of vectors.
        """
        keys, found, missing = self._looked_up(model, texts)
        if missing:
            self._keep(found, missing, embed(list(missing.values())))
        return [found[key] for key in keys]

    async def aembedded(
        self,
        model: object,
        texts: Sequence[str],
        embed: Callable[[list[str]], Awaitable[Vectors]],
    ) -> list[FloatArray]:
        """Return what `embedded` does, awaiting `embed`."""
        keys, found, missing = self._looked_up(model, texts)
        if missing:
            self._keep(found, missing, await embed(list(missing.values())))
        return [found[key] for key in keys]

    def _looked_up(
        self, model: object, texts: Sequence[str]
    ) -> tuple[list[bytes], dict[bytes, FloatArray], dict[bytes, str]]:
        """Return the key of each text, the rows that are kept, and the texts of the others."""
        with self._mutex:
            owner = self._number_of(model).to_bytes(8, "big")
            keys = [
                owner + blake2b(text.encode("utf-8", "surrogatepass"), digest_size=20).digest()
                for text in texts
            ]
            found = {key: self._rows[key] for key in keys if key in self._rows}
            for key in found:
                self._rows.move_to_end(key)
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in found}
        return keys, found, missing

    def _number_of(self, model: object) -> int:
        known = self._numbers.get(id(model))
        if known is None or known[0]() is not model:
            key, numbers = id(model), self._numbers
            try:
                alive = weakref.ref(model, lambda _: numbers.pop(key, None))
            except TypeError:
                return next(self._next_number)
            known = numbers[key] = alive, next(self._next_number)
        return known[1]

    def _keep(
        self, found: dict[bytes, FloatArray], missing: dict[bytes, str], rows: Vectors
    ) -> None:
        if len(rows) != len(missing):
            raise InvalidInputError(
                f"the embedding model must give one vector a text, got {len(rows)} for "
                f"{len(missing)} texts"
            )
        # Copies: a view would keep its whole batch.
        new = {key: np.array(row) for key, row in zip(missing, rows, strict=True)}
        for row in new.values():
            row.setflags(write=False)  # others get the same
        found |= new
        with self._mutex:
            for key, row in new.items():
                n_bytes = row.nbytes + _OVERHEAD
                if key not in self._rows and n_bytes <= self._max_bytes and _is_finite(row):
                    self._rows[key] = row
                    self._n_bytes += n_bytes
            while self._n_bytes > self._max_bytes:
                _, oldest = self._rows.popitem(last=False)
                self._n_bytes -= oldest.nbytes + _OVERHEAD


def _is_finite(row: FloatArray) -> bool:
    """Return whether a vector can be used; what is wrong with another is said by who uses it."""
    return bool(np.issubdtype(row.dtype, np.number) and np.isfinite(row).all())
