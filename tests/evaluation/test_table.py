import math

import pytest

from sift_core.evaluation.statistics import Estimate
from sift_core.evaluation.table import (
    Table,
    count,
    difference,
    missing,
    number,
    with_error,
    with_interval,
    word,
)


def estimate(value, error=0.25, low=-1.0, high=1.0):
    return Estimate(value=value, standard_error=error, low=low, high=high, n=2)


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (with_error(estimate(73.46)), "73.5 (0.2)"),
        (with_error(estimate(73.46, error=math.nan)), "73.5 (–)"),
        (difference(estimate(-0.04)), "+0.0 [-1.0, +1.0]"),
        (difference(estimate(-4.8, low=math.nan)), "-4.8 [–]"),
        (with_interval(estimate(0.481), digits=2), "0.48 [-1.00, 1.00]"),
        (with_interval(estimate(math.nan)), "–"),
        (number(math.nan), "–"),
        (number(1.2345), "1.234"),
        (count(1234), "1,234"),
        (word("a\x1b[31m\nb"), "a[31m b"),
    ],
)
def test_numbers_are_written_as_a_reader_would(cell, text):
    assert cell.text == text


TABLE = Table(
    title="A | B",
    heads=("", "σ̂"),
    rows=((word("one"), with_error(estimate(1.0), is_bold=True)), (word("two"), missing())),
    note="How to read it.",
)


def test_a_table_in_markdown():
    assert TABLE.as_markdown().splitlines() == [
        "**A \\| B**",
        "",
        "|  | σ̂ |",
        "| :-- | --: |",
        "| one | **1.0 (0.2)** |",
        "| two | – |",
        "",
        "How to read it.",
    ]


def test_a_table_for_a_terminal_is_aligned():
    assert TABLE.as_text().splitlines() == [
        "A | B",
        "",
        "             σ̂",
        "---------------",
        "one  1.0 (0.2)*",
        "two          –",
        "",
        "How to read it.",
    ]


def test_records_have_unrounded_numbers():
    assert TABLE.as_records() == [
        {"": "one", "σ̂": 1.0, "σ̂ standard error": 0.25, "σ̂ low": -1.0, "σ̂ high": 1.0},
        {"": "two", "σ̂": None},
    ]
