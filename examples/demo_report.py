"""Print the facts that each method finds, its lists, and the model's answers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
from demo_harbour import Question, by_kind, one_spaced
from demo_methods import MMR_WEIGHTS, N_CHUNKS, NEWEST, SIFT, Choice, Comparison
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from sift_core import CandidatePool
from sift_core.cli.output import Terminal, counted, shortened, source_of
from sift_core.evaluation.statistics import mean
from sift_core.types import IntArray

ALL = "all"
WIDEST = 120  # columns, beyond which lines are hard to read
WIDEST_SOURCE = 44
# Of a chunk's text: what stands in the line already, or is no text.
_HEADINGS = re.compile(r"\A(?:\s*#{1,6}\s.*(?:\n|\Z))+")
_TABLE_LINES = re.compile(r"[|:\s-]*-{3,}[|:\s-]*|\s*\|[|\s]*")

Counts = Mapping[str, IntArray]  # by the method's name, one count a question


def progress(console: Terminal) -> Progress:
    """Return a bar that vanishes; none where nobody looks."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


def print_facts(console: Terminal, compared: Comparison) -> None:
    """Print how many facts each method finds, by kind and in all, and what is certain."""
    counts = {name: compared.n_found(name) for name in compared.chosen}
    rows_of = rows_by_kind(compared)
    print_counts(console, f"facts in {N_CHUNKS} chunks", compared.n_facts, counts, rows_of)
    console.say(
        f"↓ fewer than SIFT, ↑ more: the 90 % interval of the difference by question leaves out 0. "
        f"MMR has the best of {len(MMR_WEIGHTS)} weights on these very questions "
        f"({compared.mmr_weight}), which favours it. hybrid fuses embeddings and BM25 by rank. "
        f"SIFT chooses one of near-copies: by default the most relevant, in the last column the "
        f'newest (newest="date").',
        style="dim",
    )
    console.say(verdict(counts, rows_of))


def rows_by_kind(compared: Comparison) -> dict[str, Sequence[int]]:
    """Return the rows of each kind of question that has facts, then of all such."""
    kinds = by_kind(compared.questions)
    with_facts = {kind: rows for kind, rows in kinds.items() if compared.n_facts[rows].any()}
    return {**with_facts, ALL: sorted(row for rows in with_facts.values() for row in rows)}


def print_counts(
    console: Terminal,
    title: str,
    of_each: IntArray,
    counts: Counts,
    rows_of: Mapping[str, Sequence[int]],
) -> None:
    """Print a table of sums of counts, with a sign where a difference from SIFT is certain.

    Args:
        console: Where.
        title: Name of the counts.
        of_each: How many there are of it, one number a question.
        counts: How many each method has.
        rows_of: The questions of each line.
    """
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column(title)
    for name in ("of", *counts):
        table.add_column(f"{name}  ", justify="right")
    for kind, rows in rows_of.items():
        sums = {name: int(count[rows].sum()) for name, count in counts.items()}
        cells = []
        for name, number in sums.items():
            best = "green" if number == max(sums.values()) else ""
            cells.append(Text.assemble((str(number), best), f" {sign(counts, name, rows)}"))
        of = Text(f"{of_each[rows].sum()}  ")
        table.add_row(kind, of, *cells, style="bold" if kind == ALL else "")
    console.print(table)


def sign(counts: Counts, name: str, rows: Sequence[int]) -> str:
    """Return "↓" if a method has certainly fewer than SIFT, "↑" if certainly more, else " "."""
    estimate = mean((counts[SIFT] - counts[name])[rows])
    return "↓" if estimate.low > 0 else "↑" if estimate.high < 0 else " "


