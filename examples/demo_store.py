"""What `make demo` has set up, for the other examples too: its collection, and the models."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np
from qdrant_client import QdrantClient

from sift_core import CandidateSourceError, Embedder
from sift_core.sources import QdrantSource
from sift_core.types import FloatArray

if TYPE_CHECKING:
    from sift_core.embedders.loading import LoadedEmbedder

ROOT = Path(__file__).parent.parent
MODEL = os.environ.get("SIFT_DEMO_MODEL", "HuggingFaceTB/SmolLM2-135M-Instruct")
EMBEDDER = "all-MiniLM-L6-v2"
COLLECTION = f"demo-{EMBEDDER}"
QUESTION = "What is stochastic depth, and how is relative position bias computed?"


@contextmanager
def demo_client() -> Iterator[QdrantClient]:
    """Yield a client of the demo's Qdrant folder, which is closed at the end of the block.

    Raises:
        CandidateSourceError: If the demo has not run, or the folder is in use.
    """
    from transformers.utils import logging as transformers_logging

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


class RememberingEmbedder:
    """An embedding model that is loaded when a text is new; questions are kept in a file.

    Without ONNX Runtime loading it takes seconds, which is much of a second run. Documents are
    embedded as `sift index` does, in eight bits where that is much quicker, and questions in
    float32.
    """

    def __init__(self, name: str, path: Path) -> None:
        self.name, self._path = name, path

    @cached_property
    def model(self) -> LoadedEmbedder:
        from sift_core.cli.models import load_embedder

        return load_embedder(self.name)

    @cached_property
    def index_model(self) -> LoadedEmbedder:
        from sift_core.cli.models import load_index_embedder

        return load_index_embedder(self.name)

    def load_index_model(self) -> None:
        """Load what embeds documents now. The first time it is exported for ONNX Runtime."""
        _ = self.index_model

    def embed_query(self, text: str) -> FloatArray:
        key = hashlib.sha256(f"{self.name}\0{text}".encode()).hexdigest()
        known = self._known
        if key not in known:
            known[key] = self.model.embed_query(text)
            self._path.parent.mkdir(parents=True, exist_ok=True)
            part = self._path.with_suffix(".part.npz")
            np.savez(part, **known)
            part.replace(self._path)
        return known[key]

    def embed_documents(self, texts: Sequence[str]) -> FloatArray:
        return self.index_model.embed_documents(texts)

    @cached_property
    def _known(self) -> dict[str, FloatArray]:
        try:
            with np.load(self._path) as stored:
                return dict(stored)
        except (OSError, ValueError, BadZipFile, EOFError):  # none yet, or damaged
            return {}


def demo_source(client: QdrantClient, embedder: Embedder) -> QdrantSource:
    """Return the collection as sift_core sees it."""
    return QdrantSource(client, COLLECTION, embedder_name=embedder.name)


def title(metadata: Mapping[str, Any]) -> str:
    """Return what a chunk of the collection is called."""
    name: str = metadata["source"]
    return name
