"""Metadata of documents: filters from JSON for a store, and the title and address for a reader."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import Annotated, Any, TypeAlias

from pydantic import Field, StrictBool, StrictInt, StrictStr

from sift_core.errors import InvalidInputError
from sift_core.protocols import CandidateSource
from sift_core.service.http import FewKeys, Many
from sift_core.types import Metadata

MAX_VALUES = 1000  # each is compared with each document
_NAME = r'(?:[\w-]+|"[^"]+")(?:\[[0-9]*\])*'
_PATH = re.compile(rf"{_NAME}(?:\.{_NAME})*")  # Qdrant's: author.name, tags[0], "a key"
Plain: TypeAlias = StrictStr | StrictInt | StrictBool
Filter = Annotated[
    dict[str, Plain | Annotated[Many[Plain], Field(max_length=MAX_VALUES)]],
    FewKeys,
    Field(description="Metadata key: the value that documents must have, or a list of several."),
]
"""What a client sends. All of its conditions must hold."""


def filter_for(source: CandidateSource | None, conditions: Filter | None) -> Any:
    """Return the filter that `source.fetch` takes; None for no restriction.

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
    return _predicate(wanted)


def _predicate(wanted: Mapping[str, Sequence[Plain]]) -> Callable[[Metadata], bool]:
    def holds(metadata: Metadata) -> bool:
        return all(
            any(_same(metadata.get(key), value) for value in values)
            for key, values in wanted.items()
        )

    return holds


def _same(found: Any, value: Plain) -> bool:
    """Compare as JSON does: true is not 1; of a list, any element counts, as in Qdrant."""
    if isinstance(found, list | tuple):
        return any(_same(one, value) for one in found)
    return isinstance(found, bool) == isinstance(value, bool) and bool(found == value)


def _of_qdrant(wanted: Mapping[str, Sequence[Plain]]) -> Any:
    from qdrant_client import models

    conditions: list[Any] = []
    for name, values in wanted.items():
        key = _path(name)
        matches: list[Any] = [
            models.FieldCondition(key=key, match=models.MatchValue(value=value)) for value in values
        ]
        conditions.append(matches[0] if len(matches) == 1 else models.Filter(should=matches))
    return models.Filter(must=conditions)


def _path(key: str) -> str:
    """Return a metadata key as Qdrant spells it: what is no path of keys is one key, in quotes."""
    if _PATH.fullmatch(key):
        return key
    if not key or '"' in key:
        raise InvalidInputError(f"`filter` names no metadata key by {key[:80]!r}; correct it")
    return f'"{key}"'


def address_of(metadata: Metadata, document_id: str) -> str:
    """Return where a document is: its address on the web, else its file, else its id."""
    for key in ("url", "source"):
        if isinstance(metadata.get(key), str) and metadata[key]:
            return str(metadata[key])
    return document_id


def title_of(metadata: Metadata, document_id: str) -> str:
    """Return the title of a document, else its file's name and headings."""
    title = metadata.get("title")
    if isinstance(title, str) and title:
        return title
    heading = metadata.get("heading") or ()
    titles = [heading] if isinstance(heading, str) else [str(one) for one in heading]
    file = PurePath(address_of(metadata, document_id)).name or document_id
    return " > ".join([file, *titles])


def title_and_url(metadata: Metadata, document_id: str) -> dict[str, str]:
    """Return both as they stand in answers."""
    return {
        "title": title_of(metadata, document_id),
        "url": address_of(metadata, document_id),
    }
