"""Exponents, indices and footnote marks in one line: 10^6, x_i, "dogs[^3]"."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby

_ORDINAL = re.compile("st|nd|rd|th|e|re|er|[èe]?me|[èe]re|nde|de|ste|te|os?|as?", re.IGNORECASE)
_NOTE = re.compile(r"[\d,;–\s-]+|[a-z]")
_ONE_TERM = re.compile(r"[-+−–]?[\w.,]+[-+−–]?|\(.*\)", re.DOTALL)  # noqa: RUF001
_ELEMENT = re.compile(r"[A-Z][a-z]?(?![a-z])")
_AFTER_A_SENTENCE = ".,;:!?…\"'”’»。，、！？」"  # noqa: RUF001


def raised(before: str, text: str, after: str = "", *, is_note: bool = False) -> str:
    """Return a superscript in one line.

    A number or letter after a space or the end of a sentence is a footnote's mark. Ordinals like
    "19th" stay joined, and so do marks in brackets.

    Args:
        before: The text before it in its line.
        text: The superscript.
        after: The text behind it.
        is_note: Whether it is known to be a footnote's mark.
    """
    text, base = text.strip(), before[-1:]
    if not re.search(r"\w", text) or text[0] == "[":
        return text
    if base.isdigit() and text in ("o", "0") and re.match("[CF]\\b", after):
        return "°"
    if base.isdigit() and _ORDINAL.fullmatch(text) and not is_note:
        return text
    is_free = not base or base.isspace() or base in "(-–"
    if is_free and text.isdigit() and _ELEMENT.match(after) and not is_note:  # an isotope
        return f"^{text}"
    if is_note or ((is_free or base in _AFTER_A_SENTENCE) and _NOTE.fullmatch(text)):
        return f"[^{text}]"
    if is_free:
        return text
    return f"^{_term(text)}" + " " * after[:1].isalnum()


def lowered(before: str, text: str) -> str:
    """Return a subscript in one line: "H2O" and "NOx", but x_i, V_max and 101_2."""
    text, word = text.strip(), re.search(r"\w*$", before[-20:])
    base = word[0] if word else ""
    is_joined = text.isdigit() if len(base) == 1 else text.isalnum()
    if not text or not base or (is_joined and not base[-1].isdigit()):
        return text
    return f"_{_term(text)}"


def _term(text: str) -> str:
    return text if _ONE_TERM.fullmatch(text) else f"({text})"


def in_one_line(pieces: Iterable[tuple[str, float]]) -> str:
    """Return pieces of text in one line, in which superscripts and subscripts stay apart.

    Args:
        pieces: Each a text, and how far it is raised: > 0 for a superscript, < 0 for a subscript.
    """
    runs = [
        (side, "".join(text for text, _ in group))
        for side, group in groupby(pieces, key=lambda piece: (piece[1] > 0) - (piece[1] < 0))
    ]
    line = ""
    for i, (side, text) in enumerate(runs):
        if side > 0:
            line += raised(line, text, runs[i + 1][1] if i + 1 < len(runs) else "")
        else:
            line += lowered(line, text) if side else text
    return line