def verdict(counts: Counts, rows_of: Mapping[str, Sequence[int]]) -> str:
    """Return in words how far SIFT is ahead of each rival in all, and where it does not lead."""
    rivals = [name for name in counts if name not in (SIFT, NEWEST)]
    n = len(rows_of[ALL])
    beyond = [n * (counts[SIFT] - counts[name])[rows_of[ALL]] for name in rivals]  # means are sums
    pairs = zip(rivals, map(mean, beyond), strict=True)
    differences = [f"{estimate.text(0, '+')} against {name}" for name, estimate in pairs]
    sentence = f"Facts that SIFT finds beyond the others: {', '.join(differences)}."
    level = []
    for kind, rows in rows_of.items():
        sums = {name: int(counts[name][rows].sum()) for name in (SIFT, *rivals)}
        if names := [name for name in rivals if sums[name] >= sums[SIFT]]:
            level.append(f"{kind} ({', '.join(names)})")
    return f"{sentence} SIFT does not lead in: {'; '.join(level)}." if level else sentence


def print_choices(console: Terminal, question: Question, chosen: Mapping[str, Choice]) -> None:
    """Print a question, and what each method chose for it, with SIFT's reasons."""
    console.print()
    console.rule(Text(question.kind, style="bold"), align="left", style="dim")
    console.print(Text(question.text, style="bold"))
    if question.kind:
        right = f"Right: {expected(question)}" if question.answers else "No page has the answer."
        console.print(Text(right, style="dim"))
    width = min(console.width, WIDEST)
    for name, choice in chosen.items():
        found = question.found(choice.chunks)
        score = f": {sum(found)} of {counted(len(found), 'fact')}" if found else ""
        console.print(Text(f"{name}{score}", style="bold cyan"))
        for row in range(len(choice.chunks)):
            _print_chunk(console, question, choice, row, width)


def _print_chunk(
    console: Terminal, question: Question, choice: Choice, row: int, width: int
) -> None:
    """Print a chunk in one line, with the fact that it states, and the reason for it in another."""
    chunks, fact = choice.chunks, question.fact_in(choice.chunks, row)
    room = min(WIDEST_SOURCE, width // 2)
    source = source_of(chunks.metadata[row], chunks.document_ids[row], room)
    head = f" {'✓' if fact else ' '} {source:<{room}}  "
    beside = one_spaced(fact.text) if fact else first_line(chunks, row)
    text = shortened(beside, width - len(head))
    line = Text.assemble((head, "green" if fact else ""), (text, "green" if fact else "dim"))
    console.print(line, no_wrap=True, crop=False)
    if choice.picks and (reason := choice.picks[row].reason):
        reason = shortened(reason, width - 7)
        console.print(Text(f"     ↳ {reason}", style="italic"), no_wrap=True, crop=False)


def first_line(chunks: CandidatePool, row: int) -> str:
    """Return the beginning of a chunk in one line, without headings and rules."""
    text = chunks.texts[row]
    body = _HEADINGS.sub("", text) or text
    return one_spaced(_TABLE_LINES.sub(" ", body).replace("**", ""))


def expected(question: Question) -> str:
    """Return the answer: the first spelling of each part."""
    return "; ".join(part[0] for part in question.answers)


def print_answer(console: Terminal, name: str, answer: str, *, is_right: bool | None) -> None:
    """Print what the model wrote from a method's chunks, in two lines at most.

    Args:
        console: Where.
        name: The method.
        answer: Text of the model.
        is_right: Whether that is right; None if nobody knows.
    """
    mark = " " if is_right is None else "✓" if is_right else "✗"
    head = f" {mark} {name:<13}  "
    text = shortened(one_spaced(answer), 2 * (min(console.width, WIDEST) - len(head)))
    grid = Table.grid()
    grid.add_row(Text(head), Text(text), style="green" if is_right else "")
    console.print(grid)


def print_right_answers(
    console: Terminal, questions: Sequence[Question], right: Mapping[str, Sequence[bool]]
) -> None:
    """Print how many answers are right from each method's chunks, by kind and in all.

    Args:
        console: Where.
        questions: Those that were answered.
        right: By the method's name, whether the answer to each is right.
    """
    counts = {name: np.array(values, dtype=np.intp) for name, values in right.items()}
    rows_of = {**by_kind(questions), ALL: list(range(len(questions)))}
    ones = np.ones(len(questions), dtype=np.intp)
    print_counts(console, "right answers", ones, counts, rows_of)
