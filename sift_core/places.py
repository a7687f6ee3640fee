"""Which document a chunk is of and where it begins there, as its metadata says."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

__all__ = ["Place"]

# Where metadata names the document that a chunk is of: as `sift index` writes it, then as others.
DOCUMENT_KEYS = ("source", "file_path", "path", "file_name", "url")

# Where `sift index` has how many characters at a chunk's beginning repeat an earlier part.
REPEATED_KEY = "n_repeated"

# Beginning of the ids of an agent's notes (`sift mcp --write`). `sift index` leaves them alone.
NOTE = "note:"

# Where metadata has the first character of a chunk: `sift index`, then the splitters of LangChain,
# LlamaIndex and Haystack.
START_KEYS = ("start", "start_index", "start_char_idx", "split_idx_start")


class Place(NamedTuple):
    """Where a chunk stands.

    Args:
        document: Name of the file, page or address; None if the chunk is a document of its own.
        start: The chunk's first character in its text, >= 0; None if unknown.
        text: Name of the text that `start` counts in. Default: the document.
        n_repeated: Characters before the one at `start` that repeat an earlier part of the text,
            such as the header of a table. Default: 0.

    Example:
        >>> Place("ferry.md", start=120).joinable_text
        'ferry.md'
    """

    document: Hashable | None
    start: int | None = None
    text: Hashable | None = None
    n_repeated: int = 0

    @property
    def joinable_text(self) -> Hashable | None:
        """Return the name of the text in which the chunk may have neighbours, or None."""
        if self.start is None:
            return None
        return self.document if self.text is None else self.text


def place_of(metadata: Mapping[str, Any], document_key: str | None = None) -> Place:
    """Return where a chunk stands by its metadata.

    A "page" is a text of its own, as loaders of PDFs count it, unless there is a "last_page":
    `sift index` counts through all pages.

    Args:
        metadata: The chunk's.
        document_key: Metadata key that names its document. Default: the first of `DOCUMENT_KEYS`
            that holds a text which is not empty.
    """
    document = document_of(metadata, document_key)
    text: Hashable = document
    if document is not None and metadata.get("page") is not None and "last_page" not in metadata:
        text = (document, str(metadata["page"]))
    n_repeated = metadata.get(REPEATED_KEY)
    return Place(
        document,
        start_of(metadata),
        text,
        n_repeated if isinstance(n_repeated, int) and n_repeated > 0 else 0,
    )


def document_of(metadata: Mapping[str, Any], document_key: str | None = None) -> str | None:
    """Return the name of a chunk's document; None if it is a document of its own."""
    key = document_key_of(metadata, document_key)
    return None if key is None else str(metadata[key])


def document_key_of(metadata: Mapping[str, Any], document_key: str | None = None) -> str | None:
    """Return the key under which a chunk's metadata names its document; None if none does.

    Args:
        metadata: The chunk's.
        document_key: As for `place_of`.
    """
    if document_key is not None:
        return None if metadata.get(document_key) is None else document_key
    for key in DOCUMENT_KEYS:
        if isinstance(name := metadata.get(key), str) and name:
            return key
    return None


def start_of(metadata: Mapping[str, Any]) -> int | None:
    """Return a chunk's first character in its text; None if its metadata has none."""
    for key in START_KEYS:
        start = metadata.get(key)
        if isinstance(start, int) and not isinstance(start, bool) and start >= 0:
            return start
    return None


def heading_of(metadata: Mapping[str, Any]) -> str:
    """Return the title and headings of a chunk by its metadata; empty without any.

    They stand under "title" and "heading", which may be a list, as `sift index` writes them.
    """
    title, heading = metadata.get("title"), metadata.get("heading")
    if not heading and (not title or isinstance(title, str)):  # the usual cases, at once
        return str(title or "")
    parts = [one if isinstance(one, list | tuple) else [one] for one in (title, heading)]
    return " ".join(str(part) for some in parts for part in some if part)
