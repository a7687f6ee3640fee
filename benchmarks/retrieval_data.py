"""Passages, questions and given variants of passages, from JSON lines as in ../shared/data."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ORIGINAL_KEYS = ("duplicate_of", "original", "of")  # any of them names a variant's passage


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
    """What is asked, and the distinct passages (rows of the corpus) that answer it together."""

    text: str
    gold: frozenset[int]


def read_corpus(path: Path) -> list[Passage]:
    """Return the passages of a corpus.jsonl or corpus.jsonl.gz, in its order.

    Raises:
        ValueError: If two rows have one id.
    """
    passages = [_passage(row) for row in _rows(path)]
    if len({passage.passage_id for passage in passages}) < len(passages):
        raise ValueError(f"{path}: two passages have one id")
    return passages


def read_questions(
    path: Path, passages: Sequence[Passage], *, at_most: int | None = None, seed: int = 0
) -> list[Question]:
    """Return the questions of a queries.jsonl or queries.jsonl.gz, in its order.

    Args:
        path: Its rows have "question" and "gold", ids of passages.
        passages: The corpus.
        at_most: Where there are more questions, a random subset of so many.
        seed: Of the subset.

    Raises:
        ValueError: If a row names no gold passage, or one that is not in the corpus.
    """
    row_of = {passage.passage_id: i for i, passage in enumerate(passages)}
    questions = []
    for row in _rows(path):
        unknown = set(row["gold"]) - row_of.keys()
        if unknown or not row["gold"]:
            raise ValueError(f"{path}: {row['question']!r}: not in the corpus: {sorted(unknown)}")
        gold = frozenset(row_of[one] for one in row["gold"])
        questions.append(Question(text=row["question"], gold=gold))
    if at_most is None or at_most >= len(questions):
        return questions
    drawn = np.random.default_rng(seed).choice(len(questions), at_most, replace=False)
    return [questions[i] for i in sorted(drawn)]


def read_variants(path: Path, passages: Sequence[Passage]) -> tuple[list[Passage], list[int]]:
    """Return the variants in a file and, for each, the row of the passage that it varies.

    A row names its passage under one of `ORIGINAL_KEYS`. Without any it must be a passage of
    the corpus itself, and is left out.

    Raises:
        ValueError: If a row belongs to no passage of the corpus.
    """
    row_of = {passage.passage_id: i for i, passage in enumerate(passages)}
    variants, originals = [], []
    for row in _rows(path):
        named = [row[key] for key in ORIGINAL_KEYS if row.get(key) is not None]
        original = named[0] if named else row["id"]
        if original not in row_of:
            raise ValueError(f"{path}: {row['id']!r} is no variant of a passage of the corpus")
        if named:
            variants.append(_passage(row))
            originals.append(row_of[original])
    return variants, originals


def _passage(row: dict[str, Any]) -> Passage:
    return Passage(passage_id=row["id"], title=row.get("title") or "", text=row["text"])


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            if line.strip():
                yield json.loads(line)
