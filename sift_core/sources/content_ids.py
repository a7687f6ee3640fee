"""The id under which an index stores a document: a name for all that the document holds."""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Mapping
from typing import Any

from sift_core.checks import check_text
from sift_core.errors import InvalidInputError
from sift_core.types import Document, Metadata

# Drawn once at random. Another value gives every stored document another id.
_NAMESPACE = uuid.UUID("c86f83b2-0a6c-4d4a-9d01-3396e7ba8253")
_JSON = json.JSONEncoder(sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_VERSION = "5"  # the 15th character of a UUID


def content_id(document: Document) -> str:
    """Return a UUID, as text, made from a document's id, text and metadata.

    Version 5 (SHA-1) of their canonical JSON, so equal documents have equal ids in every
    process and on every machine, whatever the order of the metadata's keys. Lists and tuples
    are equal; 1, 1.0, True and "1" are four values. Takes time linear in the document.

    Raises:
        InvalidInputError: If JSON cannot give the document back as it is: metadata with
            keys that are not strings, numbers that are not finite, values of other types
            than str, int, float, bool, None, list, tuple and dict; integers of more digits than
            Python converts (4300 unless set otherwise); text that UTF-8 cannot hold.

    Example:
        >>> content_id(Document(document_id="timetable", text="The ferry sails at nine."))
        '6735e599-5091-55e4-b99d-c0a834f54157'
    """
    check_text("document_id", document.document_id)
    place = f"document {document.document_id!r}"
    check_text(f"text of {place}", document.text)
    if not isinstance(document.metadata, Mapping):
        raise InvalidInputError(
            f"the metadata of {place} must be a mapping, got {type(document.metadata).__name__}"
        )
    metadata = dict(document.metadata)
    try:
        _check_value(metadata, f"metadata of {place}")
        return _id_of(document.document_id, document.text, metadata)
    except InvalidInputError:
        raise
    except ValueError as error:  # an integer of thousands of digits
        raise InvalidInputError(
            f"the metadata of {place} holds a number that is too long for JSON: {error}; store it "
            f"as text"
        ) from error
    except RecursionError as error:
        raise InvalidInputError(
            f"the metadata of {place} is nested too deeply for JSON, or contains itself; flatten it"
        ) from error


def is_content_of(stored_under: str, document_id: str, text: str, metadata: Metadata) -> bool:
    """Return whether a document is what was stored under an id; true for an id of another kind."""
    if stored_under[14:15] != _VERSION:
        return True
    try:
        return _id_of(document_id, text, metadata) == stored_under
    except (TypeError, ValueError, RecursionError):  # nothing that was ever stored
        return False


def _id_of(document_id: str, text: str, metadata: Metadata) -> str:
    return str(uuid.uuid5(_NAMESPACE, _JSON.encode([document_id, text, metadata])))


def _check_value(value: Any, place: str) -> None:
    """Refuse what JSON would change or could not write; `place` is where `value` was found.

    Raises:
        InvalidInputError: Naming the place.
        RecursionError: If `value` contains itself.
    """
    if isinstance(value, str):
        check_text(place, value)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidInputError(
                f"`{place}` must be finite, got {value!r}; JSON has no such number: "
                f"leave the key out or store None"
            )
    elif isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise InvalidInputError(
                    f"`{place}` must have strings as keys, got {key!r} of type "
                    f"{type(key).__name__}; a JSON store would give it back as text"
                )
            check_text(f"a key in {place}", key)
            _check_value(inner, f"{place}[{key!r}]")
    elif isinstance(value, list | tuple):
        for position, inner in enumerate(value):
            _check_value(inner, f"{place}[{position}]")
    elif not (value is None or isinstance(value, int)):
        raise InvalidInputError(
            f"`{place}` must be something that JSON can hold, got "
            f"{type(value).__module__}.{type(value).__qualname__}; convert it, for instance "
            f"a date or a path with str(), an array with .tolist()"
        )
