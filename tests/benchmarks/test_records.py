"""What every published number goes through: bars, tables, records and the page of results."""

import json
import math

import pytest

from benchmarks import results_page
from benchmarks.bars import bar, in_words
from benchmarks.records import write_record
from benchmarks.table import Cell, Table, difference, missing, number, word
from sift_core.evaluation.statistics import Estimate


@pytest.mark.parametrize(
    ("value", "better", "passes"),
    [
        (200.0, "higher", True),
        (199.9, "higher", False),
        (200.0, "lower", True),
        (200.1, "lower", False),
        (math.nan, "higher", False),
        (math.nan, "lower", False),
    ],
)
def test_a_value_that_equals_its_bar_passes_and_a_worse_one_does_not(value, better, passes):
    assert bar("speed", value, 200, better)["pass"] is passes


def test_a_bar_that_is_missed_says_by_how_much():
    missed = "speed: 150 (bar >= 200)  falls short by 50 (25%)"
    assert in_words(bar("speed", 150.0, 200, "higher")) == missed


def test_a_record_has_its_rows_its_bars_and_where_they_were_measured(tmp_path):
    rows, bars = [{"case": "a", "ms": 0.1}, {"case": "σ"}], [bar("speed", 1.0, 2.0, "lower")]
    write_record(tmp_path / "new" / "record.json", rows=rows, bars=bars, packages=["numpy"])
    text = (tmp_path / "new" / "record.json").read_text(encoding="utf-8")
    record = json.loads(text)
    assert (record["rows"], record["bars"]) == (rows, bars)
    assert set(record) == {"rows", "bars", "versions", "machine", "commit"}
    assert '    {"case": "a", "ms": 0.1},\n' in text


def estimate(value, low=-1.0):
    return Estimate(value=value, standard_error=0.25, low=low, high=1.0, n=2)


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (difference(estimate(-0.04)), "+0.0 [-1.0, +1.0]"),
        (difference(estimate(-4.8, low=math.nan)), "-4.8 [–]"),
        (number(math.nan), "–"),
        (word("a\x1b[31m\nb"), "a[31m b"),
    ],
)
def test_numbers_are_written_as_a_reader_would(cell, text):
    assert cell.text == text


def test_a_table_is_printed_as_it_is_written(capsys):
    first = (word("one"), Cell(text="1.0", is_bold=True))
    rows = (first, (word("two"), missing()))
    table = Table(title="A | B", heads=("", "σ̂"), rows=rows, note="Note.")
    assert table.as_markdown().splitlines() == [
        *("**A \\| B**", "", "|  | σ̂ |", "| :-- | --: |"),
        *("| one | **1.0** |", "| two | – |", "", "Note."),
    ]
    table.show()
    assert capsys.readouterr().out == f"\n{table.as_markdown()}\n"


def test_the_tables_of_the_page_are_those_of_the_benchmarks():
    page = results_page.PAGE.read_text(encoding="utf-8")
    assert results_page.filled(page) == page
    changed = page.replace("| 87.8 (1.6) |", "| 80.0 (1.6) |").replace("87.8 (1.6)", "80.0 (1.6)")
    assert changed != page
    assert results_page.filled(changed) == page
    with pytest.raises(ValueError, match="no table 'Unheard of'"):
        results_page.table("answers.md", "Unheard of")
