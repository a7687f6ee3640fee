"""What `sift index` writes and deletes, decided before the first write."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from sift_core.cli.index_printing import some_of
from sift_core.cli.stores import StoreAddress
from sift_core.documents import (
    Chunker,
    FileReading,
    FoundFiles,
    IndexingReport,
    SkippedPath,
    SkipReason,
    index_documents,
)
from sift_core.errors import InvalidInputError
from sift_core.protocols import DocumentIndex, Embedder
from sift_core.sources import content_id
from sift_core.types import FloatArray

if TYPE_CHECKING:
    from sift_core.embedders import SentenceTransformerEmbedder

MAX_TOKENS = 256  # of a chunk: what MiniLM reads, and about what a context of ten has room for
CHUNKS_A_WRITE = 64  # what a killed process loses at most
CHUNKS_A_STEP = 16  # of the progress bar
N_WORDS_KEPT = 200_000
IDS_A_REMOVAL = 1000
MANY_CHUNKS = 1000  # minutes of embedding on a laptop
LONGEST_WORD = 100  # characters; WordPiece makes one unknown token of a longer one
CHARACTERS_A_TOKEN = 4  # about what tokenizers take of text that they know
NOT_NOW = (SkipReason.UNREADABLE, SkipReason.MISSING_PACKAGE)  # nothing is known of the file


def chunker_for(embedder: SentenceTransformerEmbedder) -> Chunker:
    """Return a chunker whose chunks the embedder reads to their end.

    Tokens are counted word by word and remembered, some twenty times as fast as counting each
    text anew: exact for WordPiece (MiniLM, BERT), a few percent off for tokenizers that join
    spaces to words, whose models read more than 256. What has no spaces (a dump, a key) counts by
    its length at least: one unknown token would let any of it into one chunk.
    """
    n_marks = embedder.count_tokens("")

    @lru_cache(maxsize=N_WORDS_KEPT)
    def count(word: str) -> int:
        least = len(word) // CHARACTERS_A_TOKEN if len(word) > LONGEST_WORD else 0
        return max(embedder.count_tokens(word) - n_marks, least)

    return Chunker(
        min(embedder.max_tokens or MAX_TOKENS, MAX_TOKENS),
        size=lambda text: n_marks + sum(map(count, text.split())),
    )


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is to be done to make a store equal to what was read.

    Args:
        n_new: How many chunks will be embedded.
        stale: File of each chunk to delete, by content id.
        n_chunks_unread: Chunks of the files that did not change.
        n_files: Files whose text the store will hold, unreadable ones not counted.
        kept_files: Files that are stored, could not be read now, and keep their chunks.
        vanished_files: Stored files that are no longer there, or not among the PATHs.
        dropped_files: Stored files that are left out now, for what is said of them.
        largest: The file that most of the new chunks are of, and how many; None where there is
            no such file or little to do.
    """

    n_new: int
    stale: Mapping[str, str]
    n_chunks_unread: int
    n_files: int
    kept_files: tuple[str, ...]
    vanished_files: tuple[str, ...]
    dropped_files: tuple[str, ...]
    largest: tuple[str, int] | None

    @classmethod
    def of(
        cls,
        reading: FileReading,
        stored: Mapping[str, str],
        unchanged: Mapping[str, frozenset[str]],
    ) -> Plan:
        """Return the plan.

        A file or folder that could not be read now (rights, a disk that is away, a package that is
        missing) has not vanished: what is stored of it stays.

        Args:
            reading: What was read.
            stored: File of each stored chunk, by content id.
            unchanged: Content ids of files that were not read, since they are stored as they are.
        """
        read = {content_id(document): document.metadata["source"] for document in reading.documents}
        current = set(read).union(*unchanged.values())
        unreadable = tuple(path.source for path in reading.skipped if path.reason in NOT_NOW)
        is_kept = {
            file: file in unreadable or file.startswith(_folders(unreadable))
            for file in set(stored.values())
        }
        stale = {
            key: file for key, file in stored.items() if key not in current and not is_kept[file]
        }
        files = {*reading.sources, *unchanged}
        gone = set(stale.values()) - files
        left_out = {path.source for path in reading.skipped}
        return cls(
            n_new=len(current - stored.keys()),
            stale=stale,
            n_chunks_unread=len(current) - len(read),
            n_files=len(files),
            kept_files=tuple(sorted(file for file in is_kept if is_kept[file])),
            vanished_files=tuple(sorted(gone - left_out)),
            dropped_files=tuple(sorted(gone & left_out)),
            largest=_largest([file for key, file in read.items() if key not in stored]),
        )


