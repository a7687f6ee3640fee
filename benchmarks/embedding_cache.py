"""Embeddings of texts, kept on disk so that no text is embedded twice."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from tqdm import tqdm

from sift_core.protocols import Embedder

CACHE = Path(__file__).parents[1] / ".cache" / "embeddings"
MODEL = "all-MiniLM-L6-v2"
BLOCK = 1024  # texts a file: what an interruption may lose, a minute or two of work
BATCH = 256  # texts a step of the progress bar


def sentence_transformer() -> Embedder:
    """Return the embedder of the benchmarks; loading it takes seconds."""
    from sift_core.embedders import SentenceTransformerEmbedder

    return SentenceTransformerEmbedder(MODEL)


@dataclass(frozen=True)
class EmbeddingCache:
    """Embeds texts in blocks of `BLOCK` and writes each block to a file of its own.

    Args:
        folder: Where the files are; made where missing.
        model: Name of the model; part of every key.
        make_embedder: Called at most once, and only where an embedding is missing.
    """

    folder: Path = CACHE
    model: str = MODEL
    make_embedder: Callable[[], Embedder] = field(default=sentence_transformer)

    def embed(self, texts: Sequence[str], what: str = "texts") -> np.ndarray:
        """Return the embeddings, float32, shape (n, d), in the order of `texts`.

        Args:
            texts: At least one.
            what: Names them in the progress bar.
        """
        blocks = [texts[start : start + BLOCK] for start in range(0, len(texts), BLOCK)]
        missing = sum(len(block) for block in blocks if not self.path_of(block).exists())
        with tqdm(total=missing, desc=f"embedding {what}", disable=not missing) as progress:
            return np.concatenate([self._block(block, progress) for block in blocks])

    def path_of(self, block: Sequence[str]) -> Path:
        """Return the file that has, or would have, the embeddings of one block."""
        key = hashlib.sha256(json.dumps([self.model, *block]).encode()).hexdigest()
        return self.folder / f"{key}.npy"

    def keep(self, block: Sequence[str], embeddings: np.ndarray) -> None:
        """Write the embeddings of one block; a reader sees the whole file or none."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.path_of(block)
        unfinished = path.with_suffix(f".{os.getpid()}.unfinished")
        with unfinished.open("wb") as file:
            np.save(file, embeddings.astype(np.float32))
        unfinished.replace(path)

    @cached_property
    def _embedder(self) -> Embedder:
        return self.make_embedder()

    def _block(self, block: Sequence[str], progress: tqdm) -> np.ndarray:
        path = self.path_of(block)
        if not path.exists():
            self.keep(block, self._embed(block, progress))
        return np.load(path)

    def _embed(self, block: Sequence[str], progress: tqdm) -> np.ndarray:
        """Return the embeddings, made longest first: a batch of like lengths needs no padding."""
        order = sorted(range(len(block)), key=lambda i: -len(block[i]))
        rows: dict[int, np.ndarray] = {}
        for start in range(0, len(order), BATCH):
            batch = order[start : start + BATCH]
            made = self._embedder.embed_documents([block[i] for i in batch])
            rows.update(zip(batch, made, strict=True))
            progress.update(len(batch))
        return np.stack([rows[i] for i in range(len(block))])
