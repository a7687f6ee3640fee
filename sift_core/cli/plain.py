"""Texts of documents, models and errors made fit for a terminal."""

from __future__ import annotations

import re

# Control characters but tab and newline, which begin escape sequences, and marks that turn the
# direction of writing: a document must neither steer the terminal nor look like another one. Halves
# of surrogate pairs stand for bytes of file names that are no text.
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_NO_TEXT = re.compile("[\ud800-\udfff]")


def plain(text: str) -> str:
    """Return a text without the characters that steer a terminal; tabs and line ends stay."""
    return _NO_TEXT.sub("?", _STEERING.sub("", text))


def one_line(text: str) -> str:
    """Return a text in one line, safe for a terminal."""
    return " ".join(plain(text).split())
