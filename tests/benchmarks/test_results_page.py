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


def test_a_difference_in_retrieval_is_that_of_the_record():
    table = results_page.retrieval_table("squad")
    row = next(line for line in table.splitlines() if "| recall@10 |" in line)
    # 94.25 % and 94.0 % of 400 questions as they are; 84.0 and 93.75 % with copies
    assert [cell.strip() for cell in row.split("|")[1:-1]] == [
        "squad",
        "400",
        "recall@10",
        "94.2",
        "-0.2 [-0.8, +0.0]",
        "84.0",
        "**+9.8** [+7.5, +12.2]",
    ]
