"""Marks such as [1] in an answer, and the chunks that they name."""

from __future__ import annotations

import re

from sift_core.answering.answer import Citation
from sift_core.types import CandidatePool

_MARKS = re.compile(r"\[(\d{1,4}(?:\s*,\s*\d{1,4})*)\]")
_NUMBER = re.compile(r"\d+")


def citations_in(text: str, read: CandidatePool) -> tuple[tuple[Citation, ...], tuple[int, ...]]:
    """Return the marks of an answer that name a chunk, and the numbers of those that name none.

    "[1, 3]" is two marks of one span. What a chunk itself has in brackets, and the model copies,
    looks like a mark.

    Args:
        text: The answer.
        read: The chunks that were numbered from 1, in order.
    """
    citations: list[Citation] = []
    unknown: dict[int, None] = {}
    for mark in _MARKS.finditer(text):
        for number in map(int, _NUMBER.findall(mark.group(1))):
            if not 1 <= number <= len(read):
                unknown[number] = None
                continue
            citations.append(
                Citation(
                    mark=number,
                    start=mark.start(),
                    end=mark.end(),
                    position=number - 1,
                    document_id=read.document_ids[number - 1],
                )
            )
    return tuple(citations), tuple(unknown)
