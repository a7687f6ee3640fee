"""Selectors and kernels of sift_core as plain values, for a pipeline's YAML, and back."""

from __future__ import annotations

from dataclasses import fields
from importlib import import_module
from typing import Any

from sift_core import InvalidInputError

_CORE = import_module("sift_core")
_OURS: dict[str, Any] = {
    f"sift_core.{name}": getattr(_CORE, name)
    for name in _CORE.__all__
    if name.endswith(("Selector", "Kernel"))
}


def to_plain(value: Any) -> Any:
    """Return a selector, or a setting of one, in values that YAML takes.

    Raises:
        InvalidInputError: If it is neither of sift_core nor has a `to_dict`.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    name = type(value).__name__
    kind = f"sift_core.{name}"
    if _OURS.get(kind) is type(value):
        settings = {field.name: to_plain(getattr(value, field.name)) for field in fields(value)}
        return {"type": kind, "init_parameters": settings}
    if hasattr(value, "to_dict"):
        return value.to_dict()
    raise InvalidInputError(
        f"a selector must be of sift_core or have `to_dict` and `from_dict` to be saved with a "
        f"pipeline, got {name}"
    )


def from_plain(value: Any) -> Any:
    """Return what `to_plain` was given; objects that are not of sift_core are left to Haystack."""
    kind = value.get("type") if isinstance(value, dict) else None
    if not isinstance(kind, str) or kind not in _OURS:
        return value
    settings = value.get("init_parameters", {})
    return _OURS[kind](**{name: from_plain(setting) for name, setting in settings.items()})
