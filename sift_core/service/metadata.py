"""Metadata of documents: a filter as JSON has it, and the title and address for a reader."""

from __future__ import annotations

from pathlib import PurePath
from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, Field, StrictBool, StrictInt, StrictStr

from sift_core.service.http import FewKeys, Many
from sift_core.types import Metadata

MAX_FILTER_VALUES = 1000  # each is compared with each document
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
