import pytest

from benchmarks import results_page

PAGE = results_page.PAGE.read_text(encoding="utf-8")


def test_the_page_has_tables_that_are_in_the_results():
    assert len(results_page.PLACE.findall(PAGE)) >= 8


def test_the_tables_of_the_page_are_those_of_the_rows():
    assert results_page.filled(PAGE) == PAGE


def test_a_number_that_was_changed_by_hand_is_found():
    cell = "| All | "
    assert cell in PAGE
    assert results_page.filled(PAGE.replace(cell, "| all | ", 1)) == PAGE


def test_a_table_that_is_not_there_is_an_error():
    place = "<!-- table language_modeling.jsonl main 99 -->\n<!-- end -->"
    with pytest.raises(IndexError):
        results_page.filled(place)
