"""How long chunks are: as many tokens as the embedder reads, at most."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from sift_core.documents.chunker import Chunker
from sift_core.errors import InvalidInputError

if TYPE_CHECKING:
    from sift_core.embedders.loading import LoadedEmbedder

CHARACTERS_A_TOKEN = 4  # of English
LEAST_TOKENS = 16  # of a chunk, below which hardly a sentence fits. A guess.
LONGEST_WORD = 100  # characters; WordPiece makes one unknown token of a longer one
MAX_TOKENS = 256  # of a chunk: what MiniLM reads, and about what a context of ten has room for
N_WORDS_KEPT = 200_000


def chunker_for(embedder: LoadedEmbedder, chunk_tokens: int | None = None) -> Chunker:
    """Return a chunker whose chunks the embedder reads to their end.

    Tokens are counted word by word and remembered, some twenty times as fast as counting each
    text anew: exact for WordPiece (MiniLM, BERT), a few percent off for tokenizers that join
    spaces to words, whose models read more than 256. What has no spaces (a dump, a key) counts by
    its length at least: one unknown token would let any of it into one chunk.

    Args:
        embedder: Counts tokens, and says how many it reads of a text.
        chunk_tokens: Greatest length of a chunk in tokens. Default: 256, or what the embedder reads
            if that is less.

    Raises:
        InvalidInputError: If the embedder reads fewer than `chunk_tokens`.
    """
    n_marks = embedder.count_tokens("")
    most = embedder.max_tokens
    if chunk_tokens is not None and most is not None and chunk_tokens > most:
        raise InvalidInputError(
            f"`chunk_tokens` is {chunk_tokens:,}, but {embedder.name} reads {most:,} tokens of a "
            f"chunk and nothing beyond; take {most:,} or fewer, or another embedder"
        )

    @lru_cache(maxsize=N_WORDS_KEPT)
    def count(word: str) -> int:
        least = len(word) // CHARACTERS_A_TOKEN if len(word) > LONGEST_WORD else 0
        return max(embedder.count_tokens(word) - n_marks, least)

    return Chunker(
        chunk_tokens or min(most or MAX_TOKENS, MAX_TOKENS),
        size=lambda text: n_marks + sum(map(count, text.split())),
    )
