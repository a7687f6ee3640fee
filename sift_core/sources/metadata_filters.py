"""Filters by metadata that say the same to each kind of store."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import chain
from typing import Any, TypeAlias

import numpy as np

from sift_core.checks import short_repr
from sift_core.errors import InvalidInputError
from sift_core.protocols import CandidateSource
from sift_core.sources.layouts import METADATA_KEYS
from sift_core.types import Metadata

N_LOOKED_AT = 50  # documents whose keys are shown where a filter lets none pass. A guess.

_NAME = r'(?:[\w-]+|"[^"]+")(?:\[[0-9]{0,9}\])*'
_PATH = re.compile(rf"{_NAME}(?:\.{_NAME})*")  # Qdrant's: author.name, tags[0], "a key"
STEP = re.compile(r'"(?P<quoted>[^"]+)"|(?P<name>[\w-]+)|\[(?P<position>[0-9]*)\]')
Steps: TypeAlias = Sequence[tuple[str, str, str]]
Plain: TypeAlias = str | int | bool
Conditions: TypeAlias = Mapping[str, Plain | Sequence[Plain]]
"""Metadata key: the value that documents must have, or several of which they must have one."""


def filter_for(source: CandidateSource | None, conditions: Conditions | None) -> Any:
    """Return the filter that `source.fetch` takes. Without conditions it is None.

    Args:
        source: The store, or what is around it. Qdrant's kind gets a `models.Filter`, any other a
            function of metadata.
        conditions: All of them must hold.

    Raises:
        InvalidInputError: If a condition has no value or one of another kind, or a key that the
            store cannot have.
    """
    if not conditions:
        return None
    wanted: dict[str, list[Any]] = {
        key: list(value) if isinstance(value, list | tuple | Set) else [value]
        for key, value in conditions.items()
    }
    for key, values in wanted.items():
        if wrong := [value for value in values if not isinstance(value, str | int)]:
            raise InvalidInputError(
                f"`filter` must have texts, whole numbers or booleans, got {short_repr(wrong)} for "
                f"{key[:80]!r}; pass a filter of the store's own kind for others"
            )
    if empty := [key for key, values in wanted.items() if not values]:
        raise InvalidInputError(f"`filter` has no value for {empty}; leave it out")
    kinds = type(innermost(source)).__mro__
    if any(one.__module__.startswith("sift_core.sources.qdrant") for one in kinds):
        return _of_qdrant(wanted)

    rules = [(key, _steps(key), values) for key, values in wanted.items()]

    def holds(metadata: Metadata) -> bool:
        return all(_passes(metadata, *rule) for rule in rules)

    return holds


def innermost(source: Any) -> Any:
    """Return the store behind sources that wrap one another, whose kind of filter they take.

    Of a `CombinedSource` it is the first, since all of it must take the same kind.
    """
    while (wrapped := getattr(source, "wrapped_source", None)) is not None:
        source = wrapped
    return source


def both(one: Any, other: Any) -> Any:
    """Return the filter that passes what two of the same kind pass; None passes everything."""
    if one is None or other is None:
        return other if one is None else one
    if callable(one) and callable(other):
        return lambda metadata: one(metadata) and other(metadata)
    from qdrant_client import models

    return models.Filter(must=[one, other])


def missing_keys_message(conditions: Conditions, metadata: Sequence[Metadata]) -> str | None:
    """Return a message that names the keys that no document has, and those that there are.

    Args:
        conditions: The filter.
        metadata: Metadata of some documents of the store.
    """
    there = sorted({str(key) for one in metadata for key in one})
    missing = [
        key
        for key in conditions
        if not any(True for one in metadata for _ in _all_found(one, _steps(key)))
    ]
    if not missing or not there:
        return None
    names = short_repr([key[:80] for key in missing])
    return f"no document that was looked at has the metadata {names}; there are {short_repr(there)}"


def _passes(metadata: Metadata, key: str, paths: Sequence[Steps], values: Sequence[Any]) -> bool:
    """Return whether a document has one of the values where one of the paths leads."""
    own = metadata.get(key)
    is_plain = len(paths[0]) == 1 and not any(outer in metadata for outer in METADATA_KEYS)
    if is_plain and isinstance(own, str | int):  # the usual case, at once
        return any(_same(own, value) for value in values)
    return any(_same(found, value) for found in _all_found(metadata, paths) for value in values)


def _steps(key: str) -> list[Steps]:
    return [STEP.findall(path) for path in _paths(key)]


def _all_found(metadata: Metadata, paths: Sequence[Steps]) -> Iterator[Any]:
    return chain.from_iterable(_found(metadata, steps) for steps in paths)


def _found(value: Any, steps: Steps) -> Iterator[Any]:
    """Yield what a path leads to, by the rules of Qdrant; of a list at its end, each element."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if not steps:
        yield from value if isinstance(value, list | tuple) else (value,)
        return
    (quoted, name, position), *rest = steps
    if key := quoted or name:
        if isinstance(value, Mapping) and key in value:
            yield from _found(value[key], rest)
    elif isinstance(value, list | tuple):
        for one in value if not position else value[int(position) :][:1]:
            yield from _found(one, rest)


def _same(found: Any, value: Plain) -> bool:
    """Compare as JSON does: true is not 1."""
    return isinstance(found, bool) == isinstance(value, bool) and bool(found == value)


def _of_qdrant(wanted: Mapping[str, Sequence[Plain]]) -> Any:
    from qdrant_client import models

    def any_of(name: str, values: Sequence[Plain]) -> Any:
        return models.Filter(
            should=[
                models.FieldCondition(key=path, match=match)
                for path in _paths(name)
                for match in _matches(values)
            ]
        )

    return models.Filter(must=[any_of(name, values) for name, values in wanted.items()])


def _matches(values: Sequence[Plain]) -> list[Any]:
    """Return Qdrant's matches of which one must hold: one for several texts or whole numbers."""
    from qdrant_client import models

    kinds = set(map(type, values))
    if len(values) > 1 and kinds in ({str}, {int}):
        some: list[Any] = list(values)
        return [models.MatchAny(any=some)]
    return [models.MatchValue(value=value) for value in values]


def _paths(key: str) -> list[str]:
    """Return where the values of a key may stand: there, or where other tools keep metadata."""
    path = _path(key)
    if key.startswith(('"', *(f"{outer}." for outer in METADATA_KEYS))):
        return [path]
    return [path, *(f"{outer}.{path}" for outer in METADATA_KEYS)]


def _path(key: str) -> str:
    """Return a metadata key as Qdrant spells it: what is no path of keys is one key, in quotes."""
    if _PATH.fullmatch(key):
        return key
    if not key or '"' in key:
        raise InvalidInputError(f"`filter` names no metadata key by {key[:80]!r}; correct it")
    return f'"{key}"'
