"""Embeddings of texts, kept on disk so that no text is embedded twice.

Each block of `BLOCK` texts is a file of its own, named by a hash of the model's name and of the
texts: NumPy's format, and a checksum behind it. What is interrupted loses one block at most; a text
put in the middle moves all that follow it into other blocks.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from sift_core.checks import check_texts
from sift_core.errors import InvalidInputError
from sift_core.files import default_cache_folder, write_whole
from sift_core.progress import progress_bar
from sift_core.protocols import Embedder
from sift_core.types import FloatArray

MINILM = "all-MiniLM-L6-v2"
BLOCK = 1024  # texts a file: what an interruption may lose, a minute or two of work
BATCH = 256  # texts a step of the progress bar
_PIECE = 2**20  # bytes of a file that are read at once
_CHECKSUM = 32  # bytes at the end of a file
_logger = logging.getLogger(__name__)


def minilm_embedder() -> Embedder:
    """Return all-MiniLM-L6-v2, 384 dimensions; loading it takes seconds.

    Raises:
        MissingDependencyError: If sentence-transformers is not installed.
    """
    from sift_core.embedders import SentenceTransformerEmbedder

    return SentenceTransformerEmbedder(MINILM)


def embeddings_folder() -> Path:
    """Return where embeddings are kept unless another folder is named; nothing is made."""
    return default_cache_folder() / "embeddings"


def version_of(model: str) -> str:
    """Return a digest of a model's files if it is in a folder; "" for a name on the hub.

    A folder is often trained anew under its name, and "./model" is another one elsewhere. Reads
    every file: about a second a gigabyte.

    Args:
        model: Folder, or name on the hub.
    """
    folder = Path(model)
    if not folder.is_dir():
        return ""
    digest = hashlib.sha256()
    for path in sorted(one for one in folder.rglob("*") if one.is_file()):
        digest.update(f"{path.relative_to(folder).as_posix()}\0".encode())
        digest.update(f"{path.stat().st_size}\0".encode())
        with path.open("rb") as file:
            while piece := file.read(_PIECE):
                digest.update(piece)
    return digest.hexdigest()[:16]


@dataclass(frozen=True)
class EmbeddingCache:
    """Embeds texts, and writes what it embeds to files.

    Several processes may share a folder: a reader sees a whole file or none.

    Args:
        folder: Where the files are; made where missing.
        model: Name of the embedder that `make_embedder` makes; part of every key.
        make_embedder: Called at most once, and only where an embedding is missing.
        progress: Whether a bar is shown while texts are embedded.
        version: Tells models of one name apart, see `version_of`; part of every key.
    """

    folder: Path = field(default_factory=embeddings_folder)
    model: str = MINILM
    make_embedder: Callable[[], Embedder] = minilm_embedder
    progress: bool = True
    version: str = ""

    def embed(self, texts: Sequence[str], what: str = "texts") -> FloatArray:
        """Return the embeddings of documents, float32, shape (n, d), in the order of `texts`.

        Args:
            texts: At least one.
            what: Names them in the progress bar.

        Raises:
            InvalidInputError: If there is no text, the embedder is not what `model` says or
                does not give one finite vector a text, or `folder` cannot be written to.
            MissingDependencyError: If an embedding is missing, and the embedder's library.
        """
        return self._embed(texts, what, is_query=False)

    def embed_queries(self, texts: Sequence[str], what: str = "queries") -> FloatArray:
        """Return what `embed` returns and raises, with the texts embedded as questions."""
        return self._embed(texts, what, is_query=True)

    def path_of(self, block: Sequence[str], *, is_query: bool = False) -> Path:
        """Return the file that has, or would have, the embeddings of one block."""
        kind = [{"is_query": True}] if is_query else []
        model = f"{self.model}@{self.version}" if self.version else self.model
        key = hashlib.sha256(json.dumps([model, *kind, *block]).encode()).hexdigest()
        return self.folder / f"{key}.npy"

    def _embed(self, texts: Sequence[str], what: str, *, is_query: bool) -> FloatArray:
        _check_texts(texts)
        blocks = [list(texts[start : start + BLOCK]) for start in range(0, len(texts), BLOCK)]
        paths = [self.path_of(block, is_query=is_query) for block in blocks]
        found = [_read(path, len(block)) for path, block in zip(paths, blocks, strict=True)]
        missing = [i for i, rows in enumerate(found) if rows is None]
        if missing:
            n_missing = sum(len(blocks[i]) for i in missing)
            title = f"embedding {what}"
            with progress_bar(n_missing, title, "texts", wanted=self.progress) as advance:
                for i in missing:
                    rows = self._made(blocks[i], advance, is_query=is_query)
                    _write(paths[i], rows)
                    found[i] = rows
        kept = [rows for rows in found if rows is not None]
        dimensions = {rows.shape[1] for rows in kept}
        if len(dimensions) > 1:
            raise InvalidInputError(
                f"embeddings in {self.folder} have {sorted(dimensions)} dimensions under one name "
                f"of a model; name the models apart, or remove the folder"
            )
        return np.concatenate(kept)

    @cached_property
    def _embedder(self) -> Embedder:
        embedder = self.make_embedder()
        if embedder.name != self.model:
            raise InvalidInputError(
                f"`model` must be the embedder's name, which is {embedder.name!r}, got "
                f"{self.model!r}: another name would mix embeddings of two models"
            )
        return embedder

    def _made(
        self, block: Sequence[str], advance: Callable[[int], object], *, is_query: bool
    ) -> FloatArray:
        """Return the embeddings, made longest first: a batch of like lengths needs no padding."""
        embedder = self._embedder
        order = sorted(range(len(block)), key=lambda i: -len(block[i]))
        made: FloatArray | None = None
        for start in range(0, len(order), BATCH):
            batch = order[start : start + BATCH]
            texts = [block[i] for i in batch]
            rows = _checked(
                [embedder.embed_query(text) for text in texts]
                if is_query
                else embedder.embed_documents(texts),
                len(texts),
            )
            if made is None:
                made = np.empty((len(block), rows.shape[1]), dtype=np.float32)
            made[batch] = rows
            advance(len(batch))
        assert made is not None  # a block has a text
        return made


def _check_texts(texts: Sequence[str]) -> None:
    check_texts("texts", texts)
    if not len(texts):
        raise InvalidInputError("`texts` must have at least one text, got none")


def _checked(rows: Any, n: int) -> FloatArray:
    embeddings = np.asarray(rows, dtype=np.float32)
    if embeddings.ndim != 2 or len(embeddings) != n or not np.isfinite(embeddings).all():
        raise InvalidInputError(
            f"the embedder must give {n} finite vectors for {n} texts, got an array of shape "
            f"{embeddings.shape}{'' if np.isfinite(embeddings).all() else ' with inf or nan'}"
        )
    return embeddings


def _read(path: Path, n: int) -> FloatArray | None:
    """Return the n rows of a file; None where it is missing or of no use."""
    try:
        content = path.read_bytes()
        array, checksum = content[:-_CHECKSUM], content[-_CHECKSUM:]
        if checksum != _checksum(path, array):
            raise ValueError("its checksum is another one")
        rows: FloatArray = np.load(BytesIO(array))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        _logger.warning("%s is of no use and is made again: %s", path, error)
        return None
    return rows if rows.ndim == 2 and len(rows) == n else None


def _write(path: Path, rows: FloatArray) -> None:
    array = BytesIO()
    np.save(array, rows)
    content = array.getvalue()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, content + _checksum(path, content))
    except OSError as error:
        raise InvalidInputError(
            f"embeddings cannot be kept in {path.parent}: {error.strerror or error}; make room, or "
            f"name another folder"
        ) from error


def _checksum(path: Path, array: bytes) -> bytes:
    """Return the checksum of a file's array under its name: another's file is none."""
    return hashlib.sha256(path.name.encode() + array).digest()