def refuse_to_drop(address: StoreAddress, stored: Collection[str], found: FoundFiles) -> None:
    """Refuse to delete what is stored of files that are merely not among the PATHs.

    That is more often a mistake, and embedding them again takes its time.

    Args:
        address: The store.
        stored: The files that it has chunks of.
        found: What was found to read now.

    Raises:
        InvalidInputError: If a stored file is still there and not among those found, or none of
            the stored ones is.
    """
    names = {file.source for file in found.files} | {path.source for path in found.skipped}
    missing = sorted(set(stored) - names)
    if stored and len(missing) == len(stored):
        raise InvalidInputError(
            f"nothing in the index at {address} is of these PATHs; it holds {some_of(missing)}, "
            f"which would be deleted. Pass those PATHs as well, call it from the same folder as "
            f"then (names are relative to it), or take another --store"
        )
    unreadable = _folders([path.source for path in found.skipped if path.reason in NOT_NOW])
    outside = [
        file for file in missing if os.path.lexists(file) and not file.startswith(unreadable)
    ]
    if outside:
        raise InvalidInputError(
            f"the PATHs leave out {some_of(outside)}, which the index at {address} holds and which "
            f"{'is' if len(outside) == 1 else 'are'} still there. Pass those PATHs as well, or "
            f"--prune to delete them from the index"
        )


@dataclass(frozen=True, kw_only=True)
class Indexed:
    """What was done.

    Args:
        plan: What was to be done.
        n_added: Chunks that were embedded and written.
        n_unchanged: Chunks that were stored already.
        skipped: What was left out.
    """

    plan: Plan
    n_added: int
    n_unchanged: int
    skipped: tuple[SkippedPath, ...]


def write_new(source: DocumentIndex, reading: FileReading, embedder: Embedder) -> IndexingReport:
    """Embed and write what is new of what was read; nothing is deleted.

    Raises:
        CandidateSourceError: If the store fails; says how many chunks are safely stored.
    """
    return index_documents(
        source,
        reading.documents,
        embedder,
        batch_size=CHUNKS_A_WRITE,
        delete_vanished=False,
        progress=False,
    )


def delete_stale(plan: Plan, source: DocumentIndex) -> None:
    """Delete the chunks that the files no longer have, a thousand at a time.

    Raises:
        CandidateSourceError: If the store fails.
    """
    stale = iter(sorted(plan.stale))
    while ids := list(islice(stale, IDS_A_REMOVAL)):
        source.remove(ids)
    if plan.stale:
        source.complete()


class ProgressEmbedder:
    """An embedder that says how far it is.

    Args:
        embedder: What embeds.
        on_progress: Called with how many texts were embedded since it was called last.
    """

    def __init__(self, embedder: Embedder, on_progress: Callable[[int], object]) -> None:
        self._embedder = embedder
        self._on_progress = on_progress
        self._n_embedded = 0
        self.n_stored = 0

    @property
    def name(self) -> str:
        """Name of the embedder."""
        return self._embedder.name

    def embed_query(self, text: str) -> FloatArray:
        """Return the embedding of a question, shape (d,)."""
        return self._embedder.embed_query(text)

    def embed_documents(self, texts: Sequence[str]) -> FloatArray:
        """Return embeddings, shape (n, d), made some at a time."""
        self.n_stored = self._n_embedded  # the caller stores a batch before it sends the next
        parts = []
        for start in range(0, len(texts), CHUNKS_A_STEP):
            part = texts[start : start + CHUNKS_A_STEP]
            parts.append(self._embedder.embed_documents(part))
            self._on_progress(len(part))
        self._n_embedded += len(texts)
        embeddings: FloatArray = np.concatenate(parts)
        return embeddings


def _largest(files: Sequence[str]) -> tuple[str, int] | None:
    """Return the file that more than half of many chunks are of, with their number.

    Args:
        files: Of each new chunk.
    """
    if len(files) < MANY_CHUNKS:
        return None
    file, n = Counter(files).most_common(1)[0]
    return (file, n) if 2 * n > len(files) else None


def _folders(sources: Sequence[str]) -> tuple[str, ...]:
    return tuple(source for source in sources if source.endswith("/"))
