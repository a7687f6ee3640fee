"""The questions of a diagnosis: the user's own, or openings of chunks that stand in for them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sift_core.checks import as_count
from sift_core.errors import InvalidInputError
from sift_core.evaluation.data import read_lines
from sift_core.places import document_of
from sift_core.types import DocumentSample, Metadata

LONGEST_STAND_IN = 200  # characters: longer than a question is. Guess.
FEWEST_WORDS = 3  # a shorter sentence says nothing: more of the chunk is taken. Guess.

_WORD = re.compile(r"\w*[^\W\d_]\w*")  # has a letter
_FENCE = re.compile(r"^\s*(```|~~~).*$", re.MULTILINE)
_HEADING = re.compile(r"^\s*#{1,6}\s+(.*?)\s*#*\s*$")
_MARKS = re.compile(r"[*_`>|#]+")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[\u3002\uff01\uff1f])")


@dataclass(frozen=True, kw_only=True)
class Question:
    """One question.

    Args:
        text: In words, not empty.
        chunk_id: The chunk that it stands in for. A question of the user's has None.
        document: The document of that chunk, which does not count as an answer.
    """

    text: str
    chunk_id: str | None = None
    document: str | None = None


@dataclass(frozen=True, kw_only=True)
class QuestionSet:
    """The questions that are asked.

    Args:
        questions: At least one.
        origin: The file's name; None for stand-ins.
    """

    questions: tuple[Question, ...]
    origin: str | None = None


def read_questions(
    path: str | Path, n_questions: int, generator: np.random.Generator
) -> QuestionSet:
    """Return questions from a file, a random choice of them if there are more.

    Args:
        path: Text in UTF-8, one question a line; compressed if it ends in .gz or .xz. Blank lines
            and repeats do not count.
        n_questions: How many at most, >= 1.
        generator: Draws the choice, which keeps the order of the file.

    Raises:
        InvalidInputError: If the file cannot be read, is not UTF-8, or has no question.

    Example:
        >>> found = read_questions(folder / "questions.txt", 50, np.random.default_rng(0))
        >>> len(found.questions)
        1
    """
    path = Path(path)
    n_questions = as_count("n_questions", n_questions, minimum=1)
    found = list(dict.fromkeys(line.strip() for _, line in read_lines(path)))
    if any("\0" in line for line in found):
        raise InvalidInputError(f"{path} is no text: it holds zero bytes; pass one question a line")
    if not found:
        raise InvalidInputError(
            f"{path} has no question in it; write one a line, or leave the file out: sentences "
            f"of the collection then stand in"
        )
    drawn = np.sort(generator.permutation(len(found))[:n_questions])
    return QuestionSet(
        questions=tuple(Question(text=found[position]) for position in drawn),
        origin=path.name,
    )


def stand_ins(sample: DocumentSample, n_questions: int) -> QuestionSet:
    """Return the openings of sampled chunks as questions.

    Args:
        sample: In random order; chunks without a word are passed over.
        n_questions: How many at most, >= 1.

    Raises:
        InvalidInputError: If no chunk has a word.
    """
    chunks = zip(sample.document_ids, sample.texts, sample.metadata, strict=True)
    questions = [
        Question(text=opening, chunk_id=chunk_id, document=document_name(chunk_id, metadata))
        for chunk_id, text, metadata in chunks
        if (opening := stand_in(text, metadata.get("heading")))
    ]
    if not questions:
        raise InvalidInputError(
            f"none of {len(sample)} sampled chunks has a word in it that could stand in for a "
            f"question; pass questions of your own (`questions`, --queries FILE)"
        )
    return QuestionSet(questions=tuple(questions[:n_questions]))


def stand_in(text: str, heading: object = None) -> str:
    """Return the heading and the first sentence of a chunk as one line; empty without a word.

    Args:
        text: The chunk. Marks of Markdown are left out; a sentence of fewer than
            `FEWEST_WORDS` words takes the next one with it.
        heading: The value of the chunk's metadata under "heading": a text, or the titles above
            it, outermost first, of which the last is taken. Anything else counts as none.
    """
    lines = _FENCE.sub("", text).splitlines()
    if isinstance(heading, (list, tuple)) and heading:
        heading = heading[-1]
    title = heading if isinstance(heading, str) else ""
    while lines and (not lines[0].strip() or _HEADING.match(lines[0])):
        first = _HEADING.match(lines.pop(0))
        title = first.group(1) if first else title
    sentence = ""
    for part in _SENTENCE_END.split(_unmarked(" ".join(lines))):
        sentence = f"{sentence} {part}".strip()
        if len(_WORD.findall(sentence)) >= FEWEST_WORDS:
            break
    opening = ": ".join(part for part in (_unmarked(title), sentence) if part)
    if not _WORD.search(opening):
        return ""
    too_long = len(opening) > LONGEST_STAND_IN
    return opening[:LONGEST_STAND_IN].rsplit(" ", 1)[0] if too_long else opening


def _unmarked(text: str) -> str:
    return " ".join(_MARKS.sub(" ", text).split())


def document_name(chunk_id: str, metadata: Metadata) -> str:
    """Return the name of the document that a chunk is from, or its own id if there is none."""
    return document_of(metadata) or document_of(metadata, "ref_doc_id") or chunk_id  # LlamaIndex
