"""The demo's collection: the handbook of an invented harbour, its questions, and what counts."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sift_core import CandidatePool

HARBOUR = Path(__file__).parent / "harbour"
PAGES = HARBOUR / "pages"
QUESTIONS = HARBOUR / "questions.jsonl"

# How a model says that it does not know. Only these count for a question without an answer.
_DOES_NOT_KNOW = re.compile(
    r"(\bnot|n['\u2019]t|\bcannot) (know|say|mention|state|specify|provide|contain|answer|tell)\b"
    r"|\bnot (mentioned|stated|specified|provided|known|recorded)\b"
    r"|\bno (information|mention|answer)\b|\bunknown\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, kw_only=True)
class Fact:
    """A statement of a page.

    Args:
        page: The page, relative to the folder of pages.
        text: Its words, which stand on no other page.
    """

    page: str
    text: str

    def stands_in(self, page: str, chunk: str) -> bool:
        """Return whether a chunk of a page states it: the words, whatever blanks are between."""
        return page == self.page and one_spaced(self.text) in one_spaced(chunk)


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question of someone who works in the harbour.

    Args:
        question_id: Such as "q07".
        kind: Such as "two hops".
        text: The question.
        facts: All that its answer needs.
        answers: Accepted spellings of each part of the answer. None if there is no answer.
    """

    question_id: str
    kind: str
    text: str
    facts: tuple[Fact, ...]
    answers: tuple[tuple[str, ...], ...]

    def found(self, chunks: CandidatePool) -> list[bool]:
        """Return of each fact whether one of the chunks states it."""
        pages = [str(one.get("source", "")) for one in chunks.metadata]
        chosen = list(zip(pages, chunks.texts, strict=True))
        return [any(fact.stands_in(*one) for one in chosen) for fact in self.facts]

    def fact_in(self, chunks: CandidatePool, row: int) -> Fact | None:
        """Return the first fact that a chunk states."""
        page = str(chunks.metadata[row].get("source", ""))
        return next((one for one in self.facts if one.stands_in(page, chunks.texts[row])), None)

    def is_right(self, answer: str) -> bool:
        """Return whether an answer has each part in an accepted spelling, as whole words.

        If there is no answer, it is right to say that one does not know.
        """
        if not self.answers:
            return _DOES_NOT_KNOW.search(answer) is not None
        text = one_spaced(answer)
        return all(any(_has_words(text, one) for one in part) for part in self.answers)


def read_questions(path: Path = QUESTIONS) -> list[Question]:
    """Return the questions of a file, in its order."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [
        Question(
            question_id=one["id"],
            kind=one["kind"],
            text=one["question"],
            facts=tuple(Fact(**fact) for fact in one["facts"]),
            answers=tuple(tuple(part) for part in one["answers"]),
        )
        for one in map(json.loads, filter(str.strip, lines))
    ]


def by_kind(questions: Sequence[Question]) -> dict[str, list[int]]:
    """Return the rows of each kind, in the order in which kinds come first."""
    rows: dict[str, list[int]] = {}
    for row, question in enumerate(questions):
        rows.setdefault(question.kind, []).append(row)
    return rows


def one_spaced(text: str) -> str:
    """Return a text in which each run of blanks is one space."""
    return " ".join(text.split())


def _has_words(text: str, words: str) -> bool:
    """Return whether words stand in a text: not "7" in "17", in "7.5" or in "7th"."""
    pattern = rf"(?<!\w)(?<!\d[.,]){re.escape(one_spaced(words))}(?!\w|[.,]\d)"
    return re.search(pattern, text, re.IGNORECASE) is not None
