"""Vectors that a caller looks up by the ids of documents, in a store of any kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from sift_core.checks import short_repr
from sift_core.errors import InvalidInputError


def vectors_by_id(
    vectors: Callable[[list[str]], Mapping[str, Any]], ids: Sequence[str | None]
) -> list[Any]:
    """Return the vector of each of n documents, None where there is none.

    Args:
        vectors: Takes a list of ids, each once, and returns a mapping from ids to vectors, shape
            (d,); ids without a vector are left out. Integers, UUIDs and bytes are taken for the ids
            that they spell. Not called without ids. What it raises passes through.
        ids: n ids. A document without one has None.

    Raises:
        InvalidInputError: If `vectors` returns no mapping, or vectors of other ids alone.

    Example:
        >>> stored = {"timetable": [1.0, 0.1], "prices": [0.2, 1.0]}
        >>> vectors_by_id(lambda ids: stored, ["prices", "unknown"])
        [[0.2, 1.0], None]
    """
    known = list(dict.fromkeys(each for each in ids if each is not None))
    if not known:
        return [None] * len(ids)
    found = vectors(known)
    if not isinstance(found, Mapping):
        raise InvalidInputError(
            f"`vectors` must return a mapping from ids to vectors, got {type(found).__name__}; "
            f"stores return rows in an order of their own, so pair each with its id: "
            f"dict(zip(ids, rows))"
        )
    by_id = {each: found[each] for each in known if each in found}
    if len(by_id) < len(known):
        spelled = {text: key for key in found for text in _spellings(key)}
        by_id |= {each: found[spelled[each]] for each in known if each in spelled}
    if found and not by_id:
        raise InvalidInputError(
            f"`vectors` returned {len(found)} vector(s), but none of the {len(known)} documents "
            f"that it was asked for: it has {short_repr(next(iter(found)))}, and they have "
            f"{short_repr(known[0])}; return the ids that it is called with"
        )
    return [None if each is None else by_id.get(each) for each in ids]


def _spellings(key: object) -> tuple[str, ...]:
    """Return the ids that a key may stand for, as text."""
    if isinstance(key, bytes):
        return (key.decode(errors="replace"),)
    return (str(key), key.hex) if isinstance(key, UUID) else (str(key),)
