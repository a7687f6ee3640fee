"""Where to cut a text: semantic-text-splitter's choice, mended where a part cannot stand alone."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Literal

from sift_core.documents.headings import Heading, Span, fences
from sift_core.errors import MissingDependencyError

try:
    import semantic_text_splitter
    import tree_sitter_python
    import tree_sitter_rst
except ImportError as error:
    _package = (error.name or "semantic_text_splitter").replace("_", "-")
    raise MissingDependencyError(_package, extra="index") from error

TextFormat = Literal["markdown", "rst", "python", "text"]

# What is wrong with a part: headings or marks alone; a heading or an opened block of code at its
# end; too short, from inside of a block that fits, or a closing tag or bracket at its start; a line
# like "as follows:" or "**Warning**" at its end.
_NO_WORD, _HEADS, _STUMP, _LEADS_ON = 4, 3, 2, 1

# How much a place breaks, least first.
_AT_WORD, _IN_PARAGRAPH, _AT_SENTENCE, _AT_CODE_LINE, _AT_LINE, _AT_BLOCK = range(6)

_LONGEST_LINE = 20_000  # characters given to the library at once; of one line it takes .01 s
_LONG_LINE = re.compile(rf"[^\n]{{{_LONGEST_LINE + 1},}}")

_WORD = re.compile(r"\w")
_VISIBLE = re.compile(r"\S")
# A line like "as follows:", "f(", "@f", "**Warning**", "<form>"; one like "</form>", "},".
_OPENER = re.compile(
    r".*[:({\[][*_]*\s*$|[ \t]*@\w|[ \t]*(\*\*|__)[^*_\n]+\1\s*$|[ \t]*<\w[^<>]*(?<!/)>\s*$"
)
_CLOSER = re.compile(r"[ \t]*(?:</[\w-]+>|[)\]}]+[,;.]?)[ \t]*$", re.MULTILINE)
_ITEM = re.compile(r"[ \t]*(?:[-*+>|]\s?|\w{1,3}[.)]\s)")
_PLACE = re.compile(
    r"^(?=[ \t]*\S)|[.!?…][\"'”’)\]*_]*[ \t]+(?=\S)|[。！？]",  # noqa: RUF001
    re.MULTILINE,
)
_INDENTATION = re.compile(r"^([ \t]*)(?=\S)", re.MULTILINE)
_TABLE = re.compile(r"^[ \t]*\|.*(?:\n[ \t]*\|.*)+", re.MULTILINE)


class Cutter:
    """Cuts one text into spans that cover it, of at most one size.

    Args:
        text: The text.
        format: What it is written in.
        headings: Its headings, in order.
        capacity: The largest span, in what `count` counts.
        count: Size of a text; `len`, or the caller's.
    """

    def __init__(
        self,
        text: str,
        format: TextFormat,
        headings: Sequence[Heading],
        *,
        capacity: int,
        count: Callable[[str], int],
    ) -> None:
        self._text = text
        self._format = format
        self._headings = headings
        self._capacity = capacity
        self._count = count
        # Less is a stump. An eighth, from reading what is that short in FastAPI's documentation:
        # up to 32 of 256 tokens it is mostly a lead-in, a list's item or the end of some code.
        self._minimum = capacity // 8
        self._sizes: dict[Span, int] = {}
        self._titles = [(heading.start, heading.end) for heading in headings]
        self._lines = [0, *(match.end() for match in re.finditer("\n", text))]
        is_markdown = format == "markdown"
        self._fences = list(fences(text)) if is_markdown else []
        tables = [table.span() for table in _TABLE.finditer(text)] if is_markdown else []
        tables = [table for table in tables if not _around(self._fences, table[0])]
        self._wholes = sorted([*self._fences, *tables])

    def spans(self) -> list[Span]:
        """Return (start, end) of each chunk, in order; what is between them is whitespace."""
        cut = self._sections if self._format == "rst" else self._cut
        spans = [s for s in cut((0, len(self._text))) if _VISIBLE.search(self._text, *s)]
        spans = self._from_lines(spans)
        i = 0
        while i < len(spans):
            mended = self._mended(spans, i)
            if mended is None:
                i += 1
                continue
            first, parts = mended
            spans[first : first + 2] = parts
            i = max(0, first - 1)
        return [s for s in spans if _VISIBLE.search(self._text, *s)]

    def _size(self, span: Span) -> int:
        if span not in self._sizes:
            self._sizes[span] = self._count(self._text[slice(*span)])
        return self._sizes[span]

    def _fits(self, span: Span) -> bool:
        return self._size(span) <= self._capacity

    def split(self, span: Span, format: TextFormat, capacity: int) -> list[Span]:
        """Return the library's cut of a part of the text."""
        splitter = _splitter(format, capacity, self._count)
        starts = [
            window + start
            for window, end in self._windows(span)
            for start, _ in splitter.chunk_indices(self._text[window:end])
        ]
        return list(pairwise([*starts, span[1]]))

    def _windows(self, span: Span) -> list[Span]:
        """Return a part in pieces, of which the library, quadratic in a line, can cut each."""
        places = [span[0]]
        for line in _LONG_LINE.finditer(self._text, *span):
            places += range(line.start() + _LONGEST_LINE, line.end(), _LONGEST_LINE)
        return list(pairwise([*places, span[1]]))

    def _cut(self, span: Span, capacity: int | None = None) -> list[Span]:
        """Return the best cut of a part of the text.

        Inside a block of reStructuredText that does not fit, the grammar's next smaller unit
        may be a word, so such blocks are cut as plain text instead: at blank lines, lines, ....
        """
        capacity = self._capacity if capacity is None else capacity
        spans = self.split(span, self._format, capacity)
        if self._format != "rst":
            return spans
        blocks = [start for start, _ in spans[1:] if self._depth(start) == 0]
        starts = [start for start, _ in spans]
        cut: list[Span] = []
        for start, end in pairwise([span[0], *blocks, span[1]]):
            after = bisect_right(starts, start)
            is_cut = after < len(starts) and starts[after] < end
            cut += self.split((start, end), "text", capacity) if is_cut else [(start, end)]
        return cut

    def _sections(self, span: Span) -> list[Span]:
        """Return a cut of reStructuredText before its titles, whose grammar has no sections.

        Neighbours are joined while they fit, up to the next title above the first.
        """
        levels = {heading.start: heading.level for heading in self._headings}
        spans: list[Span] = []
        joined: Span | None = None
        level = 0
        for start, end in pairwise(sorted({span[0], *levels, span[1]})):
            if joined and levels[start] >= level and self._fits((joined[0], end)):
                joined = (joined[0], end)
                continue
            if joined:
                spans += self._cut(joined)
            joined, level = (start, end), levels.get(start, 0)
        return spans + (self._cut(joined) if joined else [])

    def _from_lines(self, spans: Sequence[Span]) -> list[Span]:
        """Return spans that start where their first line does, its indentation if that fits."""
        kept: list[Span] = []
        for start, end in spans:
            line = self._line_start(start)
            if kept and kept[-1][0] < line and self._fits((line, end)):
                kept[-1] = (kept[-1][0], min(kept[-1][1], line))
                start = line
            kept.append((start, end))
        return kept

    def _mended(self, spans: Sequence[Span], i: int) -> tuple[int, list[Span]] | None:
        """Return where the pair starts that mends span `i`, and what it becomes; None if none does.

        Each change makes the faults less, so that the mending ends.
        """
        fault = self._fault(spans[i])
        changes = []
        for first in (i - 1, i) if fault >= _STUMP else (i,):
            if fault and 0 <= first < len(spans) - 1:
                pair = spans[first : first + 2]
                for parts in self._changes(*pair):
                    gain = sum(map(self._fault, pair)) - sum(map(self._fault, parts))
                    changes.append((-gain, self._cost(parts, pair[1][0]), first, parts))
        return min(changes)[2:] if changes else None

    def _changes(self, first: Span, second: Span) -> Iterator[list[Span]]:
        """Yield what a pair may become that has fewer faults: joined, or cut elsewhere.

        Nothing is moved over a heading, but that one alone takes some of what follows. A lead-in
        goes with what it leads to, and with the first lines of that where not all fits.
        """
        (start, _), (at, end) = first, second
        faults = self._fault(first), self._fault(second)
        tried = [[(start, end)]] if self._fits((start, end)) else []
        if sum(faults) in (_LEADS_ON, _HEADS):
            tried += self._with_lead_in(first, second)[:1]
        if sum(faults) > _LEADS_ON and (faults[0] >= _HEADS or not self._is_heading(at)):
            tried += [[(start, place), (place, end)] for place in self._places(first, second)]
            tried.sort(key=lambda parts: self._cost(parts, at))
        for parts in tried:
            if all(map(self._fits, parts)):
                left = sum(map(self._fault, parts))
                if left < sum(faults):
                    yield parts
                if not left:
                    break

    def _with_lead_in(self, first: Span, second: Span) -> list[list[Span]]:
        """Return a pair with the last line of `first`, or sentence, moved to `second`, best first.

        Where not all fits, the last line goes with the first lines of `second`.
        """
        (start, _), (at, end) = first, second
        found = []
        places = [place for place in self._places(first, second) if place < at]
        places.sort(key=lambda place: (self._strength(place, start) < _AT_CODE_LINE, -place))
        for place in places:
            if self._strength(place, start) < _AT_SENTENCE or self._fault((start, place)):
                continue
            if self._fits((place, end)):
                found.append([(start, place), (place, end)])
                continue
            lines = [line for line in self._places((place, at), second) if line > at]
            lines.sort(key=lambda line: abs(2 * line - place - end))
            found += [
                [(start, place), (place, line), (line, end)]
                for line in lines
                if self._strength(line, place) >= _AT_LINE
            ]
        return [parts for parts in found if not any(map(self._fault, parts))]

    def _cost(self, parts: Sequence[Span], cut: int) -> tuple[float, ...]:
        """Return how bad a change of a pair is that was cut at `cut`.

        Best is a join where the text breaks least, then another cut where it breaks most, near the
        middle; worst a join over a heading.
        """
        start, end = parts[0][0], parts[-1][1]
        if len(parts) == 1:
            return (2 * self._is_heading(cut), self._strength(cut, start))
        place = parts[1][0]
        strength, depth = self._strength(place, start), self._depth(place) or 0
        return (1, len(parts), -strength, depth, abs(2 * place - start - end))

    def _fault(self, span: Span) -> int:
        """Return how badly a span stands alone; 0 for well."""
        start, end = span
        text = self._text[start:end]
        position = start
        first = bisect_left(self._headings, start, key=lambda heading: heading.start)
        for i in range(first, len(self._headings)):
            heading = self._headings[i]
            if heading.end > end or _WORD.search(self._text, position, heading.start):
                break
            position = heading.end
        last_line = start + text.rstrip().rfind("\n") + 1
        fence = _around(self._fences, last_line + 1)
        opens_code = fence is not None and fence[0] == last_line
        if not _WORD.search(self._text, position, last_line if opens_code else end):
            return _NO_WORD
        visible = (end - len(text.lstrip()), start + len(text.rstrip()))
        is_stump = self._size(visible) < self._minimum
        is_stump |= self._closes(self._line_start(start))
        fault = _STUMP if is_stump or self._cuts_a_whole(start) else 0
        if _VISIBLE.search(self._text, end) and not self._is_heading(end):
            if opens_code or _around(self._titles, last_line + 1):
                fault += _HEADS
            elif _OPENER.match(self._text, last_line, visible[1]):
                fault += _LEADS_ON
        return fault

    def _places(self, first: Span, second: Span) -> list[int]:
        """Return where else two spans could be cut: lines, sentences, or else the library's places.

        Never inside of a heading or a block of code or table of Markdown that fits; in Python and
        reStructuredText never deeper than a line between there and the cut, which could be inside
        of a block that fits.
        """
        found = {match.end() for match in _PLACE.finditer(self._text, first[0], second[1])}
        found |= {end for _, end in self._wholes if first[0] < end < second[1]}
        found -= {first[0], second[0]}
        if not any(self._fits((first[0], at)) and self._fits((at, second[1])) for at in found):
            for part, other in ((first, second), (second, first)):
                room = self._capacity - self._size(other)
                if room > 0:
                    found |= {self._line_start(start) for start, _ in self._cut(part, room)}
        return [
            place
            for place in sorted(found)
            if first[0] < place < second[1]
            and place != second[0]
            and not (self._cuts_a_whole(place) or _around(self._titles, place))
            and not (self._is_code(place) and self._is_deep(place, second[0]))
        ]

    def _is_code(self, offset: int) -> bool:
        return self._format in ("python", "rst") or _around(self._fences, offset) is not None

    def _first_word(self, offset: int) -> tuple[int, int | None]:
        """Return where what is visible from an offset on begins, and its line if it opens one."""
        visible = _VISIBLE.search(self._text, offset)
        at = visible.start() if visible else offset
        line = self._lines[bisect_right(self._lines, at) - 1]
        return at, line if self._end_before(at, line) == line else None

    def _line_start(self, offset: int) -> int:
        """Return the start of the line whose indentation or first word an offset is before."""
        at, line = self._first_word(offset)
        return at if line is None else line

    def _end_before(self, place: int, start: int) -> int:
        """Return where what is visible before a place ends; `start` if there is nothing from it."""
        width = 100  # the text from `start` on may be all of it
        while True:
            at = max(start, place - width)
            if (end := at + len(self._text[at:place].rstrip())) > at or at == start:
                return end
            width *= 2

    def _depth(self, offset: int) -> int | None:
        """Return the indentation of the line that starts at an offset, None inside of a line."""
        if not _VISIBLE.search(self._text, offset):
            return 0
        at, line = self._first_word(offset)
        return None if line is None else at - line

    def _is_deep(self, place: int, cut: int) -> bool:
        """Whether a place is inside of a line, or deeper than a line from there to `cut`."""
        depth = self._depth(place)
        if depth is None:
            return self._format == "python" or self._strength(place, 0) < _AT_SENTENCE
        start, end = sorted((place, cut))
        lines = [len(line[1]) for line in _INDENTATION.finditer(self._text, start, end)]
        return depth > min([*lines, self._depth(cut) or 0])

    def _strength(self, place: int, start: int) -> int:
        """Return how much the text from `start` on breaks at a place, from a word to a block."""
        end = self._end_before(place, start)
        gap = self._text[end : max(place, self._line_start(place))]
        is_sentence = self._text[max(start, end - 1) : end] in (".", "!", "?")
        if gap.count("\n") > 1:
            return _AT_BLOCK
        if "\n" not in gap:
            return _AT_SENTENCE if is_sentence else _AT_WORD
        if self._is_code(place):
            return _AT_CODE_LINE
        return _AT_LINE if is_sentence or _ITEM.match(self._text, place) else _IN_PARAGRAPH

    def _is_heading(self, offset: int) -> bool:
        """Whether what is visible from an offset on starts with a heading."""
        i = bisect_left(self._headings, offset, key=lambda heading: heading.start)
        return i < len(self._headings) and not _VISIBLE.search(
            self._text, offset, self._headings[i].start
        )

    def _closes(self, line: int) -> bool:
        """Whether a line has nothing but the end of what was opened before."""
        if _CLOSER.match(self._text, line):
            return True
        fence = _around(self._fences, line)
        return fence is not None and not _VISIBLE.search(
            self._text, self._text.find("\n", line) + 1 or len(self._text), fence[1]
        )

    def _cuts_a_whole(self, offset: int) -> bool:
        """Whether a block of code or a table that fits lies on both sides of an offset."""
        whole = _around(self._wholes, offset)
        return whole is not None and self._fits(whole)


def _around(spans: Sequence[Span], offset: int) -> Span | None:
    """Return which of some spans, in order, lies on both sides of an offset."""
    i = bisect_left(spans, (offset, 0))
    return spans[i - 1] if i and offset < spans[i - 1][1] else None


def _splitter(format: TextFormat, capacity: int, count: Callable[[str], int]) -> Any:
    """Return the library's splitter; by characters, it counts them itself."""
    kinds: dict[TextFormat, tuple[Any, tuple[Any, ...]]] = {
        "markdown": (semantic_text_splitter.MarkdownSplitter, ()),
        "rst": (semantic_text_splitter.CodeSplitter, (tree_sitter_rst.language(),)),
        "python": (semantic_text_splitter.CodeSplitter, (tree_sitter_python.language(),)),
        "text": (semantic_text_splitter.TextSplitter, ()),
    }
    kind, language = kinds[format]
    if count is len:
        return kind(*language, capacity, trim=False)
    return kind.from_callback(*language, count, capacity, trim=False)
