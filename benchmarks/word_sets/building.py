"""Make a set of questions from filled templates: one chunk a record, one gold chunk a question."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.word_sets.vocabulary import pick_several
from sift_core.evaluation.data import Passage, Question, RetrievalSet

N_CHUNKS, N_QUESTIONS = 220, 100  # decision 0024


@dataclass(frozen=True, kw_only=True)
class KeyedQuestion:
    """One question that a chunk answers.

    Args:
        text: The question.
        answer: Stands in the chunk, letter by letter.
        keys: What tells the chunk from the others, as written there. Only the gold chunk has all.
    """

    text: str
    answer: str
    keys: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Record:
    """A filled template and its questions; at least one has keys that no other record has."""

    title: str
    text: str
    questions: Sequence[KeyedQuestion]


@dataclass(frozen=True, kw_only=True, eq=False)
class TemplatedSet:
    """A set of chunks of one template.

    Args:
        retrieval_set: Its passages and questions, each with one gold chunk.
        answers: Question's id → answer, which stands in the gold chunk letter by letter.
        keys: Question's id → what only the gold chunk has, all of them together. In mail threads:
            the project, which all mails of the gold one's thread have.
    """

    retrieval_set: RetrievalSet
    answers: Mapping[str, str]
    keys: Mapping[str, tuple[str, ...]]

    def holds_answer(self, question: Question, rows: Sequence[int]) -> bool:
        """Return whether the answer of a question stands in the text of any of these rows."""
        answer = self.answers[question.question_id]
        return any(mentions(self.retrieval_set.passages[row].to_embed, answer) for row in rows)


def mentions(text: str, value: str) -> bool:
    """Return whether a value stands in a text as a whole, in any case.

    "4.1.2" does not stand in "14.1.2" nor in "4.1.20"; "orders" stands in "fetch_orders".
    """
    if value.lower() not in text.lower():  # spares the pattern in most cases
        return False
    pattern = rf"(?<![^\W_])(?<!\d[.,:-]){re.escape(value)}(?![^\W_])(?![.,:-]\d)"
    return re.search(pattern, text, re.IGNORECASE) is not None


def build(name: str, records: Sequence[Record], rng: np.random.Generator) -> TemplatedSet:
    """Return a set of these records, with questions for some of them.

    The questions of a drawn record are tried in random order. The first is taken whose keys no
    other record has.

    Args:
        name: Of the set.
        records: One chunk each.
        rng: Chooses records and their questions.
    """
    texts = [f"{record.title}\n{record.text}" for record in records]
    questions, answers, keys = [], {}, {}
    for row in sorted(pick_several(rng, range(len(records)), N_QUESTIONS)):
        choices = records[row].questions
        keyed = next(
            keyed
            for keyed in pick_several(rng, choices, len(choices))
            if [i for i, text in enumerate(texts) if all(mentions(text, k) for k in keyed.keys)]
            == [row]
        )
        question = Question(question_id=f"{name}/{row}", text=keyed.text, grades={row: 1.0})
        questions.append(question)
        answers[question.question_id] = keyed.answer
        keys[question.question_id] = keyed.keys
    passages = [
        Passage(passage_id=f"{name}/{row}", title=record.title, text=record.text)
        for row, record in enumerate(records)
    ]
    found = RetrievalSet(name=name, passages=passages, questions=questions)
    return TemplatedSet(retrieval_set=found, answers=answers, keys=keys)
