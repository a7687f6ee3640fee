"""What the bodies of requests share: a wrong one costs no more than a right one.

Pydantic tells each fault of a list or an object. Two million of them took gigabytes and half a
minute, from a body of two megabytes; so the first fault ends the reading of a list, and an object
has a hundred keys at most.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias, TypeVar

from sift_core.choice_rules import ChoiceRules
from sift_core.errors import MissingDependencyError

try:
    from pydantic import BaseModel, BeforeValidator, FailFast, Field, model_validator
except ImportError as error:
    raise MissingDependencyError("fastapi", extra="serve") from error

T = TypeVar("T")
MAX_KEYS = 100
MAX_QUERIES = 16  # each embeds a text and fetches as many candidates as one alone


class _FirstFault(FailFast):
    __hash__ = object.__hash__  # without one it can be no part of a union


Many: TypeAlias = Annotated[list[T], _FirstFault()]
"""A list of which the first fault is told, and no other."""


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


class RuledBody(Body):
    """An object that says what a choice must keep; a metadata key has 200 characters at most."""

    max_tokens: int | None = Field(
        default=None,
        ge=1,
        description="That what is chosen may have together, by the embedder's tokenizer. No text "
        "is truncated.",
    )
    max_per_document: int | None = Field(
        default=None,
        ge=1,
        description='Chunks of one file or page, which their metadata names under "source", '
        '"file_path", "path", "file_name" or "url".',
    )
    newest: str | None = Field(
        default=None,
        max_length=200,
        description="The metadata key of a date (ISO 8601 text or seconds since 1970): of "
        "near-duplicates the newest is chosen.",
    )
    half_life_days: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="With `newest`: what is so many days older than the newest counts half as "
        "much.",
    )

    @property
    def rules(self) -> ChoiceRules:
        """What the choice must keep."""
        return ChoiceRules(
            max_tokens=self.max_tokens,
            max_per_document=self.max_per_document,
            newest=self.newest,
            half_life_days=self.half_life_days,
        )
