"""What `make demo` has set up, for the other examples: its collection, and the models."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from qdrant_client import QdrantClient
from transformers.utils import logging as transformers_logging

from sift_core import CandidateSourceError
from sift_core.embedders import MINILM, SentenceTransformerEmbedder
from sift_core.sources import QdrantSource

ROOT = Path(__file__).parent.parent
MODEL = os.environ.get("SIFT_DEMO_MODEL", "HuggingFaceTB/SmolLM2-135M-Instruct")
COLLECTION = f"demo-{MINILM}"
QUESTION = "What is stochastic depth, and how is relative position bias computed?"


@contextmanager
def demo_client() -> Iterator[QdrantClient]:
    """Yield a client of the demo's Qdrant folder, which is closed at the end of the block.

    Raises:
        CandidateSourceError: If the demo has not run, or the folder is in use.
    """
    transformers_logging.disable_progress_bar()
    folder = Path(os.environ.get("SIFT_DEMO_CACHE", ROOT / ".cache/demo")) / "qdrant"
    if not folder.is_dir():
        raise CandidateSourceError(f"there is no {folder} yet; run `make demo` once")
    try:
        client = QdrantClient(path=str(folder))
    except RuntimeError as error:  # another process holds it
        raise CandidateSourceError(f"{folder} is in use: {error}; wait for that run") from error
    try:
        if not client.collection_exists(COLLECTION):
            raise CandidateSourceError(f"{folder} has no {COLLECTION!r}; run `make demo` once")
        yield client
    finally:
        client.close()


def demo_source(client: QdrantClient, embedder: SentenceTransformerEmbedder) -> QdrantSource:
    """Return the collection as sift_core sees it."""
    return QdrantSource(client, COLLECTION, embedder_name=embedder.name)


def title(metadata: Mapping[str, Any]) -> str:
    """Return what a chunk of the collection is called."""
    name: str = metadata["source"]
    return name
