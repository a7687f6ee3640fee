"""Where to cut a text: semantic-text-splitter's choice, with headings kept on what they head."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Literal

from sift_core.documents.boundaries import (
    AT_BLOCK,
    AT_LINE,
    AT_SENTENCE,
    AT_WORD,
    WORD,
    Boundaries,
    Boundary,
    Span,
)
from sift_core.documents.headings import Heading
from sift_core.errors import MissingDependencyError

try:
    import semantic_text_splitter
    import tree_sitter_python
    import tree_sitter_rst
except ImportError as error:
    package = (error.name or "semantic_text_splitter").replace("_", "-")
    raise MissingDependencyError(package, extra="index") from error

TextFormat = Literal["markdown", "rst", "python", "text"]

_OPENING_FENCE = re.compile(r"^[ \t]*(`{3,}[^`\n]*|~{3,}[^\n]*)\n\s*\Z", re.MULTILINE)
VISIBLE = re.compile(r"\S")
_LINE_START = re.compile(r"^", re.MULTILINE)
_WORD_START = re.compile(r"(?<!\S)\S")


class SpanCutter:
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
        self._boundaries = Boundaries(text, format, headings, self._fits)

    def spans(self) -> list[Span]:
        """Return (start, end) of each chunk, in order; what is between them is whitespace."""
        whole = (0, len(self._text))
        cut = self._sections if self._format == "rst" else self._cut
        spans = self._with_openers(self._visible(cut(whole)))
        return self._without_stumps(self._with_lead_ins(self._with_indentation(spans)))

    def overlap_start(self, before: Span, start: int, overlap: int) -> int:
        """Return where a chunk starts that repeats at most `overlap` of the span before it.

        That is the start of a line, else of a word, else `start`.
        """
        if not overlap:
            return start
        for pattern in (_LINE_START, _WORD_START):
            places = [match.start() for match in pattern.finditer(self._text, before[0], start)]
            first = bisect_left(
                places, True, key=lambda place: self._size((place, start)) <= overlap
            )
            if first < len(places) and VISIBLE.search(self._text, places[first], start):
                return places[first]
        return start

    def _size(self, span: Span) -> int:
        if span not in self._sizes:
            self._sizes[span] = self._count(self._text[slice(*span)])
        return self._sizes[span]

    def _visible(self, spans: Sequence[Span]) -> list[Span]:
        return [span for span in spans if VISIBLE.search(self._text, *span)]

    def _fits(self, span: Span) -> bool:
        return self._size(span) <= self._capacity

    def _split(self, span: Span, format: TextFormat, capacity: int) -> list[Span]:
        """Return the library's cut of a part of the text."""
        part = self._text[slice(*span)]
        splitter = _splitter(format, capacity, self._count)
        starts = [span[0] + start for start, _ in splitter.chunk_indices(part)]
        return list(pairwise([*starts, span[1]]))

    def _cut(self, span: Span, capacity: int | None = None) -> list[Span]:
        """Return the best cut of a part of the text.

        Inside a block of reStructuredText that does not fit, the grammar's next smaller unit
        may be a word, so such blocks are cut as plain text instead: at blank lines, lines, ....
        """
        capacity = self._capacity if capacity is None else capacity
        spans = self._split(span, self._format, capacity)
        if self._format != "rst":
            return spans
        blocks = [start for start, _ in spans[1:] if self._is_at_block(start)]
        starts = {start for start, _ in spans}
        cut: list[Span] = []
        for start, end in pairwise([span[0], *blocks, span[1]]):
            if any(start < inner < end for inner in starts):
                cut += self._split((start, end), "text", capacity)
            else:
                cut.append((start, end))
        return cut

    def _is_at_block(self, offset: int) -> bool:
        """Whether what is visible from `offset` on starts a line, without indentation."""
        visible = VISIBLE.search(self._text, offset)
        return visible is None or self._text[visible.start() - 1] in "\r\n"

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

    def _with_openers(self, spans: Sequence[Span]) -> list[Span]:
        """Return spans in which nothing that only opens stands alone, where the sizes allow it.

        A heading goes with what follows, if need be with the beginning of it. So does the line
        that opens a block of code in Markdown, with its language. So do marks without a word (a
        rule, a quotation mark) where they do not fit to what is before; the last ones of a text
        take the last line before them along.
        """
        ahead = deque(spans)
        kept: list[Span] = []
        while ahead:
            span = ahead.popleft()
            if kept and not WORD.search(self._text, *span) and self._fits((kept[-1][0], span[1])):
                kept[-1] = (kept[-1][0], span[1])
            elif ahead and self._only_opens(span) and (parts := self._opened(span, ahead[0])):
                ahead.popleft()
                ahead.extendleft(reversed(parts))
            elif kept and not WORD.search(self._text, *span):
                line = self._last_line(kept[-1], span)
                kept[-1:] = [(kept[-1][0], line), (line, span[1])] if line else [kept[-1], span]
            else:
                kept.append(span)
        return kept

    def _last_line(self, before: Span, closing: Span) -> int | None:
        """Return where the last line with a word starts in `before`, for marks that close it.

        None where that leaves no word before it, or does not fit with the marks.
        """
        for match in reversed(list(_LINE_START.finditer(self._text, *before))):
            line = match.start()
            if WORD.search(self._text, line, before[1]):
                keeps_a_word = WORD.search(self._text, before[0], line)
                return line if keeps_a_word and self._fits((line, closing[1])) else None
        return None

    def _only_opens(self, span: Span) -> bool:
        """Whether there is no word in a span outside headings and an opening fence at its end."""
        end = self._without_fence(span)
        first = bisect_left(self._headings, span[0], key=lambda heading: heading.start)
        position = span[0]
        for heading in self._headings[first:]:
            if heading.end > end or WORD.search(self._text, position, heading.start):
                break
            position = heading.end
        return not WORD.search(self._text, position, end)

    def _without_fence(self, span: Span) -> int:
        """Return where a span ends if the line that opens a block of code at its end is left off.

        A line that closes one may look the same, but has no word.
        """
        is_markdown = self._format == "markdown"
        fence = _OPENING_FENCE.search(self._text[slice(*span)]) if is_markdown else None
        return span[0] + fence.start() if fence else span[1]

    def _opened(self, opener: Span, following: Span) -> list[Span]:
        """Return both spans with the opener joined to the first part; nothing if none fits."""
        room = self._capacity - self._size((opener[0], following[0]))
        if room < max(1, self._capacity // 2):  # a guess: a longer one may as well stand alone
            return []
        parts = self._visible(self._cut(following, room))
        joined = (opener[0], parts[0][1])
        return [joined, *parts[1:]] if self._fits(joined) else []

    def _with_indentation(self, spans: Sequence[Span]) -> list[Span]:
        """Return spans that start with the indentation of their first line, if it fits."""
        kept: list[Span] = []
        for start, end in spans:
            line = self._text.rfind("\n", kept[-1][0], start) + 1 if kept else 0
            if line and self._text[line:start].isspace() and self._fits((line, end)):
                kept[-1] = (kept[-1][0], min(kept[-1][1], line))
                start = line
            kept.append((start, end))
        return kept

    def _with_lead_ins(self, spans: Sequence[Span]) -> list[Span]:
        """Return spans where a last line that opens what follows, like "as follows:", starts it.

        It stays where it does not fit there, or where what is left before it would be a stump.
        """
        kept: deque[Span] = deque()
        for span in reversed(spans):
            rest: Span | None = span
            while rest and kept and (opened := self._lead_in(rest, kept[0])):
                kept.popleft()
                kept.extendleft(reversed(opened))
                start = opened[0][0]
                rest = (rest[0], start) if start > rest[0] else None
            if rest:
                kept.appendleft(rest)
        return list(kept)

    def _lead_in(self, span: Span, following: Span) -> list[Span]:
        """Return `following` with what opens it at the end of `span`; nothing if it stays there.

        `following` is cut in two where it does not fit otherwise and has a good place for that.
        """
        boundaries = self._boundaries
        if not boundaries.opens(span) or boundaries.strength(span, following[0]) > AT_BLOCK:
            return []
        lines = [place for place in boundaries.lines(span, span[1]) if place.strength > AT_SENTENCE]
        line = lines[-1].offset if lines else span[0]
        sentences = [
            place
            for place in boundaries.inside_lines((line, span[1]))
            if place.strength == AT_SENTENCE
        ]
        starts = [line, *(place.offset for place in sentences[-1:])]
        starts = [start for start in starts if self._stands_alone((span[0], start))]
        for start in [*starts, span[0]]:
            if self._fits((start, following[1])):
                return [(start, following[1])]
        for start in starts:
            if parts := self._balanced((start, following[0]), following, least=AT_LINE):
                return parts
        return []

    def _is_stump(self, span: Span) -> bool:
        """Whether a span is too short without the whitespace at its ends."""
        text = self._text[slice(*span)]
        start = span[0] + len(text) - len(text.lstrip())
        return self._size((start, start + len(text.strip()))) < self._minimum

    def _stands_alone(self, span: Span) -> bool:
        """Whether a span is neither a stump nor only opens what follows."""
        return not (self._is_stump(span) or self._only_opens(span))

    def _without_stumps(self, spans: Sequence[Span]) -> list[Span]:
        """Return spans in which what is shorter than `_minimum` is joined to a neighbour.

        Where neither has room, the cut between the two moves to where both are long enough.
        Each step leaves fewer stumps, so it ends.
        """
        mended = list(spans)
        i = 0
        while i < len(mended):
            step = self._mended(mended, i) if self._is_stump(mended[i]) else None
            if step is None:
                i += 1
                continue
            first, parts = step
            mended[first : first + 2] = parts
            i = max(0, first - 1)
        return mended

    def _mended(self, spans: Sequence[Span], i: int) -> tuple[int, list[Span]] | None:
        """Return where the pair starts that takes the place of stump `i`, and what it becomes.

        Joins where the text breaks least; a neighbour's part is moved before the stump is joined
        over a heading, and never over one.
        """
        firsts = [first for first in (i - 1, i) if 0 <= first < len(spans) - 1]
        strengths = {
            first: self._boundaries.strength(spans[first], spans[first + 1][0]) for first in firsts
        }
        firsts.sort(key=lambda first: strengths[first])
        inner = [first for first in firsts if strengths[first] <= AT_BLOCK]
        for first in inner:
            if self._fits((spans[first][0], spans[first + 1][1])):
                return first, [(spans[first][0], spans[first + 1][1])]
        for first in inner:
            if parts := self._balanced(spans[first], spans[first + 1]):
                return first, parts
        for first in firsts:
            if self._fits((spans[first][0], spans[first + 1][1])):
                return first, [(spans[first][0], spans[first + 1][1])]
        return None

    def _balanced(self, first: Span, second: Span, least: int = AT_WORD) -> list[Span]:
        """Return both spans cut at the best place that leaves neither a stump; nothing if none.

        Args:
            first: One span.
            second: The next.
            least: How much the text must break there at least.
        """
        whole = (first[0], second[1])
        lines = self._boundaries.lines(whole, second[0])
        for places in (
            [place for place in lines if place.strength > AT_SENTENCE],
            sorted([*lines, *self._boundaries.inside_lines(whole)], key=lambda place: place.offset),
        ):
            possible = self._between_stumps(
                whole, [place for place in places if place.strength >= least]
            )
            middle = (whole[0] + whole[1]) // 2
            possible.sort(
                key=lambda place: (-place.strength, place.indentation, abs(place.offset - middle))
            )
            for place in possible:
                parts = [(whole[0], place.offset), (place.offset, whole[1])]
                if all(self._fits(part) and self._stands_alone(part) for part in parts):
                    return parts
        return []

    def _between_stumps(self, whole: Span, places: Sequence[Boundary]) -> list[Boundary]:
        """Return the places where both parts should be long enough and fit, by few counts."""

        def is_late_enough(place: Boundary) -> bool:
            start, at, end = whole[0], place.offset, whole[1]
            return self._fits((at, end)) and not self._is_stump((start, at))

        def is_too_late(place: Boundary) -> bool:
            start, at, end = whole[0], place.offset, whole[1]
            return not self._fits((start, at)) or self._is_stump((at, end))

        first = bisect_left(places, True, key=is_late_enough)
        return list(places[first : bisect_left(places, True, lo=first, key=is_too_late)])


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
