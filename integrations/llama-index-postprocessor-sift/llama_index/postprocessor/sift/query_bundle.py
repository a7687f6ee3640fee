"""A query that says how it wants to be answered."""

from __future__ import annotations

from dataclasses import dataclass

from llama_index.core.schema import QueryBundle

from sift_core import AnswerMode, InvalidInputError


@dataclass
class SIFTQueryBundle(QueryBundle):
    """A `QueryBundle` with a mode for this query alone, in a query engine with SIFTSynthesizer.

    Chat engines and query transformations write queries of their own, which have no mode.

    Args:
        mode: "auto", "base", "context", "fine_tune" or "both"; None for the synthesizer's.

    Example:
        >>> SIFTQueryBundle("How do bees find home?", mode="fine_tune").mode
        'fine_tune'
    """

    mode: str | None = None


def wanted_mode(query: QueryBundle, *, default: str, of_call: str | None = None) -> str:
    """Return the mode of a call, else of its query, else the default.

    Raises:
        InvalidInputError: If there is no such mode.
    """
    asked = of_call
    if asked is None and isinstance(query, SIFTQueryBundle):
        asked = query.mode
    return checked_mode(default if asked is None else asked)


def checked_mode(mode: str) -> str:
    """Return `mode`.

    Raises:
        InvalidInputError: If there is no such mode.
    """
    known = [each.value for each in AnswerMode]
    if mode not in known:
        raise InvalidInputError(f"`mode` must be one of {known}, got {mode!r}")
    return mode
