"""Where the headings and the blocks of code of a text are, found without parsing the rest."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from sift_core.documents.front_matter import front_matter

Span: TypeAlias = tuple[int, int]
"""Start and end, as offsets in a text."""

LONGEST_TITLE = 200  # characters; every chunk below a heading holds its title

_FENCE = re.compile(r"^[ \t]*(`{3,}(?=[^`\n]*$)|~{3,})(.*)", re.MULTILINE)
_MARKDOWN = re.compile(
    r"^ {0,3}(?:(?P<marks>#{1,6})(?P<title>(?:[ \t].*|\r)?)$"
    r"|(?![-*+>|#\s]|\d+[.)]\s)(?P<underlined>.+)\n {0,3}(?P<line>=+|-+)[ \t]*\r?$)",
    re.MULTILINE,
)
_LINE = re.compile(r"^.*$", re.MULTILINE)
_ADORNMENT = re.compile(r"([!-/:-@\[-`{-~])\1*\s*")
_TARGET = re.compile(r"\.\. _.*:\s*")


@dataclass(frozen=True, kw_only=True)
class Heading:
    """One heading of a text.

    Args:
        start: Offset of its first character; of a line over the title or a link target
            before it where there is one.
        end: Offset behind its last line.
        level: 1 for the outermost.
        path: Titles of the headings that it lies under, outermost first, and its own; of a longer
            one the first 200 characters.
    """

    start: int
    end: int
    level: int
    path: tuple[str, ...]


def fences(text: str) -> Iterator[Span]:
    """Yield the blocks of code between fences of a Markdown text, indented ones as well."""
    opened: re.Match[str] | None = None
    for line in _FENCE.finditer(text):
        if opened is None:
            opened = line
        elif line[1].startswith(opened[1]) and not line[2].strip():
            yield opened.start(), line.end()
            opened = None
    if opened:
        yield opened.start(), len(text)


def markdown_headings(text: str) -> list[Heading]:
    """Return the headings of a Markdown text, in order: "# Title" and underlined ones.

    Lines in code fences and in front matter are none. Headings inside quotes and lists
    are not looked for, and HTML is not understood.
    """
    matter = front_matter(text)
    others = [*([(0, matter.end)] if matter else []), *fences(text)]
    found = []
    for match in _MARKDOWN.finditer(text):
        i = bisect_right(others, (match.start(), len(text)))
        if i and match.start() < others[i - 1][1]:
            continue
        level = len(match["marks"]) if match["marks"] else 1 + (match["line"][0] == "-")
        title = (match["title"] or match["underlined"] or "").strip()
        unclosed = title.rstrip("#") if match["marks"] else title
        if unclosed != title and unclosed[-1:] in ("", " ", "\t"):  # "# Title ##"
            title = unclosed.rstrip()
        found.append((match.start(), match.end() + 1, level, title))
    return _with_paths(found)


def rst_headings(text: str) -> list[Heading]:
    """Return the section titles of a reStructuredText, in order.

    A title has a line of one repeated punctuation mark under it, perhaps the same over it,
    and a blank line or the start of the text before it. Each style of lines is a level, in
    order of appearance.
    """
    lines = list(_LINE.finditer(text))
    styles: list[tuple[str, bool]] = []
    found = []
    for i in range(1, len(lines)):
        title, line = lines[i - 1][0].rstrip(), lines[i][0].rstrip()
        # docutils takes 4 marks under any title.
        is_long_enough = len(line) >= min(4, len(title.strip()))
        if not (title and _ADORNMENT.fullmatch(line) and is_long_enough):
            continue
        before = lines[i - 2][0].rstrip() if i > 1 else ""
        is_overlined = bool(_ADORNMENT.fullmatch(before)) and before[0] == line[0]
        is_free = not (before or title[0].isspace())
        if _ADORNMENT.fullmatch(title) or not (is_overlined or is_free):
            continue
        style = (line[0], is_overlined)
        if style not in styles:
            styles.append(style)
        first = i - 2 if is_overlined else i - 1
        for above in range(first - 1, -1, -1):  # link targets right before it
            if _TARGET.fullmatch(lines[above][0]):
                first = above
            elif lines[above][0].strip():
                break
        level = styles.index(style) + 1
        found.append((lines[first].start(), lines[i].end() + 1, level, title.strip()))
    return _with_paths(found)


def path_at(headings: Sequence[Heading], offset: int) -> list[str]:
    """Return the titles above `offset`, outermost first; the heading there is one of them."""
    count = bisect_right(headings, offset, key=lambda heading: heading.start)
    return list(headings[count - 1].path) if count else []


def _with_paths(found: Sequence[tuple[int, int, int, str]]) -> list[Heading]:
    """Return headings from (start, end, level, title) in order."""
    headings: list[Heading] = []
    above: list[tuple[int, str]] = []
    for start, end, level, title in found:
        above = [*(outer for outer in above if outer[0] < level), (level, title[:LONGEST_TITLE])]
        path = tuple(name for _, name in above)
        headings.append(Heading(start=start, end=end, level=level, path=path))
    return headings
