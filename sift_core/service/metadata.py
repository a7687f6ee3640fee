"""Metadata of documents: filters from JSON for a store, and the title and address for a reader."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import PurePath
from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, Field, StrictBool, StrictInt, StrictStr

from sift_core.checks import short_repr
from sift_core.errors import InvalidInputError
from sift_core.protocols import CandidateSource
from sift_core.service.http import FewKeys, Many
from sift_core.sources.layouts import METADATA_KEYS
from sift_core.types import Metadata

MAX_FILTER_VALUES = 1000  # each is compared with each document
_NAME = r'(?:[\w-]+|"[^"]+")(?:\[[0-9]{0,9}\])*'
_PATH = re.compile(rf"{_NAME}(?:\.{_NAME})*")  # Qdrant's: author.name, tags[0], "a key"
_STEP = re.compile(r'"(?P<quoted>[^"]+)"|(?P<name>[\w-]+)|\[(?P<position>[0-9]*)\]')
Steps: TypeAlias = Sequence[tuple[str, str, str]]
Plain: TypeAlias = StrictStr | StrictInt | StrictBool


def _check_lengths(conditions: Any) -> Any:
    """Refuse a long list before Pydantic tries each of its values as each type."""
    for key, values in conditions.items() if isinstance(conditions, dict) else ():
        if isinstance(values, list) and len(values) > MAX_FILTER_VALUES:
            raise ValueError(f"{key[:80]!r} must have at most {MAX_FILTER_VALUES:,} values")
    return conditions


Filter = Annotated[
    dict[str, Plain | Many[Plain]],
    BeforeValidator(_check_lengths),
    FewKeys,
    Field(
        description="Metadata key: the value that documents must have, or a list of several. A "
        'dot leads into an object, "authors[].name" into each one of a list, and quotes keep the '
        'dots of a key. A key is also looked for in an object "metadata" or "meta", unless it '
        "begins with a quote."
    ),
]
"""What a client sends. All of its conditions must hold."""


def filter_for(source: CandidateSource | None, conditions: Filter | None) -> Any:
    """Return the filter that `source.fetch` takes. Without conditions it is None.

    Args:
        source: The store. Qdrant's kind gets a `models.Filter`, any other a function of metadata.
        conditions: All of them must hold.

    Raises:
        InvalidInputError: If a condition has no value, or a key that the store cannot have.
    """
    if not conditions:
        return None
    wanted = {
        key: [value] if isinstance(value, str | int) else list(value)
        for key, value in conditions.items()
    }
    if empty := [key for key, values in wanted.items() if not values]:
        raise InvalidInputError(f"`filter` has no value for {empty}; leave it out")
    if type(source).__module__.startswith("sift_core.sources.qdrant"):
        return _of_qdrant(wanted)

    paths = [(_steps(key), values) for key, values in wanted.items()]

    def holds(metadata: Metadata) -> bool:
        return all(
            any(_same(found, value) for found in _all_found(metadata, steps) for value in values)
            for steps, values in paths
        )

    return holds


def missing_keys(conditions: Filter, metadata: Sequence[Metadata]) -> str | None:
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


def _steps(key: str) -> list[Steps]:
    return [_STEP.findall(path) for path in _paths(key)]


def _all_found(metadata: Metadata, paths: Sequence[Steps]) -> Iterator[Any]:
    return chain.from_iterable(_found(metadata, steps) for steps in paths)


def _found(value: Any, steps: Steps) -> Iterator[Any]:
    """Yield what a path leads to, by the rules of Qdrant; of a list at its end, each element."""
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
        matches = [models.MatchValue(value=value) for value in values]
        return models.Filter(
            should=[
                models.FieldCondition(key=path, match=match)
                for path in _paths(name)
                for match in matches
            ]
        )

    return models.Filter(must=[any_of(name, values) for name, values in wanted.items()])


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


def title_and_url(metadata: Metadata, document_id: str) -> dict[str, str]:
    """Return the title and the address of a document as they stand in answers.

    The address is the one on the web, else the file, else the id. A document without a title is
    called by its file's name and headings.
    """
    places = [metadata.get(key) for key in ("url", "source")]
    url = next((place for place in places if isinstance(place, str) and place), document_id)
    title = metadata.get("title")
    if not isinstance(title, str) or not title:
        heading = metadata.get("heading") or ()
        headings = [heading] if isinstance(heading, str) else [str(one) for one in heading]
        title = " > ".join([PurePath(url).name or document_id, *headings])
    return {"title": title, "url": url}
