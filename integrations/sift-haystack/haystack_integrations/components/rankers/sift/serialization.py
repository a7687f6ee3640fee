"""Selectors of sift_core as plain values, for a pipeline's YAML, and back."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from sift_core import (
    ContextSelector,
    InvalidInputError,
    LazySIFTSelector,
    LinearKernel,
    MMRSelector,
    NearestNeighborSelector,
    RBFKernel,
    SIFTSelector,
)

_PREFIX = "sift_core."
_OURS: dict[str, Any] = {
    each.__name__: each
    for each in (
        ContextSelector,
        LazySIFTSelector,
        LinearKernel,
        MMRSelector,
        NearestNeighborSelector,
        RBFKernel,
        SIFTSelector,
    )
}


def to_plain(value: Any) -> Any:
    """Return a selector, or a setting of one, in values that YAML takes.

    Raises:
        InvalidInputError: If it is neither of sift_core nor has a `to_dict`.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    name = type(value).__name__
    if _OURS.get(name) is type(value):
        settings = {field.name: to_plain(getattr(value, field.name)) for field in fields(value)}
        return {"type": _PREFIX + name, "init_parameters": settings}
    if hasattr(value, "to_dict"):
        return value.to_dict()
    raise InvalidInputError(
        f"a selector must be of sift_core or have `to_dict` and `from_dict` to be saved with a "
        f"pipeline, got {name}"
    )


def from_plain(value: Any) -> Any:
    """Return what `to_plain` was given; what is not of sift_core is left for Haystack."""
    kind = value.get("type") if isinstance(value, dict) else None
    if not isinstance(kind, str) or kind.removeprefix(_PREFIX) not in _OURS:
        return value
    settings = value.get("init_parameters", {})
    make = _OURS[kind.removeprefix(_PREFIX)]
    return make(**{name: from_plain(setting) for name, setting in settings.items()})
