"""The demo's second half: what the language model answers from each method's chunks."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, zip_longest

from demo_harbour import by_kind
from demo_methods import METHODS, N_CHUNKS, Comparison
from demo_report import expected, print_answer, print_right_answers, progress
from rich.text import Text

from sift_core import Query
from sift_core.answering.in_context import InContextAnswerer, PromptOptions
from sift_core.cli.models import load_language_model
from sift_core.cli.output import Terminal

N_NEW_TOKENS = 24
LIMIT_S = 150  # of all answers
PROMPT = PromptOptions(system="Answer the question from the given texts, in a few words.")


@dataclass(frozen=True, kw_only=True, eq=False)
class Answers:
    """Answers of one model to the questions of a comparison; none is written twice.

    Args:
        answerer: Puts chunks and question to the model, as the engine's mode "context" does.
        compared: The questions, and the chunks of each method.
        queries: The questions with their embeddings.
        kept: Written answers, by the question and the chunks that were read.
    """

    answerer: InContextAnswerer
    compared: Comparison
    queries: Sequence[Query]
    kept: dict[tuple[str, ...], str] = field(default_factory=dict)

    @classmethod
    def by_model(cls, model: str, compared: Comparison, queries: Sequence[Query]) -> Answers:
        """Return answers of a model, which is loaded: an id on the hub, or a folder."""
        answerer = InContextAnswerer(
            language_model=load_language_model(model), max_new_tokens=N_NEW_TOKENS, prompt=PROMPT
        )
        return cls(answerer=answerer, compared=compared, queries=queries)

    def of(self, row: int, name: str) -> str:
        """Return the answer to a question from a method's chunks; equal chunks are read once."""
        chunks = self.compared.chosen[name][row].chunks
        key = (self.queries[row].text, *chunks.texts)
        if key not in self.kept:
            self.kept[key] = self.answerer.answer(self.queries[row], chunks).text
        return self.kept[key]

    def are_right(self, row: int) -> dict[str, bool]:
        """Return by method whether the answer to a question is right."""
        question = self.compared.questions[row]
        return {name: question.is_right(self.of(row, name)) for name in METHODS}


def print_answers(console: Terminal, answers: Answers, rows: Sequence[int]) -> None:
    """Print the answers to some questions in full."""
    name = answers.answerer.writer.name.rpartition("/")[2]
    console.print()
    console.rule(Text(f"What {name} answers from each", style="bold"), align="left", style="dim")
    for row in rows:
        question = answers.compared.questions[row]
        right = f"  Right: {expected(question)}" if question.answers else ""
        console.print(Text.assemble((question.text, "bold"), (right, "dim")))
        for method in METHODS:
            with console.status("Reading …"):
                answer = answers.of(row, method)
            is_right = question.is_right(answer) if question.kind else None
            print_answer(console, method, answer, is_right=is_right)


def count_answers(console: Terminal, answers: Answers, *, until: float) -> None:
    """Answer questions in turns, one of each kind, and print how many answers are right.

    Args:
        console: Where.
        answers: The answers.
        until: The moment of `time.monotonic` after which no other question is begun.
    """
    order = in_turns(by_kind(answers.compared.questions))
    right = {}
    with progress(console) as bar:
        for row in bar.track(order, description="Answering"):
            right[row] = answers.are_right(row)
            if time.monotonic() > until:
                break
    rows = sorted(right)
    console.print()
    print_right_answers(
        console,
        [answers.compared.questions[row] for row in rows],
        {name: [right[row][name] for row in rows] for name in METHODS},
    )
    which = "all questions"
    if len(rows) < len(order):
        which = f"the first of each kind, as many as fit into {LIMIT_S} s (ALL=1: to all)"
    console.say(
        f"Answers of at most {N_NEW_TOKENS} tokens from {N_CHUNKS} chunks, to {which}. An answer "
        f"is right if it has each part in an accepted spelling, and to a question without an "
        f"answer if it says that it does not know.",
        style="dim",
    )
    if not any(any(by_method.values()) for by_method in right.values()):
        console.say(
            "No answer is right: this model is too small for the measure. Pass another as --model "
            "to examples/demo.py."
        )


def in_turns(rows_of: Mapping[str, Sequence[int]]) -> list[int]:
    """Return the rows of all kinds: the first of each, the second of each, and so on."""
    turns = zip_longest(*rows_of.values())
    return [row for row in chain.from_iterable(turns) if row is not None]
