"""What the bodies of requests share: a wrong one costs no more than a right one.

Pydantic tells each fault of a list or an object. Two million of them took gigabytes and half a
minute, from a body of two megabytes; so the first fault ends the reading of a list, and an object
has a hundred keys at most.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias, TypeVar

from sift_core.errors import MissingDependencyError
from sift_core.option_fields import OptionsModel

try:
    from pydantic import BaseModel, BeforeValidator, FailFast, model_validator
except ImportError as error:
    raise MissingDependencyError("fastapi", extra="serve") from error

T = TypeVar("T")
MAX_KEYS = 100
MAX_QUERIES = 16  # each embeds a text and fetches as many candidates as one alone


class _FirstFault(FailFast):
    __hash__ = object.__hash__  # without one it can be no part of a union


Many: TypeAlias = Annotated[list[T], _FirstFault()]
"""A list of which only the first fault is reported."""


def check_keys(value: Any) -> Any:
    """Refuse an object with more keys than any request has."""
    if isinstance(value, dict) and len(value) > MAX_KEYS:
        raise ValueError(f"must have at most {MAX_KEYS} keys, got {len(value):,}")
    return value


FewKeys = BeforeValidator(check_keys)


class Body(BaseModel):
    """An object in a request."""

    @model_validator(mode="before")
    @classmethod
    def _check_keys(cls, value: Any) -> Any:
        return check_keys(value)


class ChoiceBody(Body, OptionsModel):
    """An object with options of a choice among its fields, by `with_option_fields`."""
