"""Passages and the questions that they answer, from JSON lines or a folder in BEIR's form.

References:
    Thakur et al. (2021), BEIR: A Heterogeneous Benchmark for Zero-shot Evaluation of
    Information Retrieval Models, NeurIPS Datasets and Benchmarks.
"""

from __future__ import annotations

import gzip
import json
import lzma
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from sift_core.checks import as_count
from sift_core.errors import InvalidInputError

JUDGEMENT = ["query-id", "corpus-id", "score"]
ENCODING = "utf-8-sig"  # UTF-8; Windows programs put a byte order mark first


@dataclass(frozen=True, kw_only=True)
class Passage:
    """One row of a corpus."""

    passage_id: str
    title: str
    text: str

    @property
    def to_embed(self) -> str:
        """The title on a line of its own, if there is one, then the text."""
        return f"{self.title}\n{self.text}" if self.title else self.text


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question and the passages that answer it.

    Args:
        question_id: Unique within its set.
        text: The question.
        grades: Row of the corpus → how relevant that passage is, > 0; at least one.
        own_row: Row of the corpus that is the question itself, which no method may choose.
            Default: none.
    """

    question_id: str
    text: str
    grades: Mapping[int, float]
    own_row: int | None = None

    @property
    def gold(self) -> frozenset[int]:
        """The distinct rows of the corpus that answer the question, of any grade."""
        return frozenset(self.grades)


@dataclass(frozen=True, kw_only=True, eq=False)
class RetrievalSet:
    """A corpus, and questions that it answers.

    Args:
        name: Stands in every row of results.
        passages: The corpus.
        questions: At least one; their grades name rows of `passages`.
        n_without_gold: Questions that were read and left out because no passage answers them.
        n_skipped: Judgements that were left out: of a passage or query that is missing, of a
            question for itself, or of a pair that was judged before.
    """

    name: str
    passages: Sequence[Passage]
    questions: Sequence[Question]
    n_without_gold: int = 0
    n_skipped: int = 0

    def sample(self, n: int, seed: int = 0) -> RetrievalSet:
        """Return the set with n random questions in their order, or all if there are no more.

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
            "id" names a question. Default: its place in the file ("1", "2", …).
        name: Default: the name of the folder that holds `corpus`.

    Raises:
        InvalidInputError: If a file is missing or empty, a row is not as above, two passages
            or two questions have one id, or `gold` is empty or names a passage that is missing.
    """
    passages, row_of = _read_passages(corpus, "id")
    questions = []
    for question_id, line in _read_by_id(queries, "id", "questions", is_numbered=True).items():
        named = line.values.get("gold")
        if not isinstance(named, list) or not named:
            raise line.error(f"needs the ids of at least one passage under 'gold', got {named!r}")
        gold = {line.as_identifier(one, "gold") for one in named}
        if unknown := sorted(gold - row_of.keys()):
            raise line.error(f"'gold' names passages that are not in the corpus: {unknown[:5]}")
        grades = dict.fromkeys(sorted(row_of[one] for one in gold), 1.0)
        text = line.text("question")
        questions.append(Question(question_id=question_id, text=text, grades=grades))
    return RetrievalSet(
        name=Path(corpus).resolve().parent.name if name is None else name,
        passages=passages,
        questions=questions,
    )


def read_beir(folder: str | Path, split: str = "test") -> RetrievalSet:
    """Return the questions of one split of a BEIR set, and the whole corpus.

    Needs `corpus.jsonl` of {_id, title, text} and `queries.jsonl` of {_id, text}, each plain or
    with .gz, and `qrels/<split>.tsv` with the header query-id, corpus-id, score. The split
    has the questions that it judges. A score of at most 0 means "not relevant"; a question
    with no higher one is left out and counted in `n_without_gold`.

    Official sets judge passages that their corpus lacks, and pairs twice. Such judgements are
    left out and counted in `n_skipped`; of a pair the highest score counts. A passage with the
    id and the text of the question, as in ArguAna and Quora, is not searched.

    Args:
        folder: Its name becomes that of the set.
        split: "test", "dev" or "train", if the set has it.

    Raises:
        InvalidInputError: If a file is missing or empty, a line is not as above, two
            passages or queries have one id, or no question has a relevant passage.
    """
    folder = Path(folder)
    passages, row_of = _read_passages(_existing(folder, "corpus.jsonl"), "_id")
    queries = _read_by_id(_existing(folder, "queries.jsonl"), "_id", "queries")
    texts = {query_id: line.text("text") for query_id, line in queries.items()}
    path = folder / "qrels" / f"{split}.tsv"
    if not path.exists():
        found = sorted(one.stem for one in path.parent.glob("*.tsv"))
        raise InvalidInputError(f"there is no {path}; splits there: {', '.join(found) or 'none'}")
    scores: dict[str, dict[int, float]] = {}
    own_rows = {
        query_id: row_of[query_id]
        for query_id in texts.keys() & row_of.keys()
        if _has_text(passages[row_of[query_id]], texts[query_id])
    }
    n_skipped = 0
    for line in _judgements(path):
        query_id, passage_id, score = (line.values[key] for key in JUDGEMENT)
        row = row_of.get(passage_id)
        if query_id not in texts or row in (None, own_rows.get(query_id)):
            n_skipped += 1
            continue
        of_query, row = scores.setdefault(query_id, {}), row_of[passage_id]
        n_skipped += row in of_query
        of_query[row] = max(score, of_query.get(row, score))
    questions = [
        Question(
            question_id=query_id,
            text=texts[query_id],
            grades=grades,
            own_row=own_rows.get(query_id),
        )
        for query_id, of_query in scores.items()
        if (grades := {row: score for row, score in of_query.items() if score > 0})
    ]
    if not questions:
        raise InvalidInputError(f"{path}: no query has a relevant passage (a score above 0)")
    return RetrievalSet(
        name=folder.resolve().name,
        passages=passages,
        questions=questions,
        n_without_gold=len(scores) - len(questions),
        n_skipped=n_skipped,
    )


def _has_text(passage: Passage, text: str) -> bool:
    """Tell whether a passage is the text, or has it whole; spaces do not count."""
    return "".join(text.split()) in "".join(passage.to_embed.split())


def _existing(folder: Path, name: str) -> Path:
    for path in (folder / name, folder / f"{name}.gz"):
        if path.exists():
            return path
    raise InvalidInputError(
        f"{folder} has no {name} or {name}.gz: is it the folder of one set in BEIR's form?"
    )


def _judgements(path: Path) -> Iterator[Record]:
    """Yield the lines below the header, each with two ids and a finite score."""
    lines = read_lines(path)
    _, header = next(lines, (1, ""))
    if header.split("\t") != JUDGEMENT:
        raise InvalidInputError(
            f"{path}: the first line must be {', '.join(JUDGEMENT)}, with tabs between them, got "
            f"{header[:80]!r}"
        )
    for number, text in lines:
        cells: list[Any] = text.split("\t")
        try:
            cells[-1] = float(cells[-1])
        except ValueError:
            cells = []
        line = Record(path=path, number=number, values=dict(zip(JUDGEMENT, cells, strict=False)))
        if len(cells) != len(JUDGEMENT) or not math.isfinite(cells[-1]):
            raise line.error(
                f"must be an id, an id and a number, with tabs between them, got {text[:80]!r}"
            )
        yield line


def _read_passages(path: str | Path, id_key: str) -> tuple[list[Passage], dict[str, int]]:
    """Return the passages of a file, and the row of each under its id."""
    lines = _read_by_id(path, id_key, "passages")
    passages = [
        Passage(passage_id=passage_id, title=line.text("title", ""), text=line.text("text"))
        for passage_id, line in lines.items()
    ]
    return passages, {passage_id: row for row, passage_id in enumerate(lines)}


def _read_by_id(
    path: str | Path, id_key: str, noun: str, *, is_numbered: bool = False
) -> dict[str, Record]:
    """Return the objects of a file under their ids, in its order; at least one.

    Args:
        path: As `read_json_lines`.
        id_key: Under which a row has its id.
        noun: Names the rows in an error, in the plural.
        is_numbered: Whether the id of a row without one is its place among the rows, from 1.
    """
    found: dict[str, Record] = {}
    for place, line in enumerate(read_json_lines(path), start=1):
        has_no_id = is_numbered and id_key not in line.values
        row_id = str(place) if has_no_id else line.identifier(id_key)
        if row_id in found:
            raise line.error(f"two {noun} have one id, {row_id!r}")
        found[row_id] = line
    if not found:
        raise InvalidInputError(f"{path} has no {noun}")
    return found


@dataclass(frozen=True, kw_only=True)
class Record:
    """One row of a file and its place; `number` counts lines from 1."""

    path: Path
    number: int
    values: Mapping[str, Any]

    def text(self, key: str, default: str | None = None) -> str:
        """Return the text under a key, or `default` if there is none.

        Raises:
            InvalidInputError: If there is no text and no default, or the value is no text.
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
            InvalidInputError: If it is no whole number and no text, or an empty text.
        """
        if isinstance(value, bool) or not isinstance(value, (str, int)) or value == "":
            raise self.error(f"needs an id under {key!r}, got {value!r}")
        return str(value)

    def error(self, message: str) -> InvalidInputError:
        """Return an error that begins with the line's place."""
        return InvalidInputError(f"{self.path}, line {self.number}: {message}")


