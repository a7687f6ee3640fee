"""A filter that no point passes: keys in it that no payload has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import methodcaller
from typing import Any

from qdrant_client import models

from sift_core.checks import short_repr, warn
from sift_core.errors import MissingKeyWarning, SeenFacts
from sift_core.sources.layouts import METADATA_KEYS
from sift_core.sources.qdrant.calls import STORE_ERRORS, Steps

N_LOOKED_AT = 50  # points whose keys are shown. Guess.

_seen = SeenFacts()


def warn_of_missing_keys(
    collection: str, condition: models.Filter | None, found: Sequence[Sequence[Any]]
) -> Steps[None]:
    """Warn if no point was found because the filter names keys that the payloads lack.

    Costs a second request where nothing was found, once for each collection and keys. Tools differ
    in where they put metadata: LangChain's key of "year" is "metadata.year".

    Args:
        collection: Its name.
        condition: The filter of the search.
        found: The points of each request.
    """
    if condition is None or any(found):
        return
    keys = sorted(set(_keys_of(condition)))
    if not keys or not _seen.add(f"{collection}: {keys}"):
        return
    ask = methodcaller("scroll", collection, limit=N_LOOKED_AT, with_payload=True)
    try:
        points, _ = yield ask
    except STORE_ERRORS:  # the search itself did not fail
        return
    there = sorted({key for point in points for key in _keys_in(point.payload or {})})
    outer = {key.partition(".")[0] for key in there}
    missing = [key for key in keys if key not in there and not _may_lead_on(key, there, outer)]
    if missing and there:
        warn(
            f"no point of collection {collection!r} passes the filter, and none of "
            f"{len(points)} points has the key {short_repr(missing)}; there are "
            f"{short_repr(there)}",
            MissingKeyWarning,
        )


def _may_lead_on(key: str, there: Sequence[str], outer: set[str]) -> bool:
    """Return whether a key leads into an object or list that a payload has under another key."""
    first = key.partition(".")[0].partition("[")[0].strip('"')
    if first in METADATA_KEYS:
        second = ".".join(key.split(".")[:2]).partition("[")[0]
        return second in there
    return first in outer


def _keys_of(condition: Any) -> Iterator[str]:
    """Yield the keys of the payload that a filter names, of any depth."""
    for kind in ("must", "should", "must_not"):
        conditions = getattr(condition, kind, None) or ()
        for one in conditions if isinstance(conditions, list | tuple) else (conditions,):
            yield from _keys_of(one)
    if (at_least := getattr(condition, "min_should", None)) is not None:
        for one in at_least.conditions:
            yield from _keys_of(one)
    if isinstance(key := getattr(condition, "key", None), str):
        yield key
    if (nested := getattr(condition, "nested", None)) is not None:
        yield nested.key


def _keys_in(payload: Mapping[str, Any]) -> Iterator[str]:
    """Yield the keys of a payload, those of a metadata object with its name before them."""
    for key, value in payload.items():
        if key in METADATA_KEYS and isinstance(value, Mapping):
            yield from (f"{key}.{inner}" for inner in value)
        elif not key.startswith("_"):  # kept by tools for themselves
            yield key
