"""Where a text may be cut between two chunks, and how much it breaks there."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from sift_core.documents.headings import Heading

Span = tuple[int, int]

# How much a place breaks, least first; a heading breaks AT_HEADING less its level.
AFTER_OPENER, AT_WORD, IN_PARAGRAPH, AT_SENTENCE, AT_CODE_LINE, AT_LINE, AT_BLOCK = range(7)
AT_HEADING = 1000

WORD = re.compile(r"\w")
_OPENER = re.compile(r".*[:({\[][*_]*\s*$|[ \t]*@\w")  # a line like "as follows:", "f(", "@f"
_LINE = re.compile(r"^([ \t]*)(?=\S)(.*)", re.MULTILINE)
_CLOSER = re.compile(r"[)\]}]|</|\W*$")  # how a line starts that closes what is before
_FENCE = re.compile(r"^[ \t]*(`{3,}(?=[^`\n]*$)|~{3,})(.*)", re.MULTILINE)
_TABLE = re.compile(r"^[ \t]*\|.*(?:\n[ \t]*\|.*)+", re.MULTILINE)
_ITEM = re.compile(r"[-*+>|]\s?|#\.\s|\w{1,3}[.)]\s")
_SENTENCE = re.compile(r"[.!?…][\"'”’)\]*_]*[ \t]+(?=\S)|[。！？]")  # noqa: RUF001
_WORD_END = re.compile(r"\S\s+(?=\S)")


@dataclass(frozen=True)
class Boundary:
    """A place to cut.

    Args:
        offset: Where the second part starts: at a line's indentation, or inside a line.
        strength: How much the text breaks there.
        indentation: Of the line, in characters.
    """

    offset: int
    strength: int
    indentation: int


class Boundaries:
    """The places where one text may be cut in two.

    Args:
        text: The text.
        format: What it is written in; one of `TextFormat`.
        headings: Its headings, in order.
        fits: Whether a span fits into a chunk.
    """

    def __init__(
        self, text: str, format: str, headings: Sequence[Heading], fits: Callable[[Span], bool]
    ) -> None:
        self._text = text
        self._keeps_indented = format in ("python", "rst")
        self._format = format
        self._headings = headings
        self._fits = fits
        self._fences: list[Span] = list(_fences(text)) if format == "markdown" else []
        tables = _TABLE.finditer(text) if format == "markdown" else ()
        rows = [table.span() for table in tables if not self._is_in_fence(table.start())]
        self._wholes = sorted([*self._fences, *rows])

    def opens(self, span: Span) -> bool:
        """Whether a span ends with a line that belongs to what follows, like "as follows:"."""
        last_line = self._text[slice(*span)].rstrip().rpartition("\n")[2]
        return bool(_OPENER.match(last_line)) or self._ends_with_fence(span)

    def strength(self, before: Span, start: int) -> int:
        """Return how much the text breaks between `before` and what follows from `start` on."""
        heading = self._heading_at(start)
        if heading is not None:
            return AT_HEADING - heading.level
        if self.opens(before):
            return AFTER_OPENER
        gap = self._text[before[0] : start].rstrip()
        between = self._text[before[0] + len(gap) : start]
        if between.count("\n") > 1:
            return AT_BLOCK
        if "\n" in between:
            return AT_LINE
        return AT_SENTENCE if gap[-1:] in ".!?" else AT_WORD

    def lines(self, span: Span, boundary: int) -> list[Boundary]:
        """Return the places at the start of a line, in order.

        Left out are those that would part a line from what it opens or closes, or cut a block
        of code or a table of Markdown that fits. In Python and reStructuredText lines are left
        out that lie deeper than one between them and `boundary`: those may be inside of a block
        that fits.

        Args:
            span: What is to be cut.
            boundary: Where it is cut now.
        """
        found: list[Boundary] = []
        before = ""
        for line in _LINE.finditer(self._text, *span):
            if WORD.search(self._text, span[0], line.start()):
                strength = self._strength_of_line(line, before, span[0])
                if strength is not None:
                    found.append(Boundary(line.start(), strength, len(line[1])))
            before = line[0]
        return self._shallow(found, span, boundary) if self._keeps_indented else found

    def inside_lines(self, span: Span) -> list[Boundary]:
        """Return the places after a sentence or a word, in order; none in code."""
        if self._keeps_indented:
            return []
        ends: dict[int, int] = {}
        for pattern, strength in ((_WORD_END, AT_WORD), (_SENTENCE, AT_SENTENCE)):
            for match in pattern.finditer(self._text, *span):
                if "\n" not in match[0] and span[0] < match.end() < span[1]:
                    ends[match.end()] = strength
        return [
            Boundary(at, ends[at], 0)
            for at in sorted(ends)
            if not (self._is_in_fence(at) or self._cuts_a_whole(at))
        ]

    def _strength_of_line(self, line: re.Match[str], before: str, start: int) -> int | None:
        """Return how much the text breaks before a line; None where it must not be cut."""
        offset = line.start()
        is_fence = self._is_fence_start(offset)
        heading = self._heading_at(offset)
        if heading is not None:
            return AT_HEADING - heading.level
        if not is_fence and _CLOSER.match(line[2]):
            return None
        if _OPENER.match(before) or self._is_after_heading(offset) or self._cuts_a_whole(offset):
            return None
        if self._ends_with_fence((start, offset)):
            return None
        between = self._text[start:offset]
        is_block = is_fence or between[len(between.rstrip()) :].count("\n") > 1
        if self._is_in_fence(offset):
            return AT_LINE if is_block else AT_CODE_LINE
        if is_block:
            return AT_BLOCK
        if self._format == "rst":
            return None  # a table's rows and a paragraph's lines look alike
        if self._format == "python":
            return AT_CODE_LINE
        if _ITEM.match(line[2]):
            return AT_LINE
        return AT_LINE if before.rstrip()[-1:] in ".!?" else IN_PARAGRAPH

    def _shallow(self, found: Sequence[Boundary], span: Span, boundary: int) -> list[Boundary]:
        """Return the places that lie no deeper than any line from there to `boundary`."""
        depths = {line.start(): len(line[1]) for line in _LINE.finditer(self._text, *span)}
        starts = sorted(depths)
        middle = bisect_left(starts, boundary)
        allowed: set[int] = set()
        for side in (reversed(starts[: middle + 1]), iter(starts[middle:])):
            least = len(self._text)
            for start in side:
                if depths[start] <= least:
                    least = depths[start]
                    allowed.add(start)
        return [place for place in found if place.offset in allowed]

    def _heading_at(self, offset: int) -> Heading | None:
        """Return the heading that what is visible from `offset` on starts with."""
        i = bisect_left(self._headings, offset, key=lambda heading: heading.start)
        if i < len(self._headings) and not self._text[offset : self._headings[i].start].strip():
            return self._headings[i]
        return None

    def _is_after_heading(self, offset: int) -> bool:
        i = bisect_left(self._headings, offset, key=lambda heading: heading.start)
        if not i:
            return False
        return not WORD.search(self._text, min(self._headings[i - 1].end, offset), offset)

    def _is_fence_start(self, offset: int) -> bool:
        i = bisect_left(self._fences, (offset, 0))
        return i < len(self._fences) and self._fences[i][0] == offset

    def _is_in_fence(self, offset: int) -> bool:
        i = bisect_left(self._fences, (offset, 0))
        return i > 0 and offset < self._fences[i - 1][1]

    def _ends_with_fence(self, span: Span) -> bool:
        """Whether the last line of a span opens a block of code."""
        i = bisect_left(self._fences, (span[1], 0))
        if not i or self._fences[i - 1][0] < span[0]:
            return False
        return "\n" not in self._text[self._fences[i - 1][0] : span[1]].rstrip()

    def _cuts_a_whole(self, offset: int) -> bool:
        """Whether a block of code or a table that fits lies on both sides of `offset`."""
        i = bisect_left(self._wholes, (offset, 0))
        return i > 0 and offset < self._wholes[i - 1][1] and self._fits(self._wholes[i - 1])


def _fences(text: str) -> Iterator[Span]:
    """Yield start and end of the blocks of code between fences, indented ones as well."""
    opened: re.Match[str] | None = None
    for line in _FENCE.finditer(text):
        if opened is None:
            opened = line
        elif line[1].startswith(opened[1]) and not line[2].strip():
            yield opened.start(), line.end()
            opened = None
    if opened:
        yield opened.start(), len(text)
