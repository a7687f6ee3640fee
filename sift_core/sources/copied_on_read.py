"""Metadata of hits that nobody may change for others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

from sift_core.types import Metadata


class CopiedOnRead(Sequence[Metadata]):
    """Mappings of which a reader gets a copy to change, made when it is first read.

    Of some hundred candidates a dozen are looked at; copying the others would cost a fetch
    from a fast index a tenth of its time.

    Args:
        originals: Mappings that nobody changes.
    """

    def __init__(self, originals: Sequence[Metadata]) -> None:
        self._originals = originals
        self._copies: dict[int, Metadata] = {}

    def __len__(self) -> int:
        """Return the number of mappings."""
        return len(self._originals)

    @overload
    def __getitem__(self, position: int) -> Metadata: ...

    @overload
    def __getitem__(self, position: slice) -> tuple[Metadata, ...]: ...

    def __getitem__(self, position: int | slice) -> Metadata | tuple[Metadata, ...]:
        """Return the copy at a position, always the same one; a tuple of them for a slice."""
        which = range(len(self))[position]
        if isinstance(which, range):
            return tuple(self[i] for i in which)
        if which not in self._copies:
            self._copies.setdefault(which, dict(self._originals[which]))  # one for all threads
        return self._copies[which]

    def __eq__(self, other: object) -> bool:
        """Return whether another sequence has equal mappings in the same order."""
        if not isinstance(other, Sequence):
            return NotImplemented
        return tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]  # what it holds may be changed
