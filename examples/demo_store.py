"""What `make demo` has set up, for the other examples too: its collection, and the models."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from qdrant_client import QdrantClient

from sift_core import CandidateSourceError, Embedder, InvalidInputError
from sift_core.cli.models import load_embedder, load_index_embedder
from sift_core.documents import find_files, index_documents, read_found
from sift_core.documents.chunk_length import chunker_for
from sift_core.documents.indexing import IndexingReport
from sift_core.sources import QdrantSource

ROOT = Path(__file__).parent.parent
MODEL = os.environ.get("SIFT_DEMO_MODEL", "HuggingFaceTB/SmolLM2-135M-Instruct")
EMBEDDER = "all-MiniLM-L6-v2"
COLLECTION = f"demo-{EMBEDDER}"
QUESTION = (
    "The grab crane on the salt quay has stopped in the middle of the night. Which pager do I call?"
)


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
    with open_qdrant(folder) as client:
        if not client.collection_exists(COLLECTION):
            raise CandidateSourceError(f"{folder} has no {COLLECTION!r}; run `make demo` once")
        yield client


@contextmanager
def open_qdrant(folder: Path) -> Iterator[QdrantClient]:
    """Yield a client of a folder, which is closed at the end of the block.

    Raises:
        CandidateSourceError: If the folder is in use, or cannot be read or written.
    """
    try:
        client = QdrantClient(path=str(folder))
    except (RuntimeError, OSError, sqlite3.Error) as error:  # the first: another process holds it
        raise CandidateSourceError(
            f"cannot open Qdrant at {folder}: {error}; wait for the other run, or pass another "
            f"--cache"
        ) from error
    try:
        yield client
    finally:
        client.close()


def index_folder(client: QdrantClient, folder: Path) -> IndexingReport:
    """Make the demo's collection equal to a folder's files, as `sift index` does.

    Files are named relative to the folder. Only what is new is embedded.

    Raises:
        CandidateSourceError: If Qdrant fails.
        InvalidInputError: If there is nothing to read in the folder.
    """
    found = find_files([folder], base=folder)
    if not found.files:
        raise InvalidInputError(
            f"no file below {str(folder)!r} that can be read; pass a folder with text, Markdown, "
            f"HTML, Python or PDF"
        )
    embedder = load_index_embedder(EMBEDDER)
    documents = read_found(found, chunker_for(embedder), with_dates=True).documents
    if not documents:
        raise InvalidInputError(f"nothing to read in {str(folder)!r}; pass a folder with text")
    return index_documents(demo_source(client, embedder), documents, embedder)


def load_question_embedder() -> Embedder:
    """Return what embeds questions: in full precision, as `sift search` does."""
    return load_embedder(EMBEDDER)


def demo_source(client: QdrantClient, embedder: Embedder) -> QdrantSource:
    """Return the collection as sift_core sees it."""
    return QdrantSource(client, COLLECTION, embedder_name=embedder.name)
