"""Passages and the questions that they answer, from JSON lines, plain or compressed.

The form here is the one of this project's own data; `beir.py` reads BEIR's.
"""

from __future__ import annotations

import gzip
import json
import lzma
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from sift_core.checks import as_count
from sift_core.errors import InvalidInputError

ENCODING = "utf-8-sig"  # UTF-8; programs of Windows put a byte order mark before it


@dataclass(frozen=True, kw_only=True)
class Passage:
    """One row of a corpus."""

    passage_id: str
    title: str
    text: str

    @property
    def to_embed(self) -> str:
        """The title on a line of its own, where there is one, then the text."""
        return f"{self.title}\n{self.text}" if self.title else self.text


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked, and what answers it.

    Args:
        question_id: Tells it apart within its set.
        text: The question.
        grades: Row of the corpus → how relevant that passage is, > 0; at least one.
    """

    question_id: str
    text: str
    grades: Mapping[int, float]

    @property
    def gold(self) -> frozenset[int]:
        """The distinct rows of the corpus that answer the question, whatever their grade."""
        return frozenset(self.grades)


@dataclass(frozen=True, kw_only=True, eq=False)
class RetrievalSet:
    """A corpus, and questions that it answers.

    Args:
        name: Stands in every row of results.
        passages: The corpus.
        questions: At least one; their grades name rows of `passages`.
        n_without_gold: Questions that were read and left out because no passage answers them.
    """

    name: str
    passages: Sequence[Passage]
    questions: Sequence[Question]
    n_without_gold: int = 0

    def sample(self, n: int, seed: int = 0) -> RetrievalSet:
        """Return the set with n random questions in their order, all where there are no more.

        Raises:
            InvalidInputError: If `n` is not a whole number of at least 1.
        """
        n, n_all = as_count("n", n, minimum=1), len(self.questions)
        if n >= n_all:
            return self
        drawn = np.random.default_rng(seed).choice(n_all, n, replace=False)
        return replace(self, questions=[self.questions[i] for i in sorted(drawn)])


def read_retrieval_set(
    corpus: str | Path, queries: str | Path, *, name: str | None = None
) -> RetrievalSet:
    """Return a set from two files of JSON lines, plain or compressed (.gz, .xz).

    Args:
        corpus: Rows {id, title, text}; the title may be missing.
        queries: Rows {question, gold}; `gold` has the ids of all passages that answer it.
            "id" names a question, its place in the file ("1", "2", …) where there is none.
        name: That of the folder that `corpus` is in if None.

    Raises:
        InvalidInputError: If a file is missing or empty, a row is not as above, two passages
            or two questions have one id, or `gold` is empty or names what is not there.
    """
    passages = [as_passage(line) for line in lines_by_id(corpus, "id", "passages").values()]
    row_of = rows_by_id(passages)
    return RetrievalSet(
        name=Path(corpus).resolve().parent.name if name is None else name,
        passages=passages,
        questions=[
            Question(
                question_id=question_id,
                text=line.text("question"),
                grades=dict.fromkeys(_gold(line, row_of), 1.0),
            )
            for question_id, line in lines_by_id(queries, "id", "questions", numbered=True).items()
        ],
    )


def lines_by_id(
    path: str | Path, id_key: str, what: str, *, numbered: bool = False
) -> dict[str, JsonLine]:
    """Return the objects of a file under their ids, in its order.

    Args:
        path: As `read_json_lines`.
        id_key: Under which a row has its id.
        what: Names the rows in an error, in the plural.
        numbered: Whether a row without an id is called by its place among the rows, from 1.

    Raises:
        InvalidInputError: As `read_json_lines`, or if there is no row, two have one id, or one
            has none and they are not numbered.
    """
    found: dict[str, JsonLine] = {}
    for place, line in enumerate(read_json_lines(path), start=1):
        unnamed = numbered and id_key not in line.values
        row_id = str(place) if unnamed else line.identifier(id_key)
        if row_id in found:
            raise line.error(f"two {what} have one id, {row_id!r}")
        found[row_id] = line
    if not found:
        raise InvalidInputError(f"{path} has no {what}")
    return found


def rows_by_id(passages: Sequence[Passage]) -> dict[str, int]:
    """Return the row of the corpus under each passage's id."""
    return {passage.passage_id: i for i, passage in enumerate(passages)}


def as_passage(line: JsonLine, id_key: str = "id") -> Passage:
    """Return the passage of one line."""
    return Passage(
        passage_id=line.identifier(id_key), title=line.text("title", ""), text=line.text("text")
    )


def _gold(line: JsonLine, row_of: Mapping[str, int]) -> list[int]:
    """Return the distinct rows of the gold passages in the order of the corpus."""
    named = line.values.get("gold")
    if not isinstance(named, list) or not named:
        raise line.error(f"needs the ids of at least one passage under 'gold', got {named!r}")
    gold = [line.as_identifier(one, "gold") for one in named]
    unknown = sorted(set(gold) - row_of.keys())
    if unknown:
        raise line.error(f"'gold' names passages that are not in the corpus: {unknown[:5]}")
    return sorted({row_of[one] for one in gold})


@dataclass(frozen=True, kw_only=True)
class JsonLine:
    """One object and where it stands: `number` counts from 1."""

    path: Path
    number: int
    values: Mapping[str, Any]

    def text(self, key: str, default: str | None = None) -> str:
        """Return the text under a key, `default` where there is none.

        Raises:
            InvalidInputError: If there is no text and no default, or something else is there.
        """
        value = self.values.get(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, str):
            raise self.error(f"needs a text under {key!r}, got {value!r}")
        return value

    def identifier(self, key: str) -> str:
        """Return the id under a key; a whole number counts as its digits.

        Raises:
            InvalidInputError: If there is none.
        """
        return self.as_identifier(self.values.get(key), key)

    def as_identifier(self, value: object, key: str) -> str:
        """Return a value that was found under a key as an id.

        Raises:
            InvalidInputError: If it is neither a whole number nor a text with something in it.
        """
        if isinstance(value, bool) or not isinstance(value, (str, int)) or value == "":
            raise self.error(f"needs an id under {key!r}, got {value!r}")
        return str(value)

    def error(self, message: str) -> InvalidInputError:
        """Return the error that says this of the line."""
        return InvalidInputError(f"{self.path}, line {self.number}: {message}")


def read_json_lines(path: str | Path) -> Iterator[JsonLine]:
    """Yield the objects of a file in its order; blank lines and a byte order mark are skipped.

    Args:
        path: Ends in .gz or .xz where it is compressed.

    Raises:
        InvalidInputError: If there is no such file, it cannot be decompressed or decoded, or
            a line is no JSON object.
    """
    path = Path(path)
    number = 0
    try:
        with _opened(path) as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield _parsed(path, number, line)
    except FileNotFoundError as error:
        raise InvalidInputError(f"there is no file {path}") from error
    except (OSError, EOFError, UnicodeDecodeError, zlib.error, lzma.LZMAError) as error:
        raise InvalidInputError(f"{path} cannot be read after line {number}: {error}") from error


def _opened(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding=ENCODING)
    if path.suffix == ".xz":
        return lzma.open(path, "rt", encoding=ENCODING)
    return path.open(encoding=ENCODING)


def _parsed(path: Path, number: int, text: str) -> JsonLine:
    try:
        line = JsonLine(path=path, number=number, values=json.loads(text))
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"{path}, line {number}: no JSON: {error}") from error
    if not isinstance(line.values, dict):
        raise line.error(f"must be a JSON object, got {text[:50]!r}")
    return line
