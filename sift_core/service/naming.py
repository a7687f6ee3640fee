"""What a reader calls a document, and where it is, by its metadata."""

from __future__ import annotations

from pathlib import PurePath

from sift_core.types import Metadata


def address_of(metadata: Metadata, document_id: str) -> str:
    """Return where a document is: its address on the web, else its file, else its id."""
    for key in ("url", "source"):
        if isinstance(metadata.get(key), str) and metadata[key]:
            return str(metadata[key])
    return document_id


def title_of(metadata: Metadata, document_id: str) -> str:
    """Return what a reader calls a document: its title, else its file's name and headings."""
    title = metadata.get("title")
    if isinstance(title, str) and title:
        return title
    heading = metadata.get("heading") or ()
    titles = [heading] if isinstance(heading, str) else [str(one) for one in heading]
    file = PurePath(address_of(metadata, document_id)).name or document_id
    return " > ".join([file, *titles])
