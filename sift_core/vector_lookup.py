"""Vectors that a caller looks up by the ids of documents, in a store of any kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sift_core.errors import InvalidInputError


def vectors_by_id(
    vectors: Callable[[list[str]], Mapping[str, Any]], ids: Sequence[str | None]
) -> list[Any]:
    """Return the vector of each of n documents, None where there is none.

    Args:
        vectors: Takes a list of ids, each once, and returns a mapping from ids to vectors, shape
            (d,); ids without a vector are left out. Not called without ids. What it raises passes
            through.
        ids: n ids. A document without one has None.

    Raises:
        InvalidInputError: If `vectors` returns no mapping.
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
    return [None if each is None else found.get(each) for each in ids]
