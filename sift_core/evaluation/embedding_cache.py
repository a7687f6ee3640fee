"""Embeddings of texts, kept on disk so that no text is embedded twice.

Each block of `BLOCK` texts has a file, named by a hash of the model's name and the texts. The file
is an array in NumPy's format with a checksum behind it, so that nothing is unpickled. An
interruption loses one block at most. A text put in the middle moves all that follow it into other
blocks.
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

import numpy as np

from sift_core.checks import as_finite_array, check_texts
from sift_core.embedders.prompts import model_of
from sift_core.errors import InvalidInputError
from sift_core.files import DAMAGE, default_cache_folder, write_whole
from sift_core.progress import progress_bar
from sift_core.protocols import Embedder
from sift_core.types import FloatArray

MINILM = "all-MiniLM-L6-v2"
BLOCK = 1024  # texts a file: what an interruption may lose, a minute or two of work
BATCH = 256  # texts a step of the progress bar
_PIECE = 2**20  # bytes of a file that are read at once
_CHECKSUM = 32  # bytes at the end of a file
_logger = logging.getLogger(__name__)


def _minilm() -> Embedder:
    from sift_core.embedders import SentenceTransformerEmbedder

    return SentenceTransformerEmbedder(MINILM)


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
    """Embeds texts, and writes their embeddings to files.

    Several processes may share a folder: a reader sees a whole file or none.

    Args:
        folder: Folder of the files, made where it is missing. Default: "embeddings" in the
            library's cache folder.
        model: Name of the embedder that `make_embedder` makes. It is part of every key.
        make_embedder: Called at most once, and only if an embedding is missing. Default: loads
            all-MiniLM-L6-v2 with sentence-transformers.
        progress: Show a bar while texts are embedded. Default: on.
        version: Distinguishes models of one name, see `version_of`. It is part of every key.
    """

    folder: Path = field(default_factory=lambda: default_cache_folder() / "embeddings")
    model: str = MINILM
    make_embedder: Callable[[], Embedder] = _minilm
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
        """Return the file of one block's embeddings, whether it is there or not."""
        kind = [{"is_query": True, "has_prompt": True}] if is_query else []
        model = f"{self.model}@{self.version}" if self.version else self.model
        key = hashlib.sha256(json.dumps([model, *kind, *block]).encode()).hexdigest()
        return self.folder / f"{key}.npy"

    def _embed(self, texts: Sequence[str], what: str, *, is_query: bool) -> FloatArray:
        check_texts("texts", texts)
        if not len(texts):
            raise InvalidInputError("`texts` must have at least one text, got none")
        blocks = [list(texts[start : start + BLOCK]) for start in range(0, len(texts), BLOCK)]
        paths = [self.path_of(block, is_query=is_query) for block in blocks]
        found = {path: _read(path, len(block)) for path, block in zip(paths, blocks, strict=True)}
        missing = {
            path: one for path, one in zip(paths, blocks, strict=True) if found[path] is None
        }
        n_missing = sum(map(len, missing.values()))
        is_shown = self.progress and n_missing > 0
        with progress_bar(n_missing, f"embedding {what}", "texts", wanted=is_shown) as advance:
            for path, block in missing.items():
                found[path] = made = self._made(block, advance, is_query=is_query)
                _write(path, made)
        rows = [one for path in paths if (one := found[path]) is not None]
        dimensions = {one.shape[1] for one in rows}
        if len(dimensions) > 1:
            raise InvalidInputError(
                f"embeddings in {self.folder} have {sorted(dimensions)} dimensions under one name "
                f"of a model; name the models apart, or remove the folder"
            )
        return np.concatenate(rows)

    @cached_property
    def _embedder(self) -> Embedder:
        embedder = self.make_embedder()
        if self.model not in (embedder.name, model_of(embedder.name)):
            raise InvalidInputError(
                f"`model` must be the embedder's name, which is {embedder.name!r}, got "
                f"{self.model!r}: another name would mix embeddings of two models"
            )
        return embedder

    def _made(
        self, block: Sequence[str], advance: Callable[[int], object], *, is_query: bool
    ) -> FloatArray:
        """Embed a block, longest texts first: a batch of similar lengths needs less padding."""
        embedder = self._embedder
        order = sorted(range(len(block)), key=lambda i: -len(block[i]))
        made: list[FloatArray] = []
        for start in range(0, len(order), BATCH):
            texts = [block[i] for i in order[start : start + BATCH]]
            rows = np.asarray(
                [embedder.embed_query(text) for text in texts]
                if is_query
                else embedder.embed_documents(texts),
                dtype=np.float32,
            )
            if rows.ndim != 2 or len(rows) != len(texts) or not np.isfinite(rows).all():
                raise InvalidInputError(
                    f"the embedder must give {len(texts)} finite vectors for {len(texts)} texts, "
                    f"got an array of shape {rows.shape}"
                    f"{'' if np.isfinite(rows).all() else ' with inf or nan'}"
                )
            made.append(rows)
            advance(len(texts))
        return np.concatenate(made)[np.argsort(order)]


def _read(path: Path, n: int) -> FloatArray | None:
    """Return the n rows of a file; None if it is missing or of no use."""
    try:
        content = path.read_bytes()
        array, checksum = content[:-_CHECKSUM], content[-_CHECKSUM:]
        if checksum != _checksum(path, array):
            raise ValueError("its checksum is another one")
        rows: FloatArray = np.lib.format.read_array(BytesIO(array), allow_pickle=False)
        rows = as_finite_array("rows", rows, n_dimensions=2)
    except FileNotFoundError:
        return None
    except (OSError, MemoryError, *DAMAGE) as error:
        _logger.warning("%s is of no use and is made again: %s", path, error)
        return None
    return rows if len(rows) == n else None


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
    """Return the checksum of an array together with its file's name, so that no file is swapped."""
    return hashlib.sha256(path.name.encode() + array).digest()
