"""What may be read of a pool: so many tokens in all, so many chunks of one document."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sift_core.checks import as_count
from sift_core.protocols import Selector
from sift_core.selection.limits import check_takes_limits, limits_on_texts
from sift_core.types import Metadata

# Where metadata names the document that a chunk is of: as `sift index` writes it, then as others.
DOCUMENT_KEYS = ("source", "file_path", "path", "file_name", "url")
CHARACTERS_A_TOKEN = 4  # about what tokenizers take of text that they know


@dataclass(frozen=True, kw_only=True)
class ReadingLimits:
    """A budget of tokens, a cap per document, both or neither.

    Args:
        max_tokens: How many tokens the choices may have together, >= 1; None for any number.
        max_per_document: How many chunks of one document, >= 1; None for any number.

    Raises:
        InvalidInputError: If one is no count.
    """

    max_tokens: int | None = None
    max_per_document: int | None = None

    def __post_init__(self) -> None:
        for name in ("max_tokens", "max_per_document"):
            if getattr(self, name) is not None:
                as_count(name, getattr(self, name), minimum=1)

    def __bool__(self) -> bool:
        """Return whether anything is limited."""
        return self.max_tokens is not None or self.max_per_document is not None

    def check(self, selector: Selector) -> None:
        """Refuse a selector that cannot keep these limits.

        Raises:
            InvalidInputError: If so.
        """
        if self:
            check_takes_limits(selector)

    def on(
        self,
        texts: Sequence[str],
        metadata: Sequence[Metadata],
        count_tokens: Callable[[str], int],
    ) -> dict[str, Any]:
        """Return what a selector's `select` takes as limits on n candidates; empty without any.

        Args:
            texts: n texts.
            metadata: n mappings.
            count_tokens: Counts those of a text; a text without any counts as one.
        """
        return limits_on_texts(
            texts,
            map(document_of, metadata),
            max_tokens=self.max_tokens,
            max_per_document=self.max_per_document,
            count_tokens=count_tokens,
        )


def document_of(metadata: Metadata) -> str | None:
    """Return which document a chunk is of: its file, page or address.

    None where its metadata has none of `DOCUMENT_KEYS`: it is a document of its own.
    """
    for key in DOCUMENT_KEYS:
        if isinstance(name := metadata.get(key), str) and name:
            return name
    return None


def token_counter(embedder: object) -> Callable[[str], int]:
    """Return what counts a text's tokens where no language model reads it.

    The embedder's own `count_tokens`, less the marks that it puts around any text; where it has
    none, a token for every four characters.
    """
    count = getattr(embedder, "count_tokens", None)
    if count is None:
        return estimated_tokens
    n_marks = count("")
    return lambda text: count(text) - n_marks


def estimated_tokens(text: str) -> int:
    """Return about how many tokens a text has: one for every four characters."""
    return math.ceil(len(text) / CHARACTERS_A_TOKEN)
