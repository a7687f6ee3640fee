"""Where to cut a text: semantic-text-splitter's choice, with headings kept on what they head."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Literal

from sift_core.chunking.headings import Heading
from sift_core.errors import MissingDependencyError

try:
    import semantic_text_splitter
    import tree_sitter_python
    import tree_sitter_rst
except ImportError as error:
    package = (error.name or "semantic_text_splitter").replace("_", "-")
    raise MissingDependencyError(package, extra="index") from error

TextFormat = Literal["markdown", "rst", "python", "text"]
Span = tuple[int, int]

_WORD = re.compile(r"\w")
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

    def spans(self) -> list[Span]:
        """Return (start, end) of each chunk, in order; what is between them is whitespace."""
        whole = (0, len(self._text))
        cut = self._sections if self._format == "rst" else self._cut
        return self._with_indentation(self._with_openers(self._visible(cut(whole))))

    def overlap_start(self, before: Span, start: int, overlap: int) -> int:
        """Return where a chunk starts that repeats at most `overlap` of the span before it.

        That is the start of a line, else of a word, else `start`.
        """
        for pattern in (_LINE_START, _WORD_START):
            places = [match.start() for match in pattern.finditer(self._text, before[0], start)]
            first = bisect_left(
                places, True, key=lambda place: self._size((place, start)) <= overlap
            )
            if first < len(places) and VISIBLE.search(self._text, places[first], start):
                return places[first]
        return start

    def _size(self, span: Span) -> int:
        return self._count(self._text[slice(*span)])

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
            if kept and not _WORD.search(self._text, *span) and self._fits((kept[-1][0], span[1])):
                kept[-1] = (kept[-1][0], span[1])
            elif ahead and self._only_opens(span) and (parts := self._opened(span, ahead[0])):
                ahead.popleft()
                ahead.extendleft(reversed(parts))
            elif kept and not _WORD.search(self._text, *span):
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
            if _WORD.search(self._text, line, before[1]):
                keeps_a_word = _WORD.search(self._text, before[0], line)
                return line if keeps_a_word and self._fits((line, closing[1])) else None
        return None

    def _only_opens(self, span: Span) -> bool:
        """Whether there is no word in a span outside headings and an opening fence at its end."""
        end = self._without_fence(span)
        first = bisect_left(self._headings, span[0], key=lambda heading: heading.start)
        position = span[0]
        for heading in self._headings[first:]:
            if heading.end > end or _WORD.search(self._text, position, heading.start):
                break
            position = heading.end
        return not _WORD.search(self._text, position, end)

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
