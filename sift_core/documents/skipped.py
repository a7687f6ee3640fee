"""What was not read, and why: nothing that lies in a folder is lost silently."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class SkipReason(Enum):
    """Why a file or folder was not read; the value says it to a reader."""

    BINARY = "binary, no text"
    BROKEN = "broken"
    CACHE = "caches and installed packages"
    EMPTY = "empty"
    ENCODING = "no valid text in its encoding"
    ENCRYPTED = "encrypted"
    HIDDEN = "hidden"
    LINK = "links to folders"
    MISSING_PACKAGE = "need a package (pip install 'sift-rerank[files]')"
    NO_TEXT = "no text in it (scanned pages?)"
    TOO_LARGE = "too large"
    UNKNOWN_SUFFIX = "unknown suffix"
    UNREADABLE = "could not be read"


@dataclass(frozen=True, kw_only=True)
class SkippedPath:
    """A file, or a folder with all that it holds, that was not read.

    Args:
        source: Its path as a document id would begin, with "/"; a folder's ends with one.
        reason: Why.
        detail: What exactly was wrong; "" where the reason says it all.
    """

    source: str
    reason: SkipReason
    detail: str = ""


class SkipError(Exception):
    """Raised inside this package by what cannot read a file; never leaves it.

    Args:
        reason: Why.
        detail: What exactly was wrong.
    """

    def __init__(self, reason: SkipReason, detail: str = "") -> None:
        super().__init__(detail or reason.value)
        self.reason = reason
        self.detail = detail
