"""Where the headings of a text are, found line by line without parsing what is between them."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_ATX = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))??(?:[ \t]+#+)?[ \t]*")
_SETEXT = re.compile(r" {0,3}(=+|-+)[ \t]*")
_NO_PARAGRAPH = re.compile(r"\s|[-*+>|#]|\d+[.)]\s|$")  # what a setext line cannot underline
_ADORNMENT = re.compile(r"([!-/:-@\[-`{-~])\1*[ \t]*")
_TARGET = re.compile(r"\.\. _.*:[ \t]*")


@dataclass(frozen=True, kw_only=True)
class Heading:
    """One heading of a text.

    Args:
        start: Offset of its first character; of a line over the title or a link target
            before it where there is one.
        end: Offset behind its last line.
        level: 1 for the outermost.
        path: Titles of the headings that it lies under, outermost first, and its own.
    """

    start: int
    end: int
    level: int
    path: tuple[str, ...]


@dataclass(frozen=True)
class _Line:
    start: int
    end: int
    text: str  # without its end


def markdown_headings(text: str) -> list[Heading]:
    """Return the headings of a Markdown text, in order: "# Title" and underlined ones.

    Lines in code fences and in YAML at the start are none. Headings inside quotes and lists
    are not looked for, and HTML is not understood.
    """
    found: list[tuple[int, int, int, str]] = []
    fence = ""
    before: _Line | None = None
    for line in _after_front_matter(_lines(text)):
        match = _FENCE.fullmatch(line.text)
        if fence:
            if match and match[1].startswith(fence) and not match[2].strip():
                fence = ""
            before = None
        elif match and not (match[1][0] == "`" and "`" in match[2]):
            fence, before = match[1], None
        elif heading := _ATX.fullmatch(line.text):
            found.append((line.start, line.end, len(heading[1]), (heading[2] or "").strip()))
            before = None
        elif before and (underline := _SETEXT.fullmatch(line.text)):
            level = 1 if underline[1][0] == "=" else 2
            found.append((before.start, line.end, level, before.text.strip()))
            before = None
        else:
            before = None if _NO_PARAGRAPH.match(line.text) else line
    return _with_paths(found)


def rst_headings(text: str) -> list[Heading]:
    """Return the section titles of a reStructuredText, in order.

    A title has a line of one repeated punctuation mark under it, perhaps the same over it,
    and a blank line or the start of the text before it. Each style of lines is a level, in
    order of appearance.
    """
    lines = _lines(text)
    styles: list[tuple[str, bool]] = []
    found: list[tuple[int, int, int, str]] = []
    for i in range(1, len(lines)):
        if not _underlines(lines[i].text, lines[i - 1].text):
            continue
        mark = lines[i].text[0]
        before = lines[i - 2].text if i > 1 else ""
        is_overlined = bool(_ADORNMENT.fullmatch(before)) and before[0] == mark
        if (before.strip() or lines[i - 1].text[0].isspace()) and not is_overlined:
            continue
        style = (mark, is_overlined)
        if style not in styles:
            styles.append(style)
        first = _first_with_targets(lines, i - 2 if is_overlined else i - 1)
        title = lines[i - 1].text.strip()
        found.append((lines[first].start, lines[i].end, styles.index(style) + 1, title))
    return _with_paths(found)


def path_at(headings: Sequence[Heading], offset: int) -> list[str]:
    """Return the titles above `offset`, outermost first; the heading there is one of them."""
    count = bisect_right(headings, offset, key=lambda heading: heading.start)
    return list(headings[count - 1].path) if count else []


def _lines(text: str) -> list[_Line]:
    r"""Return the lines, which end in "\n" or "\r\n"."""
    lines = []
    start = 0
    for content in text.split("\n"):
        end = min(start + len(content) + 1, len(text))
        lines.append(_Line(start, end, content.removesuffix("\r")))
        start = end
    return lines


def _after_front_matter(lines: Sequence[_Line]) -> Iterator[_Line]:
    """Yield the lines that follow a block of YAML at the start, or all."""
    first = 0
    if lines[0].text.rstrip() == "---":
        ends = (i for i in range(1, len(lines)) if lines[i].text.rstrip() in ("---", "..."))
        first = next(ends, -1) + 1
    yield from lines[first:]


def _underlines(line: str, title: str) -> bool:
    """Whether `line` is long enough under `title`; docutils takes 4 marks under any title."""
    if not _ADORNMENT.fullmatch(line) or not title.strip() or _ADORNMENT.fullmatch(title):
        return False
    return len(line.rstrip()) >= min(4, len(title.strip()))


def _first_with_targets(lines: Sequence[_Line], first: int) -> int:
    """Return the line of the first of the link targets right before line `first`, or `first`."""
    i = first - 1
    while i >= 0 and (not lines[i].text.strip() or _TARGET.fullmatch(lines[i].text)):
        if lines[i].text.strip():
            first = i
        i -= 1
    return first


def _with_paths(found: Sequence[tuple[int, int, int, str]]) -> list[Heading]:
    """Return headings from (start, end, level, title) in order."""
    headings: list[Heading] = []
    above: list[tuple[int, str]] = []
    for start, end, level, title in found:
        while above and above[-1][0] >= level:
            above.pop()
        above.append((level, title))
        path = tuple(name for _, name in above)
        headings.append(Heading(start=start, end=end, level=level, path=path))
    return headings
