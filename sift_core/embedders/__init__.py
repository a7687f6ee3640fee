"""Embedders for those who have none yet; any object with the protocol's methods will do."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sift_core.embedders.onnx import OnnxEmbedder
    from sift_core.embedders.packaged import MINILM
    from sift_core.embedders.sentence_transformer import SentenceTransformerEmbedder

__all__ = ["MINILM", "OnnxEmbedder", "SentenceTransformerEmbedder"]

_MODULES = {
    "MINILM": "sift_core.embedders.packaged",
    "OnnxEmbedder": "sift_core.embedders.onnx",
    "SentenceTransformerEmbedder": "sift_core.embedders.sentence_transformer",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return __all__
