"""Marks such as [1], by which an answer names the chunks that the model has read."""

from __future__ import annotations

import re

from sift_core.answering.answer import Citation
from sift_core.types import CandidatePool

INSTRUCTION = (
    "Answer from the numbered texts above. After each statement put the number of the text that "
    "it is from, such as [1]."
)
_MARKS = re.compile(r"\[(\d{1,4}(?:\s*,\s*\d{1,4})*)\]")
_NUMBER = re.compile(r"\d+")


def numbered(text: str, number: int) -> str:
    """Return a chunk as it stands in the prompt."""
    return f"[{number}] {text}"


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
    for found in _MARKS.finditer(text):
        for number in map(int, _NUMBER.findall(found.group(1))):
            if not 1 <= number <= len(read):
                unknown[number] = None
                continue
            citations.append(
                Citation(
                    mark=number,
                    start=found.start(),
                    end=found.end(),
                    position=number - 1,
                    document_id=read.document_ids[number - 1],
                )
            )
    return tuple(citations), tuple(unknown)
