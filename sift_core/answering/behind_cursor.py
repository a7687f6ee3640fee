"""Which chunks would show a model the text behind a cursor."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from pathlib import PurePath
from typing import Any

from sift_core.places import document_of
from sift_core.sources.filtered import Keep

_BLANK_LINES = re.compile(r"\n(?:[ \t]*\n)+")
MARK_CHARACTERS = 20  # of lines by which a chunk is known to be of the file; a guess


def may_be_read(*, before: str, shown: str, after: str, path: str | None) -> Keep:
    """Return what says of a chunk's text and metadata whether it may be read.

    A chunk of the file may be read if it stands word for word in `before`. A chunk whose file is
    not known is of the file if it stands there word for word, or holds lines of `after`. No chunk
    is read that stands in `shown`.

    Args:
        before: The file's text before `shown`.
        shown: The text before the cursor that the model reads.
        after: The text behind the cursor; empty if unknown.
        path: The file's path; None if unknown.
    """
    before, shown, after = _comparable(before), _comparable(shown), _comparable(after)
    whole, marks = before + shown + after, _marks_of(after)

    def keep(text: str, metadata: Mapping[str, Any]) -> bool:
        body, source = _comparable(text).strip(), document_of(metadata)
        own = path is not None and _is_same_file(path, source)
        if not own and after and _may_be_same_file(path, source):
            own = body in whole or not marks.isdisjoint(_lines_and_pairs(body))
        return (not own or body in before) and body not in shown

    return keep


def _is_same_file(path: str, source: str | None) -> bool:
    """Return whether an index's name of a file and a path end alike, one within the other.

    A bare name such as "__init__.py" stands for no file of another folder. Of "../docs/a.md",
    which is relative to an unknown folder, "docs/a.md" is compared.
    """
    if source is None:
        return False
    ours, theirs = _known_parts(path), _known_parts(source)
    n = min(len(ours), len(theirs))
    if len(theirs) > n == 1:
        return False
    return ours[-n:] == theirs[-n:]


def _may_be_same_file(path: str | None, source: str | None) -> bool:
    """Return whether a chunk may be of a file: one of both is unknown, or the path a bare name."""
    return path is None or source is None or _known_parts(path) == [PurePath(source).name]


def _comparable(text: str) -> str:
    """Return a text as joined chunks spell it: without returns, one blank line for several."""
    return _BLANK_LINES.sub("\n\n", text.replace("\r\n", "\n"))


def _lines_and_pairs(text: str) -> set[str]:
    """Return the lines of a text that are not blank, and each two that follow one another."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return {*lines, *map("\n".join, pairwise(lines))}


def _marks_of(after: str) -> set[str]:
    """Return the lines and pairs by which a chunk is known to hold some of a text.

    These are its first line and all pairs of lines, so that an import, a `return` or a bracket that
    many files have is none.
    """
    lines = [line.strip() for line in after.splitlines() if line.strip()]
    marks = [*lines[:1], *map("\n".join, pairwise(lines))]
    return {mark for mark in marks if len(mark) >= MARK_CHARACTERS}


def _known_parts(path: str) -> list[str]:
    """Return the parts of a path, with each ".." resolved or, at the beginning, left out."""
    parts: list[str] = []
    for part in PurePath(path).parts:
        if part != "..":
            parts.append(part)
        elif parts:
            parts.pop()
    return parts
