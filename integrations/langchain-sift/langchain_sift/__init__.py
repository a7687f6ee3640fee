"""SIFT for LangChain. Importing this loads no vector store and no torch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from langchain_sift.compressor import SIFTCompressor
from langchain_sift.embedder import LangChainEmbedder
from langchain_sift.retriever import SIFTRetriever
from langchain_sift.sources import VectorStoreSource

if TYPE_CHECKING:
    from langchain_sift.answer import SIFTAnswer
    from langchain_sift.chat import ChatSIFT

__all__ = [
    "ChatSIFT",
    "LangChainEmbedder",
    "SIFTAnswer",
    "SIFTCompressor",
    "SIFTRetriever",
    "VectorStoreSource",
]

_MODULES = {"ChatSIFT": "chat", "SIFTAnswer": "answer"}  # of use with the extra `answer` alone


def __getattr__(name: str) -> Any:
    """Import what needs a language model only when it is asked for (PEP 562)."""
    if name in _MODULES:
        return getattr(import_module(f"langchain_sift.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
