import math

import pytest

from benchmarks.table import (
    Table,
    difference,
    missing,
    number,
    with_interval,
    word,
)
from sift_core.evaluation.statistics import Estimate


def estimate(value, low=-1.0):
    return Estimate(value=value, standard_error=0.25, low=low, high=1.0, n=2)


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (difference(estimate(-0.04)), "+0.0 [-1.0, +1.0]"),
        (difference(estimate(-4.8, low=math.nan)), "-4.8 [–]"),
        (with_interval(estimate(0.481), digits=2), "0.48 [-1.00, 1.00]"),
        (with_interval(estimate(math.nan)), "–"),
        (number(math.nan), "–"),
        (number(1.2345), "1.234"),
        (word("a\x1b[31m\nb"), "a[31m b"),
    ],
)
def test_numbers_are_written_as_a_reader_would(cell, text):
    assert cell.text == text


TABLE = Table(
    title="A | B",
    heads=("", "σ̂"),
    rows=((word("one"), with_interval(estimate(1.0), is_bold=True)), (word("two"), missing())),
    note="How to read it.",
)


def test_a_table_in_markdown():
    assert TABLE.as_markdown().splitlines() == [
        "**A \\| B**",
        "",
        "|  | σ̂ |",
        "| :-- | --: |",
        "| one | **1.0 [-1.0, 1.0]** |",
        "| two | – |",
        "",
        "How to read it.",
    ]


def test_a_table_for_a_terminal_is_aligned():
    assert TABLE.as_text().splitlines() == [
        "A | B",
        "",
        "                   σ̂",
        "---------------------",
        "one  1.0 [-1.0, 1.0]*",
        "two                –",
        "",
        "How to read it.",
    ]
