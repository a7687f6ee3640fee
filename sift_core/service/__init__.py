"""One HTTP service that clients of OpenAI's, Cohere's, Jina's and TEI's APIs already speak."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sift_core.service.app import create_app
    from sift_core.service.settings import ServiceSettings

__all__ = ["ServiceSettings", "create_app"]

_MODULES = {
    "ServiceSettings": "sift_core.service.settings",
    "create_app": "sift_core.service.app",
}


def __getattr__(name: str) -> Any:
    """Import FastAPI only when something needs it (PEP 562)."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
