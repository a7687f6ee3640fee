"""A filter that no point passes: keys in it that no payload has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from operator import methodcaller
from typing import Any

from qdrant_client import models

from sift_core.checks import short_repr, warn
from sift_core.errors import MissingKeyWarning
from sift_core.sources.layouts import METADATA_KEYS
from sift_core.sources.metadata_filters import N_LOOKED_AT, STEP
from sift_core.sources.qdrant.calls import STORE_ERRORS, Steps, run

MOST_WARNINGS = 100  # a process; clients of a service may send any number of keys

_seen: set[tuple[str, ...]] = set()


def warn_of_missing_keys(client: Any, collection: str, condition: models.Filter | None) -> None:
    """Warn if a filter that no point passed names keys that the payloads lack.

    Costs a request, once for the same collection and keys. Tools differ in where they put
    metadata: LangChain's key of "year" is "metadata.year".

    Args:
        client: A blocking `QdrantClient`.
        collection: Its name.
        condition: The filter of a search that found nothing.

    Example:
        >>> from qdrant_client import QdrantClient
        >>> client = QdrantClient(":memory:")
        >>> warn_of_missing_keys(client, "handbook", None)  # no filter, no warning
    """
    run(client, missing_keys_steps(collection, condition, ()))


def missing_keys_steps(
    collection: str, condition: models.Filter | None, found: Sequence[Sequence[Any]]
) -> Steps[None]:
    """Warn as `warn_of_missing_keys` does, in steps, if no request found a point.

    Args:
        collection: Its name.
        condition: The filter of the search.
        found: The points of each request.
    """
    if condition is None or any(found):
        return
    keys = sorted(_missing(condition, lambda key: False))
    fact = (collection, *keys)
    if not keys or fact in _seen or len(_seen) >= MOST_WARNINGS:
        return
    _seen.add(fact)
    ask = methodcaller("scroll", collection, limit=N_LOOKED_AT, with_payload=True)
    try:
        points, _ = yield ask
    except STORE_ERRORS:  # the search itself did not fail
        return
    there = sorted({key for point in points for key in _keys_in(point.payload or {})})
    missing = sorted(_missing(condition, partial(_leads_on, there)))
    shown = [key for key in there if not key.startswith("_")]  # others are for the tools that write
    if missing and shown:
        warn(
            f"no point of collection {collection!r} passes the filter, and none of "
            f"{len(points)} points has the key {short_repr(missing)}; there are "
            f"{short_repr(shown)}",
            MissingKeyWarning,
        )


def _missing(condition: Any, is_there: Callable[[str], bool]) -> set[str]:
    """Return the keys that a filter names and no payload has.

    Of alternatives ("should") they are missing only if each has such a key.
    """
    names = [getattr(condition, "key", None), getattr(condition, "nested", None)]
    keys = [one if isinstance(one, str) else getattr(one, "key", None) for one in names]
    missing = {key for key in keys if key is not None and not is_there(key)}
    for kind in ("must", "must_not"):
        for one in _listed(getattr(condition, kind, None)):
            missing |= _missing(one, is_there)
    at_least = getattr(condition, "min_should", None)
    for group in (getattr(condition, "should", None), getattr(at_least, "conditions", None)):
        lacking = [_missing(one, is_there) for one in _listed(group)]
        if all(lacking):
            missing |= set().union(*lacking)
    return missing


def _listed(conditions: Any) -> Sequence[Any]:
    if isinstance(conditions, list | tuple):
        return conditions
    return () if conditions is None else (conditions,)


def _leads_on(there: Sequence[str], key: str) -> bool:
    """Return whether a key is there, or leads into an object or a list that is."""
    steps = [quoted or name for quoted, name, _ in STEP.findall(key) if quoted or name]
    first = ".".join(steps[: 2 if steps[:1] and steps[0] in METADATA_KEYS else 1])
    return key in there or first in there


def _keys_in(payload: Mapping[str, Any]) -> Iterator[str]:
    """Yield the keys of a payload, those of a metadata object with its name before them."""
    for key, value in payload.items():
        if key in METADATA_KEYS and isinstance(value, Mapping):
            yield from (f"{key}.{inner}" for inner in value)
        else:
            yield key
