"""Passages and the questions that they answer, from JSON lines.

The form here is the one of this project's own data; `beir.py` reads BEIR's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from sift_core.checks import as_count
from sift_core.errors import InvalidInputError
from sift_core.evaluation.json_lines import JsonLine, read_json_lines


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
    passages = read_corpus(corpus)
    return RetrievalSet(
        name=Path(corpus).resolve().parent.name if name is None else name,
        passages=passages,
        questions=read_questions(queries, passages),
    )


def read_corpus(path: str | Path, id_key: str = "id") -> list[Passage]:
    """Return the passages of a corpus in its order.

    Args:
        path: As `read_retrieval_set`'s `corpus`.
        id_key: Under which a row has its id.

    Raises:
        InvalidInputError: As `read_retrieval_set`.
    """
    passages: list[Passage] = []
    seen: set[str] = set()
    for line in read_json_lines(path):
        passage = as_passage(line, id_key)
        if passage.passage_id in seen:
            raise line.error(f"two passages have one id, {passage.passage_id!r}")
        seen.add(passage.passage_id)
        passages.append(passage)
    if not passages:
        raise InvalidInputError(f"{path} has no passages")
    return passages


def read_questions(path: str | Path, passages: Sequence[Passage]) -> list[Question]:
    """Return the questions of a file in its order; every gold passage has the grade 1.

    Raises:
        InvalidInputError: As `read_retrieval_set`.
    """
    row_of = rows_by_id(passages)
    questions: dict[str, Question] = {}
    for i, line in enumerate(read_json_lines(path), start=1):
        question_id = line.identifier("id") if "id" in line.values else str(i)
        if question_id in questions:
            raise line.error(f"two questions have one id, {question_id!r}")
        questions[question_id] = Question(
            question_id=question_id,
            text=line.text("question"),
            grades=dict.fromkeys(_gold(line, row_of), 1.0),
        )
    if not questions:
        raise InvalidInputError(f"{path} has no questions")
    return list(questions.values())


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
