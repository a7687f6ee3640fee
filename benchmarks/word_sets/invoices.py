"""Invoices: a set of 220, and any number of them as text files of a folder."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks.word_sets.building import N_CHUNKS, N_QUESTIONS, KeyedQuestion, Record
from benchmarks.word_sets.vocabulary import (
    CITIES,
    COMPANY_FORMS,
    COMPANY_TRADES,
    COMPANY_WORDS,
    FIRST_NAMES,
    LAST_NAMES,
    format_date,
    format_money,
    numbers,
    pick,
    pick_several,
)

GOODS = (
    "office chair", "standing desk", "desk lamp", "laser printer", "toner cartridge", "ring binder",
    "whiteboard", "projector", "network switch", "patch cable", "label roll", "pallet wrap",
    "packing tape", "safety gloves", "ear protection", "cordless drill", "screw set", "LED panel",
    "water filter", "coffee beans", "cleaning service", "window cleaning", "transport", "assembly",
    "maintenance visit", "software licence", "training day", "rental of a forklift",
)  # fmt: skip
FIRST_DAY = datetime.date(2018, 1, 1)
N_DAYS = 2922  # eight years
STEP = 7_368_787  # prime, so that its multiples give each order a number of its own
MODULUS = 10_000_019  # prime


@dataclass(frozen=True, kw_only=True)
class FileQuestion:
    """A question that one file of a folder answers.

    Args:
        text: The question.
        file_name: The one file that answers it.
        answer: Stands in that file, letter by letter.
    """

    text: str
    file_name: str
    answer: str


def invoices(n: int = 100_000, *, seed: int = 0) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of one file an invoice, from old to new.

    100,000 take about five seconds. No two have one number or one order. Names have a folder a
    year: "2021/INV-2021-004182.txt".

    Args:
        n: How many, at most 1,000,000. Default: 100,000.
        seed: Fixes all that is random. Default: 0.
    """
    for i in range(n):
        name, record = _make_invoice(i, n, seed)
        yield name, f"{record.title}\n\n{record.text}\n"


def invoice_questions(n: int = 100_000, *, seed: int = 0) -> list[FileQuestion]:
    """Return 100 questions on the files of `invoices` with the same arguments."""
    rng = np.random.default_rng([seed, n])
    questions = []
    for i in sorted(numbers(rng, N_QUESTIONS, 0, n)):
        name, record = _make_invoice(i, n, seed)
        keyed = pick(rng, record.questions[:-1])  # the last may fit several of so many invoices
        questions.append(FileQuestion(text=keyed.text, file_name=name, answer=keyed.answer))
    return questions


def make_invoice_records(rng: np.random.Generator) -> Iterator[Record]:
    """Yield the invoices of a small firm, of eight years."""
    seed = int(rng.integers(1_000_000))
    return (_make_invoice(i, N_CHUNKS, seed)[1] for i in range(N_CHUNKS))


def _make_invoice(i: int, n: int, seed: int) -> tuple[str, Record]:
    """Return one of n invoices, by its place, with its file's name."""
    rng = np.random.default_rng([seed, i])
    day = FIRST_DAY + datetime.timedelta(days=i * N_DAYS // n)
    number = f"INV-{day.year}-{i + 1:06}"
    order = f"PO-{(i + 1) * STEP % MODULUS:08}"
    customer = f"{pick(rng, COMPANY_WORDS)} {pick(rng, COMPANY_TRADES)} {pick(rng, COMPANY_FORMS)}"
    clerk = f"{pick(rng, FIRST_NAMES)} {pick(rng, LAST_NAMES)}"
    lines, total = [], 0
    for item in pick_several(rng, GOODS, int(rng.integers(1, 4))):
        amount, cents = int(rng.integers(1, 25)), int(rng.integers(250, 60_000))
        total += amount * cents
        lines.append(f"{amount} × {item} at {format_money(cents)}")
    due = day + datetime.timedelta(days=pick(rng, (10, 14, 30, 45)))
    sum_due, dated, due_on = format_money(total), format_date(day), format_date(due)
    text = (
        f"Invoice number: {number}\nInvoice date: {dated}\nCustomer: {customer}, "
        f"{pick(rng, CITIES)}\nYour order: {order}\nItems: {'; '.join(lines)}\n"
        f"Total amount: EUR {sum_due}\nPayable by: {due_on}\nContact: {clerk}"
    )
    questions = [
        KeyedQuestion(text=f"How much is due on {number}?", answer=sum_due, keys=(number,)),
        KeyedQuestion(
            text=f"Until when must bill {number} be paid?", answer=due_on, keys=(number,)
        ),
        KeyedQuestion(text=f"Who bought something on {number}?", answer=customer, keys=(number,)),
        KeyedQuestion(
            text=f"What did the goods of order {order} cost?", answer=sum_due, keys=(order,)
        ),
        KeyedQuestion(
            text=f"Which bill belongs to purchase {order}?", answer=number, keys=(order,)
        ),
        KeyedQuestion(
            text=f"What did we charge {customer} on {dated}?",
            answer=sum_due,
            keys=(customer, f"date: {dated}"),
        ),
    ]
    return f"{day.year}/{number}.txt", Record(
        title=f"Invoice {number}", text=text, questions=questions
    )