def read_json_lines(path: str | Path) -> Iterator[Record]:
    """Yield the objects of a file in its order.

    Args:
        path: As `read_lines`.

    Raises:
        InvalidInputError: As `read_lines`, or if a line is no JSON object.
    """
    path = Path(path)
    for number, text in read_lines(path):
        try:
            line = Record(path=path, number=number, values=json.loads(text))
        except (ValueError, RecursionError) as error:
            raise InvalidInputError(f"{path}, line {number}: no JSON: {error}") from error
        if not isinstance(line.values, dict):
            raise line.error(f"must be a JSON object, got {text[:50]!r}")
        yield line


def read_lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a text file with their numbers from 1, without the blank ones.

    Args:
        path: UTF-8, with or without a byte order mark; compressed if it ends in .gz or .xz.

    Raises:
        InvalidInputError: If there is no such file, or it cannot be decompressed or decoded.
    """
    path = Path(path)
    opener: Any = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
    number = 0
    try:
        with opener(path, "rt", encoding=ENCODING) as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield number, line.rstrip("\n")
    except FileNotFoundError as error:
        raise InvalidInputError(f"there is no file {path}") from error
    except (OSError, EOFError, UnicodeDecodeError, zlib.error, lzma.LZMAError) as error:
        raise InvalidInputError(f"{path} cannot be read after line {number}: {error}") from error
